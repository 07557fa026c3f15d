"""The statistics of repeats: mean, deviation, median, interval of the mean, ratios, outliers.

Mean, deviation, median and the scores of outliers are defined as hyperfine defines them, so that
figures can stand beside each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from sandbox.records.light import dataclass

CONFIDENCE = 0.95
OUTLIER_SCORE = 14.826
"""Ten standard deviations, if times were normal: 1.4826 median deviations are one."""

_SMALLEST_OUTLIER_RATIO = 0.01  # a hundredth of the median is no finding, however even the others
_FEWEST = 5  # the middle of fewer is chance
_BISECTIONS = 80
_LARGEST_T = 1e4


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Of some figures in their own unit."""

    count: int
    mean: float
    stddev: float | None
    """Of the sample (n - 1); None for a single figure."""
    median: float
    minimum: float
    maximum: float
    interval: float | None
    """Half the width of the 95 % confidence interval of the mean, by Student's t."""


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """How many times one mean is another."""

    value: float
    stddev: float | None


def statistics_of(values: Sequence[float]) -> Statistics:
    """Return the statistics of at least one figure."""
    count = len(values)
    mean = math.fsum(values) / count
    stddev = None
    if count > 1:
        stddev = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    return Statistics(
        count=count,
        mean=mean,
        stddev=stddev,
        median=median(values),
        minimum=min(values),
        maximum=max(values),
        interval=None
        if stddev is None
        else student_t(CONFIDENCE, count - 1) * stddev / math.sqrt(count),
    )


def median(values: Sequence[float]) -> float:
    """Return the middle figure, or the mean of the two in the middle."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def ratio_of(value: Statistics, reference: Statistics) -> Ratio | None:
    """Return value / reference with its deviation, as errors propagate; None over a zero mean."""
    if reference.mean == 0 or value.mean == 0:
        return None
    ratio = value.mean / reference.mean
    if value.stddev is None or reference.stddev is None:
        return Ratio(value=ratio, stddev=None)
    relative = math.hypot(value.stddev / value.mean, reference.stddev / reference.mean)
    return Ratio(value=ratio, stddev=ratio * relative)


def outlier_scores(values: Sequence[float]) -> tuple[float, ...]:
    """Return the distance of each figure from the median, in median absolute deviations."""
    middle = median(values)
    deviation = median([abs(value - middle) for value in values]) or math.ulp(1.0)
    return tuple((value - middle) / deviation for value in values)


def find_outliers(values: Sequence[float]) -> tuple[int, ...]:
    """Return the places of figures that are far from the others; of fewer than five none is."""
    if len(values) < _FEWEST:
        return ()
    smallest = _SMALLEST_OUTLIER_RATIO * median(values)
    middle = median(values)
    return tuple(
        place
        for place, (value, score) in enumerate(zip(values, outlier_scores(values), strict=True))
        if abs(score) > OUTLIER_SCORE and abs(value - middle) > smallest
    )


def student_t(confidence: float, freedom: int) -> float:
    """Return the t that a share `confidence` of Student's distribution lies within, both sides."""
    low, high = 0.0, _LARGEST_T
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if _share_within(middle, freedom) < confidence:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _share_within(t: float, freedom: int) -> float:
    """Return how much of Student's distribution lies within -t and t: its finite series."""
    angle = math.atan2(t, math.sqrt(freedom))
    cosine2 = math.cos(angle) ** 2
    odd = freedom % 2
    term = total = math.cos(angle) if odd else 1.0
    steps = range(3 if odd else 2, freedom, 2)
    for _, step in pairwise((0, *steps)):
        term *= cosine2 * (step - 1) / step
        total += term
    if not odd:
        return math.sin(angle) * total
    series = 0.0 if freedom == 1 else math.sin(angle) * total
    return 2 / math.pi * (angle + series)
