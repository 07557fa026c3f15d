"""The loop on this kernel's own timers and signals: no drift, no late deadline, who sent what."""

from __future__ import annotations

import os
import pty
import select
import signal
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.kernel.libc import SignalInfo
from sandbox.sampling.loop import Loop

MS = 1_000_000


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    try:
        yield loop
    finally:
        loop.close()


def _sleep_until(deadline_ns: int) -> None:
    time.sleep(max(deadline_ns - time.monotonic_ns(), 0) / 1e9)


def test_the_grid_does_not_drift_however_long_a_tick_takes(loop: Loop) -> None:
    interval_ns, start_ns = 10 * MS, time.monotonic_ns()
    times: list[int] = []
    points = 0

    def tick(expirations: int) -> None:
        nonlocal points
        points += expirations
        times.append(time.monotonic_ns() - points * interval_ns - start_ns)
        _sleep_until(time.monotonic_ns() + 4 * MS)

    loop.every(interval_ns, tick, start_ns)
    loop.run(lambda: points >= 100)

    # A loop that sleeps between its ticks would be 400 ms off by now.
    assert min(times) >= 0
    assert min(times[-20:]) < 5 * MS


def test_a_tick_that_takes_longer_than_the_interval_is_told_what_it_missed(loop: Loop) -> None:
    interval_ns, start_ns = 5 * MS, time.monotonic_ns()
    counts: list[int] = []
    untold: list[int] = []

    def tick(expirations: int) -> None:
        counts.append(expirations)
        untold.append((time.monotonic_ns() - start_ns) // interval_ns - sum(counts))
        _sleep_until(time.monotonic_ns() + 12 * MS)

    loop.every(interval_ns, tick, start_ns)
    loop.run(lambda: len(counts) == 20)

    assert max(counts) >= 2
    assert min(untold) >= 0
    assert statistics.median(untold) == 0


def test_deadlines_that_have_passed_go_before_ticks_that_pile_up(loop: Loop) -> None:
    ticks_ns: list[int] = []
    called_early: list[bool] = []
    overtaken: list[int] = []

    def tick(_: int) -> None:
        ticks_ns.append(time.monotonic_ns())
        _sleep_until(time.monotonic_ns() + 8 * MS)  # the next tick is due before this one ends

    def due(deadline_ns: int) -> None:
        called_early.append(time.monotonic_ns() < deadline_ns)
        overtaken.append(sum(at_ns > deadline_ns for at_ns in ticks_ns))

    loop.every(1 * MS, tick)
    for number in range(1, 11):
        deadline_ns = time.monotonic_ns() + number * 23 * MS
        loop.at(deadline_ns, lambda deadline_ns=deadline_ns: due(deadline_ns))
    loop.run(lambda: len(overtaken) == 10)

    assert not any(called_early)
    # One that passes between the wait and the call of a tick has to wait for that one.
    assert max(overtaken) <= 1
    assert sum(overtaken) <= 3


def test_the_timer_slack_of_this_thread_is_left_alone(loop: Loop) -> None:
    slack = Path(f"/proc/{os.getpid()}/timerslack_ns")
    before = slack.read_text()
    inside: list[str] = []

    def tick(_: int) -> None:
        inside.append(slack.read_text())
        loop.stop()

    loop.every(1 * MS, tick)
    loop.run()

    assert inside == [before]


def test_a_signal_that_a_process_sent_says_which(loop: Loop) -> None:
    heard: list[SignalInfo] = []
    loop.on_signals((signal.SIGUSR1,), heard.append)
    sender = subprocess.Popen(["/bin/sh", "-c", f"kill -USR1 {os.getpid()}"])
    loop.at(time.monotonic_ns() + 5_000 * MS, loop.stop)
    loop.run(lambda: bool(heard))
    sender.wait(timeout=10)

    assert [(info.number, info.from_kernel) for info in heard] == [(signal.SIGUSR1, False)]
    assert heard[0].sender_pid == sender.pid


_SUPERVISOR = textwrap.dedent("""
    import os, signal, sys, time
    from sandbox.sampling.loop import Loop

    loop, started_ns = Loop(), time.monotonic_ns()
    points = 0

    def say(text):
        print(text, flush=True)

    def tick(expirations):
        global points
        points += expirations
        if expirations > 50:
            say(f"missed {expirations}")
        if points - expirations < 3 <= points:
            say("ticking")

    def heard(info):
        say(f"signal {signal.Signals(info.number).name} {info.from_kernel}")
        if info.number == signal.SIGINT:
            loop.stop()

    loop.on_gap(lambda gap_ns: say(f"gap {gap_ns // 1_000_000}"))
    loop.on_signals((signal.SIGINT, signal.SIGCONT), heard)
    loop.every(10_000_000, tick, started_ns)
    loop.at(started_ns + 20_000_000_000, loop.stop)
    loop.run()
    say(f"phase {(time.monotonic_ns() - started_ns) // 10_000_000 - points}")
""")


class _Terminal:
    """A supervisor that is the foreground job of a terminal of its own."""

    def __init__(self) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(sys.executable, [sys.executable, "-c", _SUPERVISOR])
        self.text = ""

    def expect(self, text: str) -> None:
        deadline = time.monotonic() + 15
        while text not in self.text:
            if not select.select([self.fd], [], [], max(deadline - time.monotonic(), 0))[0]:
                pytest.fail(f"`{text}` did not come; the supervisor said: {self.text}")
            try:
                self.text += os.read(self.fd, 4096).decode()
            except OSError:  # the terminal's other end is closed
                pytest.fail(f"`{text}` did not come; the supervisor said: {self.text}")

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


@pytest.fixture
def terminal() -> Iterator[_Terminal]:
    terminal = _Terminal()
    try:
        yield terminal
    finally:
        terminal.close()


def test_a_terminals_interrupt_is_told_from_one_that_was_sent(terminal: _Terminal) -> None:
    terminal.expect("ticking")
    os.write(terminal.fd, b"\x03")
    terminal.expect("signal SIGINT True")


def test_an_interrupt_that_was_sent_is_told_from_the_terminals(terminal: _Terminal) -> None:
    terminal.expect("ticking")
    os.kill(terminal.pid, signal.SIGINT)
    terminal.expect("signal SIGINT False")


def test_a_stop_is_reported_as_a_gap_and_not_as_missed_ticks(terminal: _Terminal) -> None:
    terminal.expect("ticking")
    os.kill(terminal.pid, signal.SIGSTOP)
    os.waitpid(terminal.pid, os.WUNTRACED)
    time.sleep(0.6)
    os.kill(terminal.pid, signal.SIGCONT)
    terminal.expect("signal SIGCONT False")
    terminal.expect("\n")
    os.kill(terminal.pid, signal.SIGINT)
    terminal.expect("phase ")

    gap_ms = int(terminal.text.split("gap ")[1].split()[0])
    assert 600 <= gap_ms < 3_000
    assert "missed" not in terminal.text
    assert terminal.text.index("gap") < terminal.text.index("SIGCONT")
    # The points of the gap were not served, and nearly all of the others were.
    terminal.expect("\n")
    skipped = int(terminal.text.split("phase ")[1].split()[0])
    assert abs(skipped - gap_ms // 10) <= 20


def test_sigcont_without_a_stop_is_no_gap(terminal: _Terminal) -> None:
    terminal.expect("ticking")
    os.kill(terminal.pid, signal.SIGCONT)
    terminal.expect("signal SIGCONT False")

    assert "gap" not in terminal.text
