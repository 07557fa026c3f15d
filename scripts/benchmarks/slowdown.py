"""How much slower a CPU-bound script gets by being sampled a hundred times a second.

Within one run the supervisor is stopped and continued in turns, and the script's speed with it
awake is compared with its speed right before or after: moods of the machine that last longer than
a second meet both alike. Both get the largest weight there is, so that what else runs here takes
little from either.
"""

from __future__ import annotations

import mmap
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress

from _cli import Cli, cli
from _measure import (
    Options,
    Result,
    SkippedError,
    bootstrap,
    measuring_cpu,
    pinned,
    progress,
    skipped,
)

BAR = 0.005
SLICE_SEC = 0.25
_SETTLE_SEC = 0.01
_START_SEC = 20.0
_MOST_SHARES = 262_144
_WHAT = "slow-down of a CPU-bound script by sampling at 100 Hz"

_SCRIPT = """
import mmap, sys
with open(sys.argv[1], "r+b") as file:
    done = memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")
while True:
    total = 0
    for number in range(500):
        total += number * number % 7
    done[0] += 1
"""


class Script:
    """A run whose script counts what it has done; its supervisor sleeps and wakes as told."""

    def __init__(self, ours: Cli) -> None:
        """Start it, and return when it works."""
        self._file = tempfile.NamedTemporaryFile(prefix="sandbox-bench-")  # noqa: SIM115 - closed by `end`
        self._file.write(bytes(8))
        self._file.flush()
        self._done = mmap.mmap(self._file.fileno(), 8)
        options = ("-q", "--interval", "10ms", "--cpu-shares", str(_MOST_SHARES))
        command = ours.run(*options, "--", sys.executable, "-c", _SCRIPT)
        self._supervisor = subprocess.Popen(
            [*command, self._file.name], env=ours.environment, stdin=subprocess.DEVNULL
        )
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, self._supervisor.pid, -20)
        deadline = time.monotonic() + _START_SEC
        while not self._count():
            if self._supervisor.poll() is not None or time.monotonic() > deadline:
                self.end()
                raise SkippedError("`sandbox run` did not start the script")
            time.sleep(0.01)

    def _count(self) -> int:
        return int.from_bytes(self._done[:], sys.byteorder)

    def speed(self, *, is_sampled: bool) -> float:
        """Return the rounds a second over one slice."""
        self._supervisor.send_signal(signal.SIGCONT if is_sampled else signal.SIGSTOP)
        time.sleep(_SETTLE_SEC)
        started, before = time.perf_counter(), self._count()
        time.sleep(SLICE_SEC)
        return (self._count() - before) / (time.perf_counter() - started)

    def end(self) -> None:
        """End the run."""
        self._supervisor.send_signal(signal.SIGCONT)
        self._supervisor.terminate()
        self._supervisor.wait(_START_SEC)
        self._done.close()
        self._file.close()


def measure(options: Options) -> Iterator[Result]:
    """Yield the slow-down with a CPU to spare and without one."""
    pairs = max(round(options.pairs * options.seconds / SLICE_SEC / 2), 3)
    for is_shared in (False, True):
        what = f"{_WHAT}, all on one CPU" if is_shared else _WHAT
        if not is_shared and len(os.sched_getaffinity(0)) == 1:
            yield skipped("slowdown", what, "there is one CPU only")
            continue
        try:
            with cli() as ours, pinned(measuring_cpu()) if is_shared else nullcontext():
                slowdowns = _slowdowns(ours, pairs)
        except SkippedError as reason:
            yield skipped("slowdown", what, reason)
            return
        yield _result(what, slowdowns, None if is_shared else BAR)


def _slowdowns(ours: Cli, pairs: int) -> list[float]:
    """Return by which share the script was slower, pair by pair."""
    script = Script(ours)
    try:
        script.speed(is_sampled=True)  # past its start
        found = []
        for number in range(pairs):
            progress(f"pair {number + 1} of {pairs}")
            order = (True, False) if number % 2 else (False, True)
            speeds = {is_sampled: script.speed(is_sampled=is_sampled) for is_sampled in order}
            found.append(speeds[False] / speeds[True] - 1)
    finally:
        script.end()
        progress("")
    return found


def _result(what: str, slowdowns: list[float], bar: float | None) -> Result:
    slowdown = statistics.median(slowdowns)
    low, high = bootstrap(slowdowns, statistics.median)
    return Result(
        benchmark="slowdown",
        what=what,
        unit="%",
        ours=100 * slowdown,
        interval=(100 * low, 100 * high),
        bar=None if bar is None else f"{100 * bar:g} %",
        ok=None if bar is None else slowdown <= bar,
        pairs=len(slowdowns),
    )
