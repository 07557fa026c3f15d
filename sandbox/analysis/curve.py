"""A run's samples as a curve of few points, for charts; a stream in bounded memory."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from itertools import pairwise

from sandbox.records.light import dataclass
from sandbox.records.result import RunResult
from sandbox.records.sample import ABSENT, TIME, Block, Table

_NS_PER_USEC = 1_000


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Equal steps of a run's time; None where nothing was sampled."""

    step_ns: int
    cpus: tuple[float | None, ...]
    """Mean CPUs of each step."""
    memory_bytes: tuple[int | None, ...]
    """Largest sample of each step."""


def find_curve(result: RunResult, blocks: Iterable[Block], points: int) -> Curve | None:
    """Return at most `points` steps over the whole run, or None if it cannot be drawn.

    There are never more steps than samples. The CPU counter is taken to grow evenly between two
    samples; memory is the largest sample of the step. A run that has no end yet has no curve.
    """
    samples = 0 if result.summary is None else result.summary.samples
    points = min(points, samples)
    if points < 2 or not result.wall_ns:  # noqa: PLR2004 - one point is no curve
        return None
    step_ns = max(result.wall_ns // points, 1)
    edges = [result.started_ns + index * step_ns for index in range(points + 1)]
    drawing = _Drawing(edges)
    for block in blocks:
        if block.table is Table.FAST:
            drawing.add(block)
    grown = drawing.usage_at_edges()
    cpus = tuple(
        None if before is None or after is None else (after - before) * _NS_PER_USEC / step_ns
        for before, after in pairwise(grown)
    )
    return Curve(step_ns=step_ns, cpus=cpus, memory_bytes=tuple(drawing.memory))


class _Drawing:
    def __init__(self, edges: list[int]) -> None:
        self._edges = edges
        self._usage: list[float] = [0.0]  # the counter at the edges reached so far
        self._last: tuple[int, int] = (edges[0], 0)
        self.memory: list[int | None] = [None] * (len(edges) - 1)

    def add(self, block: Block) -> None:
        times = block.column(TIME)
        if not times:
            return
        usage, memory = block.column("cpu_usage_usec"), block.column("memory_current_bytes")
        if usage:
            self._add_usage(times, usage)
        if memory:
            self._add_memory(times, memory)

    def _add_usage(self, times: array[int], usage: array[int]) -> None:
        points = [
            point
            for point in zip(times, usage, strict=True)
            if point[1] != ABSENT and point[0] >= self._last[0]
        ]
        known = [self._last, *points]
        at = [time_ns for time_ns, _ in known]
        while len(self._usage) < len(self._edges):
            edge = self._edges[len(self._usage)]
            right = bisect_left(at, edge)
            if right == len(at):
                break
            (t1, u1), (t0, u0) = known[right], known[max(right - 1, 0)]
            self._usage.append(u1 if t1 == t0 else u0 + (u1 - u0) * (edge - t0) / (t1 - t0))
        self._last = known[-1]

    def _add_memory(self, times: array[int], memory: array[int]) -> None:
        step_ns = self._edges[1] - self._edges[0]
        first = max((times[0] - self._edges[0]) // step_ns, 0)
        left = bisect_left(times, self._edges[0])
        for index in range(first, len(self.memory)):
            right = bisect_left(times, self._edges[index + 1])
            seen = [value for value in memory[left:right] if value != ABSENT]
            if seen:
                self.memory[index] = max(*seen, self.memory[index] or 0)
            left = right
            if left == len(times):
                break

    def usage_at_edges(self) -> list[float | None]:
        """Return the counter at every edge; the last sample may lie just before the last edge."""
        missing = len(self._edges) - len(self._usage)
        if missing == 1 and self._last[0] > self._edges[-2]:
            return [*self._usage, float(self._last[1])]
        return [*self._usage, *[None] * missing]
