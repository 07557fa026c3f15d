"""The busiest second and its 95th percentile, from the cumulative CPU counter, as a stream.

A window is one second long and ends at a sample; its mean is what the counter grew in it. Where
the window begins between two samples, the counter is taken to have grown evenly between them.
Since the counter is cumulative, nothing is lost in a gap: a window inside a gap has the gap's
exact mean. Peaks inside a gap, or between samples more than a second apart, stay unseen.

`max` is the largest window. `p95` is the smallest value that 95 % of the time is not above: each
window stands for the time since the sample before it, so irregular sampling does not bend it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from sandbox.units import NS_PER_SEC, USEC_PER_SEC

WINDOW_NS = NS_PER_SEC
SHORTEST_RUN_NS = 2 * WINDOW_NS
"""Below it windows say nothing: they would overlap each other almost wholly."""
_EXACT = 8_192
_BIN_USEC = 1_000  # a thousandth of a CPU, finer than what the kernel's tick can tell


class Distribution:
    """A weighted percentile in bounded memory: exact for few values, then to 0.001 CPU."""

    def __init__(self) -> None:
        self._exact: list[tuple[float, int]] = []
        self._bins: dict[int, int] = {}

    def add(self, values: Sequence[float], weights: Sequence[int]) -> None:
        """Add busy microseconds per window, each with the nanoseconds that it stands for."""
        if not self._bins and len(self._exact) + len(values) <= _EXACT:
            self._exact.extend(zip(values, weights, strict=True))
            return
        bins = self._bins
        for value, weight in [*self._exact, *zip(values, weights, strict=True)]:
            key = round(value / _BIN_USEC)
            bins[key] = bins.get(key, 0) + weight
        self._exact.clear()

    def quantile(self, share: float) -> float | None:
        """Return the smallest value that `share` of the weight is not above, or None if empty."""
        ordered: list[tuple[float, int]] = sorted(self._exact)
        if self._bins:
            ordered = [(key * float(_BIN_USEC), self._bins[key]) for key in sorted(self._bins)]
        wanted = share * sum(weight for _, weight in ordered)
        reached = 0
        for value, weight in ordered:
            reached += weight
            if reached >= wanted:
                return value
        return None


class Windows:
    """Sliding one-second windows over the counter; keeps about a second of samples."""

    def __init__(self) -> None:
        self._times: list[int] = []
        self._usage: list[int] = []
        self._distribution = Distribution()
        self._largest_usec: float | None = None

    def add(self, times: Sequence[int], usage: Sequence[int]) -> None:
        """Add samples, oldest first: times in ns, cumulative CPU time in µs.

        A counter that goes down starts anew: no window reaches across it.
        """
        falls = [i for i, (before, after) in enumerate(pairwise(usage), 1) if after < before]
        if self._usage and usage and usage[0] < self._usage[-1]:
            falls.insert(0, 0)
        begin = 0
        for fall in falls:
            self._extend(times[begin:fall], usage[begin:fall])
            self._times.clear()
            self._usage.clear()
            begin = fall
        self._extend(times[begin:], usage[begin:])

    def _extend(self, times: Sequence[int], usage: Sequence[int]) -> None:
        known = len(self._times)
        self._times.extend(times)
        self._usage.extend(usage)
        if times:
            self._slide(known)

    def _slide(self, known: int) -> None:
        """Take the windows that end at the samples from index `known` on."""
        times, usage = self._times, self._usage
        first = next(
            (i for i in range(known, len(times)) if times[i] - times[0] >= WINDOW_NS), len(times)
        )
        left, right_ns = 0, times[1] if len(times) > 1 else times[0]
        busy: list[float] = []
        append = busy.append
        for time_ns, used in zip(times[first:], usage[first:], strict=True):
            start_ns = time_ns - WINDOW_NS
            while right_ns <= start_ns:  # the samples around the start: left <= start < right
                left += 1
                right_ns = times[left + 1]
            left_ns, left_usec = times[left], usage[left]
            grown = usage[left + 1] - left_usec
            append(used - left_usec - grown * (start_ns - left_ns) / (right_ns - left_ns))
        if busy:
            self._take(busy, first)
        del times[:left], usage[:left]

    def _take(self, busy: list[float], first: int) -> None:
        ends = self._times[first - 1 :]
        self._distribution.add(busy, [end - before for before, end in pairwise(ends)])
        largest = max(busy)
        if self._largest_usec is None or largest > self._largest_usec:
            self._largest_usec = largest

    def max_cpus(self) -> float | None:
        """Return the busiest second in CPUs, or None if no whole second was seen."""
        return None if self._largest_usec is None else self._largest_usec / USEC_PER_SEC

    def p95_cpus(self) -> float | None:
        """Return the 95th percentile in CPUs, or None if no whole second was seen."""
        value = self._distribution.quantile(0.95)
        return None if value is None else value / USEC_PER_SEC
