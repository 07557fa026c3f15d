"""`-o FILE`: every row once, in order of time, integers untouched; never half a file."""

from __future__ import annotations

import csv
import io
import json
import os
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.errors import SpecError, StoreError
from sandbox.records.codec import from_plain
from sandbox.records.host import Host, Mode
from sandbox.records.result import Outcome, RunResult
from sandbox.records.sample import ABSENT, COLUMNS, TIME, Block, Table
from sandbox.report.export import (
    check_export_path,
    merge,
    render_csv,
    render_json,
    render_jsonl,
    write_export,
)
from sandbox.store.samples import SampleWriter

START_NS = 1_000_000_000
FAST = (TIME, "cpu_usage_usec", "pids")
SLOW = (TIME, "processes")

RESULT = RunResult(
    run_id="0123456789ab",
    name="a-name",
    command=("true",),
    spec={},
    host=Host(
        mode=Mode.NONE,
        mode_reason="a test",
        cpus_online=(0,),
        cpus_allowed=(0,),
        memory_total_bytes=1,
        swap_total_bytes=0,
        kernel="6",
        machine="m",
    ),
    outcome=Outcome.EXITED,
    exit_code=0,
    started_utc_ns=1_763_712_059_999_000_000,  # 2025-11-21T08:00:59.999Z
    started_ns=START_NS,
    directory="/somewhere",
)


def block(table: Table, *rows: tuple[int, ...], columns: tuple[str, ...] | None = None) -> Block:
    """Make a block of rows; times are given in ms from the start."""
    timed = [(START_NS + row[0] * 1_000_000, *row[1:]) for row in rows]
    names = columns or (FAST if table is Table.FAST else SLOW)
    return Block(table, names, tuple(array("q", column) for column in zip(*timed, strict=True)))


BLOCKS = [
    block(Table.FAST, (0, 0, 1)),
    block(Table.SLOW, (0, 1)),
    block(Table.FAST, (10, 5_000, 2), (20, ABSENT, 2), (30, 25_000, 2)),
    block(Table.SLOW, (20, 2), (25, ABSENT)),
]


def test_json_is_run_json() -> None:
    text = "".join(render_json(RESULT))
    assert from_plain(RunResult, json.loads(text)) == RESULT


def test_jsonl_has_one_line_for_each_time_and_only_what_was_read() -> None:
    lines = "".join(render_jsonl(RESULT, BLOCKS)).splitlines()
    assert [json.loads(line) for line in lines] == [
        {
            "time_ns": START_NS,
            "since_start_s": 0.0,
            "utc": "2025-11-21T08:00:59.999000Z",
            "cpu_usage_usec": 0,
            "pids": 1,
            "processes": 1,
        },
        {
            "time_ns": START_NS + 10_000_000,
            "since_start_s": 0.01,
            "utc": "2025-11-21T08:01:00.009000Z",
            "cpu_cpus": 0.5,
            "cpu_usage_usec": 5_000,
            "pids": 2,
        },
        {
            "time_ns": START_NS + 20_000_000,
            "since_start_s": 0.02,
            "utc": "2025-11-21T08:01:00.019000Z",
            "pids": 2,
            "processes": 2,
        },
        {
            "time_ns": START_NS + 25_000_000,
            "since_start_s": 0.025,
            "utc": "2025-11-21T08:01:00.024000Z",
        },
        {
            "time_ns": START_NS + 30_000_000,
            "since_start_s": 0.03,
            "utc": "2025-11-21T08:01:00.029000Z",
            "cpu_cpus": 1.0,
            "cpu_usage_usec": 25_000,
            "pids": 2,
        },
    ]


def test_csv_has_the_same_with_empty_cells() -> None:
    table = list(csv.DictReader(io.StringIO("".join(render_csv(RESULT, BLOCKS)))))
    lines = [json.loads(line) for line in render_jsonl(RESULT, BLOCKS)]
    assert [{name: cell for name, cell in row.items() if cell} for row in table] == [
        {name: str(value) for name, value in line.items()} for line in lines
    ]
    assert list(table[0]) == [
        "time_ns",
        "since_start_s",
        "utc",
        "cpu_cpus",
        "cpu_usage_usec",
        "pids",
        "processes",
    ]


def test_a_counter_that_went_down_has_no_rate() -> None:
    blocks = [block(Table.FAST, (0, 50, 1), (10, 20, 1), (20, 30, 1))]
    rates = [json.loads(line).get("cpu_cpus") for line in render_jsonl(RESULT, blocks)]
    assert rates == [None, None, 0.001]


def test_a_run_without_samples_is_a_line_of_names_or_nothing() -> None:
    assert "".join(render_csv(RESULT, [])) == "time_ns,since_start_s,utc,cpu_cpus\n"
    assert "".join(render_jsonl(RESULT, [])) == ""


def test_a_table_that_comes_very_late_still_has_its_columns() -> None:
    many = [block(Table.FAST, (10 * index, index, 1)) for index in range(100)]
    rows = list(csv.DictReader(render_csv(RESULT, [*many, block(Table.SLOW, (5_000, 7))])))
    assert len(rows) == 101
    assert rows[-1]["processes"] == "7"


def test_columns_that_are_not_known_are_exported_too() -> None:
    blocks = [block(Table.FAST, (0, 8), columns=(TIME, "later_bytes"))]
    assert next(iter(csv.DictReader(render_csv(RESULT, blocks))))["later_bytes"] == "8"


