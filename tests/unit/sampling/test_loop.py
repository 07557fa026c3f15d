"""The loop, with pipes and timers that are due at once."""

from __future__ import annotations

import gc
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
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


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield ends
    finally:
        for end in ends:
            with suppress(OSError):
                os.close(end)


def watchdog(loop: Loop) -> None:
    """End a test that would wait for ever with a failure."""

    def too_late() -> None:
        pytest.fail("nothing ended the loop")

    loop.at(time.monotonic_ns() + 5_000 * MS, too_late)


def test_a_descriptor_is_served_as_long_as_it_is_ready(loop: Loop, pipe: tuple[int, int]) -> None:
    read: list[bytes] = []
    loop.on_fd(pipe[0], select.EPOLLIN, lambda: read.append(os.read(pipe[0], 1)))
    os.write(pipe[1], b"abc")
    watchdog(loop)

    loop.run(lambda: len(read) == 3)

    assert read == [b"a", b"b", b"c"]


def test_the_other_end_closing_is_an_event(loop: Loop, pipe: tuple[int, int]) -> None:
    loop.on_fd(pipe[0], select.EPOLLIN, loop.stop)
    os.close(pipe[1])
    watchdog(loop)

    loop.run()


def test_run_does_not_wait_when_its_end_has_come(loop: Loop) -> None:
    loop.run(lambda: True)


def test_stop_leaves_what_is_ready_for_the_next_run(loop: Loop) -> None:
    seen: list[str] = []

    def hear(name: str, end: int) -> None:
        seen.append(name)
        os.read(end, 1)
        loop.stop()

    pipes = [os.pipe(), os.pipe()]
    for name, (read_end, write_end) in zip("ab", pipes, strict=True):
        loop.on_fd(read_end, select.EPOLLIN, lambda name=name, end=read_end: hear(name, end))
        os.write(write_end, b"x")
    watchdog(loop)

    loop.run()
    assert len(seen) == 1
    loop.run()
    assert sorted(seen) == ["a", "b"]
    for ends in pipes:
        loop.forget(ends[0])
        os.close(ends[0])
        os.close(ends[1])


def test_a_descriptor_that_an_earlier_callback_forgot_is_not_served(loop: Loop) -> None:
    pipes = [os.pipe(), os.pipe()]
    served: list[int] = []

    def serve(mine: int, other: int) -> None:
        served.append(mine)
        os.read(mine, 1)
        loop.forget(other)
        loop.at(0, loop.stop)

    (first, first_in), (second, second_in) = pipes
    loop.on_fd(first, select.EPOLLIN, lambda: serve(first, second))
    loop.on_fd(second, select.EPOLLIN, lambda: serve(second, first))
    os.write(first_in, b"x")
    os.write(second_in, b"x")
    watchdog(loop)

    loop.run()

    assert len(served) == 1
    for fd in (first, first_in, second, second_in):
        os.close(fd)


def test_forgetting_what_is_closed_or_was_never_watched_is_harmless(
    loop: Loop, pipe: tuple[int, int]
) -> None:
    loop.on_fd(pipe[0], select.EPOLLIN, loop.stop)
    os.close(pipe[0])

    loop.forget(pipe[0])
    loop.forget(pipe[1])


def test_deadlines_come_in_the_order_of_their_times(loop: Loop) -> None:
    called: list[str] = []
    now_ns = time.monotonic_ns()
    loop.at(now_ns + 3 * MS, loop.stop)
    loop.at(now_ns + 2 * MS, lambda: called.append("later"))
    loop.at(now_ns + 1 * MS, lambda: called.append("sooner"))
    loop.at(now_ns + 1 * MS, lambda: called.append("asked second"))

    loop.run()

    assert called == ["sooner", "asked second", "later"]


def test_no_deadline_is_early(loop: Loop) -> None:
    wanted_ns = time.monotonic_ns() + 3 * MS
    called: list[int] = []
    loop.at(wanted_ns, lambda: called.append(time.monotonic_ns()))
    watchdog(loop)

    loop.run(lambda: bool(called))

    assert called[0] >= wanted_ns


@pytest.mark.parametrize("deadline_ns", [-5, 0, 1])
def test_a_deadline_that_has_passed_is_called_at_once(loop: Loop, deadline_ns: int) -> None:
    loop.at(deadline_ns, loop.stop)
    watchdog(loop)

    loop.run()


def test_a_cancelled_deadline_is_not_called(loop: Loop) -> None:
    called: list[str] = []
    first = loop.at(time.monotonic_ns() + 1 * MS, lambda: called.append("cancelled"))
    loop.at(time.monotonic_ns() + 2 * MS, loop.stop)
    first.cancel()
    first.cancel()

    loop.run()

    assert called == []


