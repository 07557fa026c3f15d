"""Which rows are read when, and what a sampler remembers, by a reader that plays back."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import StoreError
from sandbox.records.sample import ABSENT
from sandbox.sampling.sampler import Peak, Sampler

MS = 1_000_000
FAST = ("cpu_usage_usec", "memory_current_bytes", "pids")
SLOW = ("memory_anon_bytes", "memory_file_bytes")


class Clock:
    """Says what it is told to say."""

    def __init__(self, now_ns: int = 1_000_000_000) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns


class Playback:
    """A reader whose next fast row is `row`; counts what is asked of it."""

    fast_columns: tuple[str, ...] = FAST
    slow_columns: tuple[str, ...] = SLOW

    def __init__(self) -> None:
        self.row = [0, 1000, 1]
        self.slow_reads = 0
        self.fast_error: OSError | None = None
        self.slow_error: OSError | None = None

    def read_fast(self) -> list[int]:
        if self.fast_error is not None:
            raise self.fast_error
        return list(self.row)

    def read_slow(self) -> list[int]:
        if self.slow_error is not None:
            raise self.slow_error
        self.slow_reads += 1
        return [1, 2]

    def close(self) -> None:
        pass


class Rows:
    """A sink that keeps everything, or fails as told."""

    def __init__(self) -> None:
        self.fast_rows: list[Sequence[int]] = []
        self.slow_rows: list[Sequence[int]] = []
        self.error: Exception | None = None

    def fast(self, row: Sequence[int]) -> None:
        if self.error is not None:
            raise self.error
        self.fast_rows.append(row)

    def slow(self, row: Sequence[int]) -> None:
        if self.error is not None:
            raise self.error
        self.slow_rows.append(row)

    def close(self) -> None:
        pass


class Rig:
    """A sampler at `interval_ns` and all that it touches."""

    def __init__(self, interval_ns: int = 10 * MS, reader: Playback | None = None) -> None:
        self.clock = Clock()
        self.cpu_clock = Clock(0)
        self.reader = reader or Playback()
        self.rows = Rows()
        self.interval_ns = interval_ns
        self.sampler = Sampler(
            self.reader, self.rows, self.clock, interval_ns, cpu_clock=self.cpu_clock
        )

    def tick(self, expirations: int = 1, *, late_ns: int = 0, memory: int | None = None) -> None:
        if memory is not None:
            self.reader.row[1] = memory
        self.clock.now_ns += expirations * self.interval_ns + late_ns
        self.sampler.tick(expirations)
        self.clock.now_ns -= late_ns


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.sampler.first()
    return rig


def test_the_first_sample_is_a_row_of_both_tables_at_one_time(rig: Rig) -> None:
    assert rig.rows.fast_rows == [[1_000_000_000, 0, 1000, 1]]
    assert rig.rows.slow_rows == [[1_000_000_000, 1, 2]]
    assert rig.sampler.start_ns == 1_000_000_000


def test_the_last_sample_is_a_row_of_both_tables_wherever_the_grid_is(rig: Rig) -> None:
    rig.clock.now_ns += 3 * MS

    rig.sampler.last()

    assert rig.rows.fast_rows[-1][0] == rig.rows.slow_rows[-1][0] == 1_003_000_000
    assert rig.sampler.overhead().ticks == 0


def test_a_row_is_the_time_and_what_was_read(rig: Rig) -> None:
    rig.reader.row = [5, 1010, 2]
    rig.tick()
    rig.clock.now_ns += 1
    rig.sampler.last()

    assert rig.rows.fast_rows[1:] == [[1_010_000_000, 5, 1010, 2], [1_010_000_001, 5, 1010, 2]]


def test_no_row_waits_longer_than_for_the_next_slow_one(rig: Rig) -> None:
    for tick in range(1, 40):
        rig.tick()
        newest_ns = rig.rows.fast_rows[-1][0]

        assert rig.clock.now_ns - newest_ns < 100 * MS
        assert len(rig.rows.fast_rows) == 1 + tick // 10 * 10
        assert rig.rows.slow_rows[-1][0] == newest_ns


def test_what_is_asked_between_two_slow_rows_counts_the_rows_that_wait(rig: Rig) -> None:
    rig.tick(late_ns=3 * MS, memory=1001)

    assert rig.sampler.overhead().ticks == 1
    assert rig.sampler.overhead().max_late_ns == 3 * MS
    assert rig.sampler.peaks()["memory_current_bytes"].value == 1001


@pytest.mark.parametrize(
    ("interval_ms", "ticks", "slow_rows"),
    [(1, 1000, 10), (10, 100, 10), (30, 30, 10), (100, 10, 10), (1000, 7, 7), (60_000, 3, 3)],
)
def test_the_slow_table_is_read_ten_times_a_second_or_at_each_tick(
    interval_ms: int, ticks: int, slow_rows: int
) -> None:
    rig = Rig(interval_ms * MS)
    rig.sampler.first()
    for _ in range(ticks):
        rig.tick()

    assert len(rig.rows.fast_rows) == 1 + ticks
    assert len(rig.rows.slow_rows) == 1 + slow_rows


def test_missed_ticks_do_not_thin_out_the_slow_table(rig: Rig) -> None:
    for _ in range(20):
        rig.tick(5)

    assert len(rig.rows.slow_rows) == 1 + 10


def test_growth_above_a_twentieth_brings_a_slow_row_at_once(rig: Rig) -> None:
    rig.tick(memory=1050)
    assert rig.reader.slow_reads == 1
    rig.tick(memory=1051)
    assert rig.reader.slow_reads == 2
    rig.tick(memory=1103)  # below 1051 + 5 %
    assert rig.reader.slow_reads == 2


def test_growth_brings_at_most_one_slow_row_a_tick(rig: Rig) -> None:
    for step in range(1, 31):
        rig.tick(memory=1000 * 2**step)

    assert rig.reader.slow_reads == 31


def test_memory_that_was_returned_may_grow_again_within_a_tenth_of_a_second(rig: Rig) -> None:
    rig.tick(memory=10_000)
    for _ in range(10):
        rig.tick(memory=100)
    before = rig.reader.slow_reads
    rig.tick(memory=200)

    assert rig.reader.slow_reads == before + 1


def test_a_host_without_memory_gets_its_slow_rows_by_time_alone() -> None:
    reader = Playback()
    reader.fast_columns = ("cpu_usage_usec",)
    reader.row = [7]
    rig = Rig(reader=reader)
    rig.sampler.first()
    for _ in range(20):
        rig.tick()

    assert len(rig.rows.slow_rows) == 3
    assert rig.sampler.peaks() == {}


def test_the_peak_of_each_gauge_is_kept_with_its_time(rig: Rig) -> None:
    rig.reader.row = [10, 5000, 2]
    rig.tick()
    rig.reader.row = [20, 3000, 9]
    rig.tick()
    rig.reader.row = [30, 5000, 1]
    rig.tick()

    assert rig.sampler.peaks() == {
        "memory_current_bytes": Peak(5000, 1_010_000_000),
        "pids": Peak(9, 1_020_000_000),
    }


@given(st.lists(st.integers(min_value=0, max_value=2**62), min_size=1, max_size=50))
def test_no_row_is_above_the_peak_and_the_peak_is_a_row(values: list[int]) -> None:
    rig = Rig()
    rig.reader.row[1] = values[0]
    rig.sampler.first()
    for value in values[1:]:
        rig.tick(memory=value)

    peak = rig.sampler.peaks()["memory_current_bytes"]
    assert peak.value == max(values)
    assert [peak.time_ns, peak.value] in [[row[0], row[2]] for row in rig.rows.fast_rows]


def test_a_gauge_that_was_never_read_has_no_peak() -> None:
    rig = Rig()
    rig.reader.row = [0, ABSENT, 3]
    rig.sampler.first()
    rig.tick()

    assert rig.sampler.peaks() == {"pids": Peak(3, 1_000_000_000)}
    assert rig.reader.slow_reads == 1


def test_ticks_and_missed_ticks_are_counted_apart(rig: Rig) -> None:
    for expirations in (1, 1, 4, 1, 2):
        rig.tick(expirations)

    overhead = rig.sampler.overhead()
    assert (overhead.ticks, overhead.missed_ticks) == (5, 4)


def test_lateness_is_the_distance_from_the_point_of_the_grid_that_was_due(rig: Rig) -> None:
    rig.tick(late_ns=2 * MS)
    assert rig.sampler.overhead().max_late_ns == 2 * MS
    rig.tick(3, late_ns=1 * MS)  # two points went by unserved, 20 ms before this one
    assert rig.sampler.overhead().max_late_ns == 21 * MS


def test_lateness_does_not_count_a_gap_whose_ticks_were_dropped(rig: Rig) -> None:
    rig.clock.now_ns += 700 * MS
    rig.tick()

    assert rig.sampler.overhead().max_late_ns == 0
    assert rig.sampler.overhead().missed_ticks == 0


def test_overhead_is_the_cpu_time_between_the_first_and_the_last_sample(rig: Rig) -> None:
    rig.cpu_clock.now_ns = 7_654_321
    rig.sampler.last()
    rig.cpu_clock.now_ns = 99_000_000

    assert rig.sampler.overhead().cpu_usec == 7654


def test_overhead_of_a_run_that_goes_on_is_counted_until_now(rig: Rig) -> None:
    rig.cpu_clock.now_ns = 5_000_000

    assert rig.sampler.overhead().cpu_usec == 5000


def test_a_group_that_vanishes_leaves_one_empty_row_and_a_sentence(rig: Rig) -> None:
    rig.tick()
    rig.reader.fast_error = OSError(errno.ENODEV, "No such device")
    for _ in range(5):
        rig.tick()
    rig.sampler.last()

    assert [row[1] for row in rig.rows.fast_rows] == [0, 0, ABSENT]
    assert rig.rows.fast_rows[-1] == [1_020_000_000, ABSENT, ABSENT, ABSENT]
    assert rig.sampler.problem == (
        "the run's counters could not be read from 20.0 ms on: ENODEV, its group was removed"
    )


def test_a_slow_file_that_fails_leaves_one_empty_row_and_the_fast_table_goes_on(rig: Rig) -> None:
    rig.reader.slow_error = OSError(errno.EIO, "Input/output error")
    for _ in range(30):
        rig.tick()

    assert len(rig.rows.fast_rows) == 31
    assert rig.rows.slow_rows[1:] == [[1_100_000_000, ABSENT, ABSENT]]
    assert rig.sampler.problem == "the run's counters could not be read from 100.0 ms on: EIO"


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), StoreError("the disk is full")]
)
def test_a_record_that_cannot_be_written_costs_the_record_alone(rig: Rig, error: Exception) -> None:
    rig.rows.error = error
    rig.tick(memory=9000)
    rig.rows.error = None
    rig.tick(memory=8000)

    assert len(rig.rows.fast_rows) == 1  # half a record would be worse than its end
    assert rig.sampler.peaks()["memory_current_bytes"].value == 9000
    assert rig.sampler.problem == f"the samples are lost from 10.0 ms on: {error}"
    assert rig.sampler.overhead().ticks == 2


def test_an_empty_row_that_cannot_be_written_is_no_second_failure(rig: Rig) -> None:
    rig.reader.fast_error = OSError(errno.ENODEV, "No such device")
    rig.rows.error = StoreError("the disk is full")
    rig.tick()

    assert rig.sampler.problem == "the samples are lost from 10.0 ms on: the disk is full"


def test_the_cpu_time_can_be_asked_for_without_a_row(rig: Rig) -> None:
    rig.reader.row[0] = 1234

    assert rig.sampler.cpu_usage_usec() == 1234
    assert len(rig.rows.fast_rows) == 1


def _no_column(reader: Playback) -> None:
    reader.fast_columns = ("pids",)
    reader.row = [1]


def _absent(reader: Playback) -> None:
    reader.row[0] = ABSENT


def _gone(reader: Playback) -> None:
    reader.fast_error = OSError(errno.ENODEV, "No such device")


@pytest.mark.parametrize("lose", [_no_column, _absent, _gone])
def test_a_cpu_time_that_cannot_be_read_is_none(lose: Callable[[Playback], None]) -> None:
    reader = Playback()
    lose(reader)

    assert Rig(reader=reader).sampler.cpu_usage_usec() is None


def test_a_row_is_not_changed_after_it_was_handed_over(rig: Rig) -> None:
    copies = [tuple(row) for row in rig.rows.fast_rows]
    for step in range(5):
        rig.tick(memory=step)
    rig.sampler.last()

    assert [tuple(row) for row in rig.rows.fast_rows[:1]] == copies
    assert len({id(row) for row in rig.rows.fast_rows}) == 7
