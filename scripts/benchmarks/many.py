"""Two hundred sandboxes sampled ten times a second by one process, and whether that is linear."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from contextlib import ExitStack

from _group import live_group, rare_work
from _measure import (
    Options,
    Result,
    SkippedError,
    bootstrap,
    in_turns,
    measuring_cpu,
    pinned,
    skipped,
)
from tick import sampling

COUNTS = (50, 100, 200)
INTERVAL_NS = 100_000_000
BAR = 0.04
LINEAR_BAR = 1.2
"""Cost of a sample among the most groups over its cost among the fewest."""
_WHAT = f"{COUNTS[-1]} sandboxes at 10 Hz by one process, fast set"
_ROUNDS = 5


def measure(options: Options) -> Iterator[Result]:
    """Yield the share of a CPU for the most groups, and its growth from the fewest."""
    names = [f"bench-{os.getpid()}-{number}" for number in range(COUNTS[-1])]
    ticks = str(max(round(options.seconds * 1e9 / INTERVAL_NS), 5))
    grid = ("--interval-ns", str(INTERVAL_NS), "--ticks", ticks)

    def share(count: int, *more: str) -> float:
        return sampling(*names[:count], *grid, *more)["cpu_share"]

    try:
        with ExitStack() as stack:
            for name in names:
                stack.enter_context(live_group(name, rare_work))
            sides = {str(count): lambda count=count: share(count) for count in COUNTS}
            sides["unrecorded"] = lambda: share(COUNTS[-1], "--no-record")
            with pinned(measuring_cpu()):
                found = in_turns(sides, min(options.pairs, _ROUNDS))
    except SkippedError as reason:
        yield skipped("many", _WHAT, reason)
        return
    most = statistics.median(found[str(COUNTS[-1])])
    low, high = bootstrap(found[str(COUNTS[-1])], statistics.median)
    yield Result(
        benchmark="many",
        what=f"{_WHAT}, recorded: share of a CPU",
        unit="%",
        ours=100 * most,
        interval=(100 * low, 100 * high),
        bar=f"{100 * BAR:g} %",
        ok=most <= BAR,
        details={
            "unrecorded_percent": 100 * statistics.median(found["unrecorded"]),
            **{name: [100 * value for value in values] for name, values in found.items()},
        },
        note=f"{100 * statistics.median(found['unrecorded']):.2f} % unrecorded",
    )
    per_group = {count: statistics.median(found[str(count)]) / count for count in COUNTS}
    growth = per_group[COUNTS[-1]] / per_group[COUNTS[0]]
    yield Result(
        benchmark="many",
        what=f"cost of one of {COUNTS[-1]} beside one of {COUNTS[0]}",
        unit="µs a sample",
        ours=1e6 * per_group[COUNTS[-1]] * INTERVAL_NS / 1e9,
        peer_name=f"of {COUNTS[0]}",
        peer=1e6 * per_group[COUNTS[0]] * INTERVAL_NS / 1e9,
        ratio=growth,
        bar=f"{LINEAR_BAR:g} x",
        ok=growth <= LINEAR_BAR,
    )
