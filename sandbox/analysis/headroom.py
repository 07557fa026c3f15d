"""From the trials of a budget to the limit that a careful engineer would set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sandbox.records.budget import Trial

HEADROOM_RATIO = 1.1
CLOSE_TO_UNLIMITED_RATIO = 1.1


def slowdowns(trials: Iterable[Trial], unlimited_ns: int) -> dict[int, float]:
    """Return for each limit that was always enough its slowest wall time / that without limit."""
    found: dict[int, float] = {}
    failed = set()
    for trial in trials:
        if trial.limit is None:
            continue
        if not trial.is_enough or trial.wall_ns is None:
            failed.add(trial.limit)
            continue
        ratio = trial.wall_ns / unlimited_ns
        found[trial.limit] = max(ratio, found.get(trial.limit, 0.0))
    return {limit: found[limit] for limit in sorted(found.keys() - failed)}


def recommend(
    trials: Sequence[Trial], *, smallest: int, step: int, unlimited_ns: int | None
) -> int:
    """Return a limit with a tenth of headroom, rounded up to a multiple of `step`.

    The headroom is on the smallest limit from which on no larger one that was tried is more than
    a tenth slower than without a limit; without `unlimited_ns` on `smallest` itself.
    """
    base = smallest
    if unlimited_ns is not None:
        fast: int | None = None
        for limit, ratio in reversed(slowdowns(trials, unlimited_ns).items()):
            if limit < smallest or ratio > CLOSE_TO_UNLIMITED_RATIO:
                break
            fast = limit
        base = smallest if fast is None else fast
    return -(-round(base * HEADROOM_RATIO) // step) * step


def middle_wall_ns(trials: Sequence[Trial]) -> int:
    """Return the median wall time of trials that ended well; the first is left out as cold.

    Raises:
        ValueError: none of them has a wall time.
    """
    walls = sorted(trial.wall_ns for trial in trials[1:] or trials if trial.wall_ns is not None)
    if not walls:
        raise ValueError("no trial has a wall time")
    return walls[(len(walls) - 1) // 2]
