"""Two hundred sandboxes sampled ten times a second by one process, and whether that is linear.

As a display or an exporter does it, which keeps no record; with one it is measured beside it.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from contextlib import ExitStack

from _group import live_group, rare_work
from _measure import (
    Options,
    Result,
    Side,
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
_RECORDED = "recorded"


def measure(options: Options) -> Iterator[Result]:
    """Yield the share of a CPU for the most groups, and its growth from the fewest."""
    names = [f"bench-{os.getpid()}-{number}" for number in range(COUNTS[-1])]
    ticks = str(max(round(options.seconds * 1e9 / INTERVAL_NS), 5))
    grid = ("--interval-ns", str(INTERVAL_NS), "--ticks", ticks)

    def share(count: int, *, is_recorded: bool) -> float:
        return sampling(*names[:count], *grid, is_recorded=is_recorded)["cpu_share"]

    try:
        with ExitStack() as stack:
            for name in names:
                stack.enter_context(live_group(name, rare_work))
            sides: dict[str, Side] = {
                str(count): lambda count=count: share(count, is_recorded=False) for count in COUNTS
            }
            sides[_RECORDED] = lambda: share(COUNTS[-1], is_recorded=True)
            with pinned(measuring_cpu()):
                found = in_turns(sides, options.pairs)
    except SkippedError as reason:
        yield skipped("many", _WHAT, reason)
        return
    yield _share(_WHAT, found[str(COUNTS[-1])], BAR)
    yield _share(f"{_WHAT}, each with a record of its own", found[_RECORDED], None)
    fewest, most = (
        1e6 * INTERVAL_NS / 1e9 * statistics.median(found[str(count)]) / count
        for count in (COUNTS[0], COUNTS[-1])
    )
    yield Result(
        benchmark="many",
        what=f"a sample among {COUNTS[-1]} sandboxes beside one among {COUNTS[0]}",
        unit="µs",
        ours=most,
        peer_name=f"among {COUNTS[0]}",
        peer=fewest,
        ratio=most / fewest,
        bar=f"{LINEAR_BAR:g} x",
        ok=most / fewest <= LINEAR_BAR,
        details={name: [100 * value for value in values] for name, values in found.items()},
    )


def _share(what: str, values: tuple[float, ...], bar: float | None) -> Result:
    median = statistics.median(values)
    low, high = bootstrap(values, statistics.median)
    return Result(
        benchmark="many",
        what=f"{what}: share of a CPU",
        unit="%",
        ours=100 * median,
        interval=(100 * low, 100 * high),
        bar=None if bar is None else f"{100 * bar:g} %",
        ok=None if bar is None else median <= bar,
    )
