"""Taking samples: nothing is lost, nothing is unbounded, and no disk can stop a run."""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.records.sample import ABSENT, SampleSink, Table
from sandbox.store import samples
from sandbox.store.samples import SampleWriter
from sandbox.store.scan import read_blocks
from sandbox.store.targets import FileTarget

FAST = ("time_ns", "cpu_usage_usec", "memory_current_bytes", "pids")
SLOW = ("time_ns", "processes")
COLUMNS = {Table.FAST: FAST, Table.SLOW: SLOW}
TICK_NS = 10_000_000


class FailingFile(FileTarget):
    """A file on a disk that can be full."""

    room: int | None = None

    def append(self, data: bytes) -> None:
        """Take what there is room for."""
        if self.room is not None:
            if self.room < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.room -= len(data)
        super().append(data)

    def sibling(self) -> FileTarget:
        """No second file on a full disk either."""
        if self.room is not None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().sibling()


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read here comes from the file, as that of a long run does."""
    monkeypatch.setattr(samples, "_KEPT_ROWS", 0)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    """The descriptor of an empty directory."""
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


@pytest.fixture
def file(folder: int) -> FailingFile:
    """A file that works until it is told not to."""
    return FailingFile(folder, "samples", ".samples.new")


def curve(count: int, start_ns: int = 1_000, step_ns: int = TICK_NS) -> list[list[int]]:
    """Rows as a run makes them."""
    dice = random.Random(count)
    rows, usage, memory = [], 0, 50 << 20
    for index in range(count):
        usage += dice.choice((0, 9_800, 10_050))
        memory += dice.choice((0, 4096, -4096, 1 << 20))
        rows.append([start_ns + index * step_ns + dice.randint(0, 90_000), usage, memory, 3])
    return rows


def stored(writer: SampleWriter, table: Table = Table.FAST) -> list[list[int]]:
    """Return the rows of one table."""
    return [list(row) for block in writer.blocks() if block.table is table for row in block.rows()]


def on_disk(path: Path) -> list[list[int]]:
    """Return the fast rows of a file, as another process sees them."""
    blocks = read_blocks(path)
    rows = [list(row) for block in blocks if block.table is Table.FAST for row in block.rows()]
    assert blocks.damaged == 0
    return rows


def test_it_is_a_sample_sink(file: FailingFile) -> None:
    sink: SampleSink = SampleWriter(file, COLUMNS)
    sink.close()


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1)), max_size=60))
def test_any_rows_come_back_in_order(values: list[tuple[bool, int]]) -> None:
    writer = SampleWriter(None, COLUMNS)
    fast, slow = [], []
    for index, (is_fast, value) in enumerate(values):
        if is_fast:
            fast.append([value, index, value, ABSENT])
            writer.fast(fast[-1])
        else:
            slow.append([value, index])
            writer.slow(slow[-1])
    writer.close()
    assert stored(writer) == fast
    assert stored(writer, Table.SLOW) == slow


def test_no_more_than_a_second_is_held_back(file: FailingFile, tmp_path: Path) -> None:
    writer = SampleWriter(file, COLUMNS)
    for count, row in enumerate(curve(350), 1):
        writer.fast(row)
        assert count - len(on_disk(tmp_path / "samples")) <= 101
    writer.release()  # as if it was killed: nothing is flushed
    assert len(on_disk(tmp_path / "samples")) >= 300


def test_with_long_intervals_each_row_is_written_at_once(file: FailingFile, tmp_path: Path) -> None:
    writer = SampleWriter(file, COLUMNS)
    rows = curve(5, step_ns=300 * 10**9)
    for count, row in enumerate(rows, 1):
        writer.fast(row)
        writer.slow([row[0], 2])
        assert on_disk(tmp_path / "samples") == rows[:count]
        assert len(stored(writer, Table.SLOW)) == count
    writer.release()


def test_a_clock_that_stands_still_fills_no_memory(file: FailingFile) -> None:
    writer = SampleWriter(file, COLUMNS)
    rows = [[7, index, 0, 0] for index in range(10_000)]
    for row in rows:
        writer.fast(row)
    assert len(stored(writer)) >= 8_000
    writer.close()
    assert stored(writer) == rows
    writer.release()


def test_columns_may_be_given_without_the_time() -> None:
    writer = SampleWriter(None, {Table.FAST: FAST[1:], Table.SLOW: ()})
    writer.fast([1, 2, 3, 4])
    writer.slow([1])
    writer.close()
    assert [block.columns for block in writer.blocks()] == [FAST, ("time_ns",)]


def test_a_row_of_the_wrong_width_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="3 values for 4 columns"):
        SampleWriter(None, COLUMNS).fast([1, 2, 3])


def test_a_number_beyond_63_bits_is_absent_and_the_rest_of_the_row_is_kept() -> None:
    writer = SampleWriter(None, COLUMNS)
    writer.fast([1, 2, 3, 4])
    writer.fast([2, 1 << 64, -(1 << 70), 4])
    writer.fast((3, 2, 3, 4))
    writer.close()
    assert stored(writer) == [[1, 2, 3, 4], [2, ABSENT, ABSENT, 4], [3, 2, 3, 4]]


# --- bounds ---------------------------------------------------------------------------------------


def run_into_cap(writer: SampleWriter, rows: list[list[int]], path: Path | None = None) -> int:
    """Pass all rows and return the largest size that the file had."""
    largest = 0
    for row in rows:
        writer.fast(row)
        if path is not None:
            largest = max(largest, path.stat().st_size)
    writer.close()
    return largest


def test_the_file_never_passes_its_cap_and_keeps_the_first_and_the_last_row(
    file: FailingFile, tmp_path: Path
) -> None:
    strides: list[int] = []
    writer = SampleWriter(file, COLUMNS, cap_bytes=20_000, on_thinned=strides.append)
    rows = curve(20_000)
    assert run_into_cap(writer, rows, tmp_path / "samples") <= 20_000
    writer.release()

    kept = on_disk(tmp_path / "samples")
    assert strides == [2**power for power in range(1, len(strides) + 1)]
    assert len(strides) >= 2
    assert kept[0] == rows[0]
    assert kept[-1] == rows[-1]
    every = {tuple(row) for row in rows}
    assert all(tuple(row) in every for row in kept)
    assert kept == sorted(kept)
    assert len(kept) > 20_000 / strides[-1] / 2
    longest_ns = max(after[0] - before[0] for before, after in pairwise(kept))
    assert longest_ns <= 2 * strides[-1] * (TICK_NS + 90_000)
    assert [path.name for path in tmp_path.iterdir()] == ["samples"]


def test_thinning_keeps_both_tables(file: FailingFile) -> None:
    writer = SampleWriter(file, COLUMNS, cap_bytes=20_000)
    rows = curve(10_000)
    for index, row in enumerate(rows):
        writer.fast(row)
        if index % 10 == 0:
            writer.slow([row[0], index])
    writer.close()
    slow = stored(writer, Table.SLOW)
    assert slow[0] == [rows[0][0], 0]
    assert slow[-1] == [rows[9_990][0], 9_990]
    assert slow == sorted(slow)
    assert 50 < len(slow) < 1_000
    writer.release()


def test_thinning_one_row_blocks_merges_them(file: FailingFile, tmp_path: Path) -> None:
    writer = SampleWriter(file, COLUMNS, cap_bytes=20_000)
    rows = curve(3_000, step_ns=5 * 10**9)
    assert run_into_cap(writer, rows, tmp_path / "samples") <= 20_000
    assert stored(writer)[0] == rows[0]
    assert stored(writer)[-1] == rows[-1]
    writer.release()


def test_thinning_never_stops_the_sampler_for_long(file: FailingFile) -> None:
    writer = SampleWriter(file, COLUMNS, cap_bytes=400_000)
    slowest = 0.0
    for row in curve(120_000):
        began = time.thread_time()
        writer.fast(row)
        slowest = max(slowest, time.thread_time() - began)
    writer.close()
    assert writer._stride > 1
    # All at once it would be some 100 ms.
    assert slowest < 0.05
    writer.release()


def test_memory_has_a_cap_too() -> None:
    strides: list[int] = []
    writer = SampleWriter(None, COLUMNS, memory_cap_bytes=20_000, on_thinned=strides.append)
    rows = curve(20_000)
    largest = 0
    for row in rows:
        writer.fast(row)
        largest = max(largest, writer._memory._target.size)
    writer.close()
    assert largest <= 20_000
    assert strides
    assert stored(writer)[0] == rows[0]
    assert stored(writer)[-1] == rows[-1]


def test_a_thinning_that_finds_no_room_loses_nothing_and_is_tried_again(
    file: FailingFile, tmp_path: Path
) -> None:
    strides: list[int] = []
    writer = SampleWriter(file, COLUMNS, cap_bytes=30_000, on_thinned=strides.append)
    rows = curve(30_000)
    for row in rows[:3_000]:
        writer.fast(row)
    size = (tmp_path / "samples").stat().st_size
    assert not strides
    file.room = 29_500 - size  # it can grow, but never have a second file beside it
    for row in rows[3_000:12_000]:
        writer.fast(row)
    assert (tmp_path / "samples").stat().st_size <= 30_000
    assert not strides  # what did not fit waits in memory, every row of it
    assert stored(writer) == rows[: len(stored(writer))]
    file.room = None
    for row in rows[12_000:]:
        writer.fast(row)
    writer.close()
    kept = on_disk(tmp_path / "samples")
    assert strides[0] == 2
    assert (tmp_path / "samples").stat().st_size <= 30_000
    assert kept[0] == rows[0]
    assert kept[-1] == rows[-1]
    assert kept == sorted(kept)
    assert not writer.is_waiting
    writer.release()


# --- disks that fail ------------------------------------------------------------------------------


def test_what_a_full_disk_refuses_waits_in_memory(file: FailingFile, tmp_path: Path) -> None:
    writer = SampleWriter(file, COLUMNS)
    rows = curve(1_000)
    for row in rows[:500]:
        writer.fast(row)
    file.room = 0
    for row in rows[500:]:
        writer.fast(row)
    writer.close()
    assert stored(writer) == rows
    assert writer.is_waiting
    assert writer.error is not None
    assert writer.error.errno == errno.ENOSPC
    writer.release()
    kept = on_disk(tmp_path / "samples")
    assert kept == rows[: len(kept)]
    assert 400 < len(kept) < 500


def test_when_there_is_room_again_nothing_is_missing(file: FailingFile, tmp_path: Path) -> None:
    writer = SampleWriter(file, COLUMNS)
    rows = curve(3_000)
    for row in rows[:1_000]:
        writer.fast(row)
    file.room = 0
    for row in rows[1_000:2_000]:
        writer.fast(row)
    file.room = None
    for row in rows[2_000:]:
        writer.fast(row)
    writer.close()
    assert not writer.is_waiting
    assert writer.error is not None
    writer.release()
    assert on_disk(tmp_path / "samples") == rows


def test_a_disk_that_is_full_from_the_start_may_still_get_room(
    file: FailingFile, tmp_path: Path
) -> None:
    file.room = 0
    writer = SampleWriter(file, COLUMNS)
    rows = curve(500)
    for row in rows[:250]:
        writer.fast(row)
    assert (tmp_path / "samples").read_bytes() == b""
    file.room = None
    for row in rows[250:]:
        writer.fast(row)
    writer.close()
    writer.release()
    assert on_disk(tmp_path / "samples") == rows


@settings(deadline=None)
@given(rooms=st.lists(st.sampled_from((None, 0, 150, 400, 1_000)), min_size=1, max_size=12))
def test_whatever_the_disk_does_no_row_is_lost(
    rooms: list[int | None], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("disk")
    fd = os.open(folder, os.O_RDONLY)
    try:
        file = FailingFile(fd, "samples", ".samples.new")
        writer = SampleWriter(file, COLUMNS)
        rows = curve(len(rooms) * 150)
        for index, row in enumerate(rows):
            file.room = rooms[index // 150] if index % 150 == 0 else file.room
            writer.fast(row)
        writer.close()
        assert stored(writer) == rows
        assert (writer.error is None) <= (not writer.is_waiting)
        writer.release()
    finally:
        os.close(fd)


@pytest.mark.parametrize("rows", [1, 99, 250, 251, 1_000])
def test_a_short_run_is_read_as_its_file_says_whether_kept_or_not(
    file: FailingFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(samples, "_KEPT_ROWS", 500)
    writer = SampleWriter(file, COLUMNS)
    for row in curve(rows):
        writer.fast(row)
        writer.slow([row[0], 1])
    writer.close()

    assert list(writer.blocks()) == list(read_blocks(tmp_path / "samples"))
    assert stored(writer) == curve(rows)
    writer.release()


def test_a_file_that_can_no_longer_be_read_leaves_the_rest(
    file: FailingFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = SampleWriter(file, COLUMNS)
    for row in curve(300):
        writer.fast(row)
    writer.close()

    def fail(offset: int, length: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(file, "read_at", fail)
    assert stored(writer) == []
    assert writer.error is not None
    assert writer.error.errno == errno.EIO
    writer.release()


def test_a_row_costs_little(folder: int) -> None:
    rows = curve(10_000)
    costs = []
    for _ in range(3):
        writer = SampleWriter(FileTarget(folder, "samples", ".samples.new"), COLUMNS)
        began = time.process_time()
        for row in rows:
            writer.fast(row)
        writer.close()
        costs.append((time.process_time() - began) / len(rows))
        writer.release()
    # About 1 µs; the bar leaves room for a slow machine, not for another algorithm.
    assert min(costs) < 8e-6
