"""The picture of `sandbox top`: every size of screen is filled and never overrun."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.records.stats import State, StatsReading, StatsRow
from sandbox.report.style import cell_width
from sandbox.report.top import Line, Point, TopView, point_of, render_top

MIB = 1 << 20


def reading(time_ns: int, cpu_ns: int, memory: int) -> StatsReading:
    return StatsReading(
        time_ns=time_ns,
        utc_ns=time_ns,
        cpu_usage_ns=cpu_ns,
        cpus_online=2,
        memory_usage_bytes=memory,
        memory_stat={"inactive_file": MIB},
        pids=3,
    )


def row_of(run_id: str, name: str = "", *, state: State = State.RUNNING) -> StatsRow:
    return StatsRow(
        asked=run_id,
        id=run_id,
        name=name,
        state=state,
        cgroup_version=2,
        now=reading(2_000_000_000, 500_000_000, 33 * MIB),
        before=reading(1_000_000_000, 0, 33 * MIB),
        host_memory_bytes=8 << 30,
        memory_limit_bytes=64 * MIB,
        cpu_quota_usec=50_000,
        cpu_period_usec=100_000,
    )


ROWS = (
    row_of("aaaa00000001", "one"),
    row_of("aaaa00000002", "two", state=State.PAUSED),
    row_of("bbbb00000003"),
)


def view_of(
    rows: tuple[StatsRow, ...] = ROWS, selected: str | None = None, **fields: str
) -> TopView:
    points = (Point(10.0, 30 * MIB), Point(50.0, 32 * MIB))
    return TopView(
        rows=rows,
        selected=selected or (rows[0].id if rows else None),
        points=points,
        title=fields.get("title", "sandbox top"),
        keys="q quit",
        prompt=fields.get("prompt", ""),
    )


def test_a_row_adds_its_rate_and_its_memory_without_cache() -> None:
    assert point_of(ROWS[0]) == Point(50.0, 32 * MIB)


def test_the_table_the_curves_and_the_keys_share_the_screen() -> None:
    lines = render_top(view_of(), 100, 24)

    assert len(lines) == 24
    assert lines[0] == Line("sandbox top  2 running, 1 paused", "title")
    assert lines[2].text == (
        "NAME          STATE     CPU %  OF LIMIT  THROTTLED  MEMORY / LIMIT   MEM %  TASKS  "
        "READ / WRITE"
    )
    assert lines[3].role == "selected"
    assert lines[3].text == (
        "one           running  50.00%   100.00%         --   32MiB / 64MiB  50.00%      3  "
        "-- / --     "
    )
    assert lines[5].text.startswith("bbbb00000003  running")  # a name that it lacks
    assert [line.role for line in lines[4:6]] == ["row", "row"]
    texts = [line.text for line in lines]
    assert "one: memory 32MiB of 64MiB" in texts
    assert texts[-7:-5] == ["one: CPU 50.00% of 50%", "         50% ┤  █"]
    assert texts[-5] == "           0 ┤ ▃█"
    assert lines[-1] == Line("q quit", "dim")


def test_a_question_takes_the_place_of_the_keys() -> None:
    assert render_top(view_of(prompt="kill one? y/n"), 100, 24)[-1] == Line(
        "kill one? y/n", "prompt"
    )


def test_a_small_screen_has_no_curves_and_keeps_the_selected_row() -> None:
    lines = render_top(view_of(selected="bbbb00000003"), 60, 5)

    assert [line.role for line in lines] == ["title", "text", "head", "selected", "dim"]
    assert lines[3].text.startswith("bbbb00000003")


def test_a_wide_screen_has_ids_too() -> None:
    lines = render_top(view_of(), 120, 24)

    assert lines[2].text.split()[:3] == ["NAME", "ID", "STATE"]
    assert lines[3].text.split()[:3] == ["one", "aaaa00000001", "running"]


def test_of_many_rows_those_around_the_selected_one_are_shown() -> None:
    rows = tuple(row_of(f"{number:012x}", f"n{number}") for number in range(100))

    lines = render_top(view_of(rows, rows[70].id), 100, 10)

    names = [line.text.split()[0] for line in lines if line.role in {"row", "selected"}]
    assert names == ["n67", "n68", "n69", "n70", "n71", "n72"]


def test_nothing_to_show_says_how_to_begin() -> None:
    texts = [line.text for line in render_top(view_of(()), 100, 24)]

    assert "no sandbox runs: `sandbox run -d -- COMMAND` starts one" in texts


def test_where_there_is_no_unicode_ascii_stands_in() -> None:
    texts = "\n".join(line.text for line in render_top(view_of(), 50, 24, unicode=False))

    assert texts.isascii()
    assert "|" in texts


def test_a_name_cannot_command_the_terminal() -> None:
    rows = (row_of("aaaa00000001", "a\033[2Jb"),)

    assert "\033" not in "".join(line.text for line in render_top(view_of(rows), 100, 24))


@pytest.mark.parametrize("rows", [(), ROWS, ROWS * 9])
@given(width=st.integers(0, 200), height=st.integers(0, 60))
def test_every_screen_is_filled_and_none_overrun(
    rows: tuple[StatsRow, ...], width: int, height: int
) -> None:
    lines = render_top(view_of(rows), width, height)

    assert len(lines) == height
    assert all(cell_width(line.text) <= width for line in lines)
