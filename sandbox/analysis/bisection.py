"""The smallest value that passes a test which is dear and may waver near its border."""

from __future__ import annotations

from collections.abc import Callable

from sandbox.records.light import dataclass


@dataclass(frozen=True, kw_only=True)
class Border:
    """Where failing ends and passing begins."""

    smallest: int
    """It passed at its first try, and if `is_sharp` at each repeat."""
    largest_failing: int | None
    """One step below, where it failed; None: `smallest` is the floor."""
    is_sharp: bool
    """Whether all repeats agreed with the first try."""


def find_border(
    passes: Callable[[int], bool], *, floor: int, passing: int, step: int, proofs: int
) -> Border:
    """Bisect multiples of `step` from `floor` up to `passing`, which has passed already.

    Each side of the border is tried `proofs` more times. Where the lower side then passes even
    once, or the upper fails, the border is not sharp; the upper side is moved up until it passes
    each time, or to `passing`. About log2((passing - floor) / step) + 2 * `proofs` tries.

    Args:
        passes: Tries one value.
        floor: The smallest value that makes sense; rounded up to a multiple of `step`.
        passing: A value known to pass; rounded up likewise.
        step: How far apart the values are that are tried.
        proofs: How often each side is tried again.
    """
    lowest, top = -(-floor // step), -(-passing // step)
    below, good = lowest - 1, max(top, lowest)
    top = good
    while good - below > 1:
        middle = (below + good) // 2
        if passes(middle * step):
            good = middle
        else:
            below = middle
    is_sharp = True
    while not _passes_always(passes, good * step, proofs):
        is_sharp = False
        if good == top:
            break  # nothing larger is known to be better
        below, good = good, good + 1
    if below < lowest:
        return Border(smallest=good * step, largest_failing=None, is_sharp=is_sharp)
    if is_sharp:
        is_sharp = not any(passes(below * step) for _ in range(proofs))
    return Border(smallest=good * step, largest_failing=below * step, is_sharp=is_sharp)


def _passes_always(passes: Callable[[int], bool], value: int, times: int) -> bool:
    return all(passes(value) for _ in range(times))