def test_a_deadline_may_set_the_next_one(loop: Loop) -> None:
    times: list[int] = []

    def again() -> None:
        times.append(time.monotonic_ns())
        if len(times) < 3:
            loop.at(time.monotonic_ns() + MS, again)
        else:
            loop.stop()

    loop.at(time.monotonic_ns(), again)
    watchdog(loop)
    loop.run()

    assert len(times) == 3


def test_an_exception_of_a_callback_leaves_the_loop_and_keeps_the_other_deadlines(
    loop: Loop,
) -> None:
    def fail() -> None:
        raise ValueError("a fault of ours")

    loop.at(0, fail)
    loop.at(1, loop.stop)

    with pytest.raises(ValueError, match="a fault of ours"):
        loop.run()
    watchdog(loop)
    loop.run()


def test_signals_come_first_then_events_then_deadlines_then_ticks(
    loop: Loop, pipe: tuple[int, int]
) -> None:
    order: list[str] = []

    def event() -> None:
        order.append("event")
        loop.forget(pipe[0])

    loop.every(1 * MS, lambda _: (order.append("tick"), loop.stop())[0], start_ns=1)
    loop.at(1, lambda: order.append("deadline"))
    loop.on_fd(pipe[0], select.EPOLLIN, event)
    loop.on_signals((signal.SIGUSR1,), lambda _: order.append("signal"))
    os.write(pipe[1], b"x")
    os.kill(os.getpid(), signal.SIGUSR1)
    watchdog(loop)

    loop.run()

    assert order == ["signal", "event", "deadline", "tick"]


def test_a_cancelled_ticker_is_silent_and_its_descriptor_is_closed(loop: Loop) -> None:
    before = _open_descriptors()
    ticker = loop.every(1 * MS, lambda _: pytest.fail("ticked"))
    ticker.cancel()
    ticker.cancel()
    loop.at(time.monotonic_ns() + 5 * MS, loop.stop)

    loop.run()

    assert _open_descriptors() == before


def test_closing_leaves_no_descriptor_and_the_mask_as_it_was() -> None:
    before, mask = _open_descriptors(), signal.pthread_sigmask(signal.SIG_BLOCK, ())
    loop = Loop()
    loop.every(1 * MS, lambda _: None)
    loop.at(time.monotonic_ns(), lambda: None)
    loop.on_signals((signal.SIGUSR1,), lambda _: None)
    loop.on_signals((signal.SIGUSR2,), lambda _: None)
    loop.on_gap(lambda _: None)
    assert signal.SIGUSR2 in signal.pthread_sigmask(signal.SIG_BLOCK, ())

    loop.close()
    loop.close()

    assert _open_descriptors() == before
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == mask


def test_a_signal_that_was_blocked_before_stays_blocked_after() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        loop = Loop()
        loop.on_signals((signal.SIGUSR1,), lambda _: None)
        loop.close()

        assert signal.SIGUSR1 in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})


def test_each_signal_goes_to_the_callback_that_asked_for_it(loop: Loop) -> None:
    heard: list[tuple[str, int]] = []

    def ear(name: str, info: SignalInfo) -> None:
        heard.append((name, info.number))

    loop.on_signals((signal.SIGUSR1,), lambda info: ear("one", info))
    loop.on_signals((signal.SIGUSR2,), lambda info: ear("two", info))
    os.kill(os.getpid(), signal.SIGUSR2)
    os.kill(os.getpid(), signal.SIGUSR1)
    watchdog(loop)

    loop.run(lambda: len(heard) == 2)

    assert sorted(heard) == [("one", signal.SIGUSR1), ("two", signal.SIGUSR2)]


@pytest.mark.parametrize("before", [gc.enable, gc.disable])
def test_the_collector_is_off_inside_and_as_before_outside(
    loop: Loop, before: Callable[[], None]
) -> None:
    before()
    enabled = gc.isenabled()
    inside: list[tuple[bool, bool]] = []

    def look() -> None:
        inside.append((gc.isenabled(), gc.get_freeze_count() > 0))
        loop.stop()

    try:
        loop.at(0, look)
        loop.run()

        assert inside == [(False, True)]
        assert gc.isenabled() is enabled
        assert gc.get_freeze_count() == 0
    finally:
        gc.enable()


def test_objects_that_the_caller_froze_stay_frozen(loop: Loop) -> None:
    gc.freeze()
    try:
        loop.run(lambda: True)

        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def _open_descriptors() -> set[str]:
    # The directory that is listed has a descriptor too, which is gone when we look.
    return {str(fd) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()}
