"""Peaks of phases from samples; those of the run stay the largest of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sandbox.records.sample import ABSENT
from sandbox.sampling.sampler import Peak, Sampler

MEMORY, PIDS = "memory_current_bytes", "pids"


class ScriptedReader:
    """Yields given memory and pids, one after the other."""

    fast_columns = ("cpu_usage_usec", MEMORY, PIDS)
    slow_columns = ("memory_anon_bytes",)

    def __init__(self, rows: Sequence[tuple[int, int]]) -> None:
        self._rows = list(rows)

    def read_fast(self) -> list[int]:
        return [0, *self._rows.pop(0)]

    def read_slow(self) -> list[int]:
        return [0]

    def close(self) -> None:
        pass


class Sink:
    def __init__(self) -> None:
        self.fast_rows: list[tuple[int, ...]] = []
        self.slow_rows: list[tuple[int, ...]] = []

    def fast(self, row: Sequence[int]) -> None:
        self.fast_rows.append(tuple(row))

    def slow(self, row: Sequence[int]) -> None:
        self.slow_rows.append(tuple(row))

    def close(self) -> None:
        pass


def sampler(*rows: tuple[int, int]) -> tuple[Sampler, Sink]:
    sink = Sink()
    ticks = iter(range(10, 10_000, 10))
    reader: Any = ScriptedReader(rows)
    return Sampler(reader, sink, lambda: next(ticks), cpu_clock=lambda: 0), sink


def values(peaks: dict[str, Peak]) -> dict[str, int]:
    return {column: peak.value for column, peak in peaks.items()}


def test_each_phase_has_its_own_peaks_and_the_run_the_largest() -> None:
    one, _ = sampler((5, 1), (50, 2), (7, 9), (6, 1), (20, 1))
    one.first()
    one.tick(1)
    first = one.split_peaks()
    one.tick(1)
    one.tick(1)
    one.last()

    assert values(first) == {MEMORY: 50, PIDS: 2}
    assert values(one.peaks()) == {MEMORY: 50, PIDS: 9}
    assert values(one.split_peaks()) == {MEMORY: 20, PIDS: 9}
    assert values(one.peaks()) == {MEMORY: 50, PIDS: 9}


def test_a_peak_keeps_the_time_of_its_row_across_a_split() -> None:
    one, sink = sampler((5, 1), (50, 1), (8, 1))
    one.first()
    one.tick(1)
    one.split_peaks()
    one.last()

    assert one.peaks()[MEMORY].time_ns == next(row[0] for row in sink.fast_rows if row[2] == 50)


def test_reading_now_puts_a_row_in_both_tables_that_is_no_tick() -> None:
    one, sink = sampler((5, 1), (6, 1), (7, 1))
    one.first()
    one.read_now()
    one.last()

    assert [row[2] for row in sink.fast_rows] == [5, 6, 7]
    assert len(sink.slow_rows) == 3
    assert one.overhead().ticks == 0


def test_a_phase_without_a_row_has_no_peak() -> None:
    one, _ = sampler((5, 1), (6, 1))
    one.first()
    one.split_peaks()

    assert one.split_peaks() == {}
    assert values(one.peaks()) == {MEMORY: 5, PIDS: 1}


@pytest.mark.parametrize("later", [ABSENT, 3])
def test_a_reading_that_failed_is_no_peak(later: int) -> None:
    one, _ = sampler((5, 1), (later, 1))
    one.first()
    one.split_peaks()
    one.last()

    assert values(one.split_peaks()).get(MEMORY) == (None if later == ABSENT else 3)
    assert values(one.peaks())[MEMORY] == 5
