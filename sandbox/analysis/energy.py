"""Readings of energy counters to energy; a counter starts again at 0 above its range."""

from __future__ import annotations

_MOST_WATTS = 1_000  # no package of today takes as much for longer than a moment
_NS_PER_SEC = 1_000_000_000
_UJ_PER_JOULE = 1_000_000
_MARGIN = 2  # a busy host may read this many times later than asked


def energy_between(before_uj: int, now_uj: int, range_uj: int) -> int:
    """Return the microjoules between two readings that are at most one start anew apart."""
    used_uj = now_uj - before_uj
    return used_uj if used_uj >= 0 else used_uj + range_uj


def longest_gap_ns(range_uj: int) -> int:
    """Return the time within which a counter cannot start anew twice."""
    return range_uj * _NS_PER_SEC // (_MOST_WATTS * _UJ_PER_JOULE)


def reading_interval_ns(range_uj: int) -> int:
    """Return how often to read a counter so that no start anew is missed, at least 1 s."""
    return max(longest_gap_ns(range_uj) // _MARGIN, _NS_PER_SEC)