def test_every_column_says_its_unit_or_counts_things() -> None:
    units = ("_ns", "_s", "_usec", "_bytes", "_ops", "_periods", "_cpus", "utc")
    units += ("_packets", "_errors", "_dropped")
    counts = {"pids", "processes"}
    assert all(name.endswith(units) or name in counts for name in COLUMNS)


TICKS = st.lists(st.tuples(st.integers(1, 700), st.booleans(), st.booleans()), max_size=60)


@settings(deadline=None)
@given(TICKS, st.sampled_from((1, 3, 30)))
def test_rows_that_the_store_wrote_come_once_and_in_order(
    ticks: list[tuple[int, bool, bool]], scale: int
) -> None:
    writer = SampleWriter(None, {Table.FAST: FAST, Table.SLOW: SLOW})
    expected: dict[int, dict[str, int]] = {}
    now_ns = START_NS
    for step_ms, is_fast, is_slow in ticks:
        now_ns += step_ms * scale * 1_000_000
        if is_fast:
            writer.fast([now_ns, step_ms, 2])
            expected.setdefault(now_ns, {}).update(cpu_usage_usec=step_ms, pids=2)
        if is_slow:
            writer.slow([now_ns, 3])
            expected.setdefault(now_ns, {}).update(processes=3)
    writer.close()
    assert list(merge(writer.blocks())) == list(expected.items())


def test_merging_holds_back_no_more_than_it_must() -> None:
    seen = 0

    def blocks() -> Iterator[Block]:
        nonlocal seen
        for second in range(1_000):
            seen = second
            yield block(Table.FAST, *[(second * 1_000 + tick, 1, 1) for tick in range(10)])

    count = 0
    for count, _row in enumerate(merge(blocks())):
        assert seen * 10 - count <= 20
    assert count == 9_999


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x.json", "x.jsonl", "x.csv", "x.CSV", "a.b.json"])
def test_known_extensions_are_written(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    check_export_path(path)
    write_export(path, RESULT, BLOCKS)
    assert path.read_text().count("\n") >= 5
    assert [found.name for found in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["x", "x.txt", "x.json.gz", ".json", "x."])
def test_other_extensions_are_refused_with_the_known_ones(tmp_path: Path, name: str) -> None:
    with pytest.raises(SpecError, match="cannot tell the format") as caught:
        check_export_path(tmp_path / name)
    assert caught.value.hint == "use one of .json, .jsonl, .csv"


def test_an_existing_file_is_only_overwritten_by_force(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("precious")
    for act in (lambda: check_export_path(path), lambda: write_export(path, RESULT, BLOCKS)):
        with pytest.raises(SpecError, match="exists already") as caught:
            act()
        assert "--force" in (caught.value.hint or "")
    assert path.read_text() == "precious"
    check_export_path(path, force=True)
    write_export(path, RESULT, BLOCKS, force=True)
    assert json.loads(path.read_text())["run_id"] == "0123456789ab"


def test_a_missing_directory_is_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="there is no directory") as caught:
        check_export_path(tmp_path / "no" / "where" / "x.csv")
    assert "mkdir -p" in (caught.value.hint or "")


@pytest.mark.parametrize("kind", ["directory", "fifo", "loop", "long", "below a file"])
def test_what_cannot_be_a_file_is_refused_before_the_run(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.json"
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to("x.json")
    elif kind == "long":
        path = tmp_path / ("x" * 300 + ".json")
    else:
        path.write_text("")
        path = path / "y.json"
    for force in (False, True):
        with pytest.raises(SpecError, match="cannot write"):
            check_export_path(path, force=force)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(SpecError, match="no permission"):
        check_export_path(tmp_path / "x.json")
    tmp_path.chmod(0o700)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    link = tmp_path / "x.csv"
    link.symlink_to("deep/real.txt")
    write_export(link, RESULT, BLOCKS)
    write_export(link, RESULT, BLOCKS, force=True)
    assert link.is_symlink()
    assert (tmp_path / "deep" / "real.txt").read_text().startswith("time_ns,")


def test_the_mode_is_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_export(tmp_path / "x.json", RESULT, [])
    finally:
        os.umask(before)
    assert (tmp_path / "x.json").stat().st_mode & 0o777 == 0o640


def test_when_writing_fails_the_old_file_stays_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("old")

    def blocks() -> Iterator[Block]:
        yield BLOCKS[0]
        raise OSError(28, "No space left on device")

    with pytest.raises(StoreError, match=r"x\.jsonl: No space left on device") as caught:
        write_export(path, RESULT, blocks(), force=True)
    assert "sandbox runs show a-name" in (caught.value.hint or "")
    assert path.read_text() == "old"
    assert [found.name for found in tmp_path.iterdir()] == ["x.jsonl"]


def test_samples_that_cannot_be_read_leave_no_file(tmp_path: Path) -> None:
    def blocks() -> Iterator[Block]:
        yield BLOCKS[0]
        raise StoreError("damaged")

    with pytest.raises(StoreError, match="damaged"):
        write_export(tmp_path / "x.csv", RESULT, blocks())
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_came_to_be_during_the_run_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"

    def blocks() -> Iterator[Block]:
        yield BLOCKS[0]
        path.write_text("precious")

    with pytest.raises(StoreError, match="File exists"):
        write_export(path, RESULT, blocks())
    assert path.read_text() == "precious"
    assert [found.name for found in tmp_path.iterdir()] == ["x.csv"]
