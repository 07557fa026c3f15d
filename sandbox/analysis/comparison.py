"""Two sets of measurements side by side: their ratio, its error, and whether it is too large."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sandbox.analysis.statistics_of_runs import Statistics, statistics_of
from sandbox.records.light import dataclass


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One metric of two sides."""

    metric: str
    before: Statistics
    after: Statistics
    ratio: float | None
    """after / before of the means; None over a mean of 0."""
    error: float | None
    """Half the width of the ratio's 95 % interval; None if a side has a single figure."""

    def exceeds(self, share: float) -> bool:
        """Return whether the ratio is above 1 + `share` by more than its error."""
        if self.ratio is None:
            return False
        return self.ratio - (self.error or 0.0) > 1 + share

    @property
    def verdict(self) -> str:
        """`more`, `less`, `same` (1 lies within the error) or `unsure` (there is no error)."""
        if self.ratio is None or self.error is None:
            return "unsure"
        if abs(self.ratio - 1) <= self.error:
            return "same"
        return "more" if self.ratio > 1 else "less"


def compare(
    before: Mapping[str, Sequence[float]], after: Mapping[str, Sequence[float]]
) -> list[Comparison]:
    """Return a comparison of each metric that both sides have, in the order of `before`.

    The error of the ratio is propagated from the 95 % intervals of both means:
    ratio * sqrt((i_before / mean_before)^2 + (i_after / mean_after)^2).
    """
    return [
        _compared(metric, statistics_of(values), statistics_of(after[metric]))
        for metric, values in before.items()
        if values and after.get(metric)
    ]


def failed_gate(
    failed_after: int, found: Sequence[Comparison], over: Sequence[Comparison]
) -> list[str]:
    """Return a sentence for each reason why the side after the change does not pass.

    A run that failed may well be the faster for it, so its figures cannot pass for it; and what
    was not measured on both sides is not known to be small enough.
    """
    reasons = []
    if failed_after:
        runs = "1 run" if failed_after == 1 else f"{failed_after} runs"
        reasons.append(f"{runs} after the change failed, whatever the figures say")
    if not found:
        reasons.append("none of the metrics was measured on both sides")
    reasons += (f"the {one.metric} is {one.ratio:.3f} times that before" for one in over)
    return reasons


def _compared(metric: str, before: Statistics, after: Statistics) -> Comparison:
    ratio = error = None
    if before.mean != 0:
        ratio = after.mean / before.mean
        if before.interval is not None and after.interval is not None and after.mean != 0:
            relative = math.hypot(before.interval / before.mean, after.interval / after.mean)
            error = ratio * relative
    return Comparison(metric=metric, before=before, after=after, ratio=ratio, error=error)
