"""The newest samples of a run that may be long, or is just being written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.errors import StoreError
from sandbox.records.sample import TIME, Table
from sandbox.store.directory import open_directory
from sandbox.store.tail import newest_blocks

SEC = 10**9
RUN_ID = "aaaa00000001"
FAST, SLOW = (TIME, "cpu_usage_usec"), (TIME, "processes")

Write = Callable[[int], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Record so many rows, ten a second, and return the run directory while it is open."""
    opened = []

    def record(rows: int) -> Path:
        directory = open_directory(tmp_path / "home", RUN_ID, "name")
        opened.append(directory)
        sink = directory.open_sink(FAST, SLOW)
        for number in range(rows):
            # Not compressible: the file is to be long.
            sink.fast([number * SEC // 10, hash((number, "x"))])
            sink.slow([number * SEC // 10, number % 7])
        return directory.path

    return record


def test_the_newest_rows_of_a_run_are_in_its_last_blocks(write: Write) -> None:
    blocks = newest_blocks(write(30))

    times = {
        table: [row[0] for block in blocks if block.table is table for row in block.rows()]
        for table in Table
    }
    assert times[Table.FAST][0] == 0
    assert times[Table.FAST][-1] >= 2 * SEC
    assert times[Table.FAST] == sorted(times[Table.FAST])
    assert times[Table.SLOW][-1] >= 2 * SEC


def test_of_a_long_run_only_the_end_is_read(write: Write) -> None:
    directory = write(20_000)
    size = (directory / "samples").stat().st_size
    assert size > 100_000

    blocks = newest_blocks(directory)

    first = next(block for block in blocks if block.table is Table.FAST)
    last = next(block for block in reversed(blocks) if block.table is Table.FAST)
    assert first.data[0][0] > 100 * SEC
    assert last.data[0][-1] >= 1_998 * SEC


def test_a_torn_end_is_left_out(write: Write) -> None:
    directory = write(50)
    whole = newest_blocks(directory)
    data = (directory / "samples").read_bytes()
    (directory / "samples").write_bytes(data[:-3])

    assert newest_blocks(directory) == whole[:-1]


def test_a_run_without_samples_has_none_yet(tmp_path: Path) -> None:
    assert newest_blocks(tmp_path) == []
    (tmp_path / "samples").write_bytes(b"")
    assert newest_blocks(tmp_path) == []


def test_what_are_no_samples_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "samples").write_bytes(b"something else, and long enough to tell")

    with pytest.raises(StoreError, match="not a samples file"):
        newest_blocks(tmp_path)
