"""How much slower a CPU-bound script gets by being sampled a hundred times a second."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator

from _cli import Cli, cli
from _measure import Options, Pairs, Result, SkippedError, in_pairs, measuring_cpu, pinned, skipped

BAR = 0.005
_SAMPLED, _UNSAMPLED = "10ms", "1h"  # nothing else is different between the two
_WHAT = "slow-down of a CPU-bound script by sampling at 100 Hz"

_SCRIPT = """
import sys, time
rounds = int(sys.argv[1])
started = time.perf_counter()
total = 0
for number in range(rounds):
    total += number * number % 7
print(time.perf_counter() - started)
"""


def measure(options: Options) -> Iterator[Result]:
    """Yield the slow-down with a CPU to spare and without one."""
    with cli() as ours:
        try:
            rounds = round(options.seconds / _work(ours, _UNSAMPLED, 1_000_000) * 1_000_000)
            free = _pairs(ours, rounds, options.pairs)
            with pinned(measuring_cpu()):
                shared = _pairs(ours, rounds, options.pairs)
        except SkippedError as reason:
            yield skipped("slowdown", _WHAT, reason)
            return
    yield _result(_WHAT, free, BAR)
    yield _result(f"{_WHAT}, supervisor and script on one CPU", shared, None)


def _pairs(ours: Cli, rounds: int, pairs: int) -> Pairs:
    return in_pairs(
        lambda: _work(ours, _SAMPLED, rounds), lambda: _work(ours, _UNSAMPLED, rounds), pairs
    )


def _work(ours: Cli, interval: str, rounds: int) -> float:
    """Return the seconds that the script itself measured."""
    command = ours.run("-q", "--interval", interval, "--", sys.executable, "-c", _SCRIPT)
    ended = subprocess.run(
        [*command, str(rounds)],
        env=ours.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if ended.returncode != 0:
        raise SkippedError(f"`sandbox run` exits {ended.returncode}: {ended.stderr.strip()[-200:]}")
    return float(ended.stdout)


def _result(what: str, pairs: Pairs, bar: float | None) -> Result:
    low, high = pairs.interval()
    slowdown = pairs.ratio - 1
    return Result(
        benchmark="slowdown",
        what=what,
        unit="%",
        ours=100 * slowdown,
        interval=(100 * (low - 1), 100 * (high - 1)),
        bar=None if bar is None else f"{100 * bar:g} %",
        ok=None if bar is None else slowdown <= bar,
        pairs=len(pairs.ours),
        details={
            "sampled_sec": statistics.median(pairs.ours),
            "unsampled_sec": statistics.median(pairs.peer),
        },
    )
