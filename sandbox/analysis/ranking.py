"""Who is faster: ranks with ties, how far two rankings agree, and where more stops helping."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

from sandbox.records.light import dataclass

_FEWEST_FOR_KNEE = 3


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean and half the width of its confidence interval; None: a single figure has none."""

    mean: float
    interval: float | None

    def overlaps(self, other: Estimate) -> bool:
        """Return whether the intervals share a value; without an interval a mean is a point."""
        return abs(self.mean - other.mean) <= (self.interval or 0.0) + (other.interval or 0.0)


def rank(estimates: Mapping[str, Estimate]) -> dict[str, tuple[int, bool]]:
    """Return for each name its rank, the smallest mean first, and whether it is a tie.

    A tie: its interval overlaps that of a neighbour. The tied share the best of their ranks: each
    is compared with the first of its group, so that a long chain does not tie both its ends.
    """
    ordered = sorted(estimates, key=lambda name: (estimates[name].mean, name))
    ranks: dict[str, tuple[int, bool]] = {}
    group: list[str] = []
    for place, name in enumerate(ordered, start=1):
        if group and estimates[name].overlaps(estimates[group[0]]):
            group.append(name)
            best = ranks[group[0]][0]
            ranks[group[0]] = (best, True)
            ranks[name] = (best, True)
        else:
            group = [name]
            ranks[name] = (place, False)
    return ranks


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Kendall's tau-b of paired values: 1 same order, -1 reversed.

    tau-b = (concordant - discordant) / sqrt((pairs - ties in first) (pairs - ties in second)),
    after Kendall (1945). None where one side has nothing but ties, or fewer than two values.

    Raises:
        ValueError: the lengths differ.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} values cannot be paired with {len(second)}")
    score = untied_first = untied_second = 0
    for a, b in combinations(range(len(first)), 2):
        one, two = _sign(first[a] - first[b]), _sign(second[a] - second[b])
        score += one * two
        untied_first += one != 0
        untied_second += two != 0
    if not untied_first or not untied_second:
        return None
    return score / math.sqrt(untied_first * untied_second)


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def knee(points: Sequence[tuple[float, float]]) -> int | None:
    """Return the place of the knee of a falling curve: from there on more helps little.

    The point furthest below the straight line from the first to the last, both axes scaled to
    0 ... 1 (Satopaa et al., "Finding a Kneedle in a Haystack", 2011). None for fewer than three
    points, or where the curve does not fall or lies nowhere below that line.
    """
    if len(points) < _FEWEST_FOR_KNEE:
        return None
    (x_first, y_first), (x_last, y_last) = points[0], points[-1]
    if x_last <= x_first or y_last >= y_first:
        return None
    below = [
        (y_first - y) / (y_first - y_last) - (x - x_first) / (x_last - x_first) for x, y in points
    ]
    best = max(range(len(points)), key=lambda place: below[place])
    return best if below[best] > 0 else None
