"""Why one repeat took longer than the others: what its own series and the host's counters say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sandbox.analysis.statistics_of_runs import find_outliers, median
from sandbox.records.benchmark import Repeat
from sandbox.records.light import dataclass
from sandbox.units import format_size

_COLD_BYTES = 4 << 20
_WAITED_RATIO = 0.1  # a tenth of the run more than the others waited
_THROTTLED_RATIO = 0.2
_NS_PER_USEC = 1_000
_HINTS = {
    "steal": "take the median, or a machine of its own; more --runs tell how often it happens",
    "other_load": "stop other programs, or keep the runs apart with --cpuset-cpus",
    "host_swapped": "free some memory and run again",
    "host_out_of_memory": "free some memory and run again",
    "thermal_throttled": "let the machine cool down between runs: --prepare 'sleep 10'",
}


@dataclass(frozen=True, kw_only=True)
class Outlier:
    """One repeat that is far from the others."""

    place: int
    """From 0, in the order of the repeats."""
    repeat: Repeat
    median_ns: float
    cause: str | None
    """None when nothing that was measured differs."""
    hint: str


def explain_outliers(repeats: Sequence[Repeat]) -> tuple[Outlier, ...]:
    """Return the repeats whose times are outliers, each with the likeliest cause."""
    times = [repeat.wall_ns for repeat in repeats]
    found = []
    for place in find_outliers(times):
        others = [one for index, one in enumerate(repeats) if index != place]
        cause, hint = _cause_of(repeats[place], others, is_first=place == 0)
        found.append(
            Outlier(
                place=place,
                repeat=repeats[place],
                median_ns=median(times),
                cause=cause,
                hint=hint,
            )
        )
    return tuple(found)


def _cause_of(odd: Repeat, others: Sequence[Repeat], *, is_first: bool) -> tuple[str | None, str]:
    typical_ns = median([one.wall_ns for one in others])
    unknown = "a --warmup run more would leave it out" if is_first else "more --runs, or --prepare"
    if odd.wall_ns < typical_ns:
        return None, "the others may have been disturbed: see their warnings, or take more --runs"
    read = _beyond(odd, others, lambda one: one.io_read_bytes)
    if read is not None and read > _COLD_BYTES:
        return (
            f"cold page cache: it read {format_size(round(read))} more from disk than the others",
            "use --warmup 1 for times with a warm cache, or --prepare to empty it before each run",
        )
    for code, hint in _HINTS.items():
        if code in odd.disturbances and not all(code in one.disturbances for one in others):
            return odd.disturbances[code], hint
    throttled = _beyond(odd, others, lambda one: one.throttled_ratio)
    if throttled is not None and throttled > _THROTTLED_RATIO:
        return (
            f"it was throttled in {throttled:.0%} of the periods more than the others",
            "let the program use fewer threads, or give it more with --cpus",
        )
    for what, waited, hint in _WAITS:
        share = _beyond(odd, others, lambda one, waited=waited: _share(one, waited(one)))  # type: ignore[misc]
        if share is not None and share > _WAITED_RATIO:
            return f"it waited for {what} {share:.0%} of its time more than the others", hint
    return None, unknown


_WAITS: tuple[tuple[str, Callable[[Repeat], int | None], str], ...] = (
    (
        "memory",
        lambda one: one.memory_waited_usec,
        "give it more with --memory",
    ),
    (
        "I/O",
        lambda one: one.io_waited_usec,
        "use --warmup 1, or keep other programs off the disk",
    ),
    (
        "a CPU",
        lambda one: one.cpu_waited_usec,
        "stop other programs, or keep the runs apart with --cpuset-cpus",
    ),
)


def _share(one: Repeat, waited_usec: int | None) -> float | None:
    if waited_usec is None or not one.wall_ns:
        return None
    return waited_usec * _NS_PER_USEC / one.wall_ns


def _beyond(
    odd: Repeat, others: Sequence[Repeat], figure: Callable[[Repeat], float | None]
) -> float | None:
    """Return how far a figure is above the others' median; None where it is not known."""
    own = figure(odd)
    known = [value for value in map(figure, others) if value is not None]
    return None if own is None or not known else own - median(known)
