"""The table at the end of a run, as people see it: golden files and what must always hold."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.records.result import Outcome, RunResult, RunWarning, Summary, Totals
from sandbox.report.style import cell_width
from sandbox.report.table import render_result

Golden = Callable[[str, str], None]
Runs = dict[str, RunResult]
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def shown(result: RunResult, width: int = 80, *, color: bool = False, unicode: bool = True) -> str:
    return render_result(result, width=width, color=color, unicode=unicode)


def test_a_run_reads_as_its_golden_file(named_run: tuple[str, RunResult], golden: Golden) -> None:
    name, result = named_run
    golden(f"run_{name}", shown(result))


def test_a_terminal_without_unicode_has_its_own_golden_file(
    named_run: tuple[str, RunResult], golden: Golden
) -> None:
    name, result = named_run
    text = shown(result, unicode=False)
    assert text.isascii()
    golden(f"run_{name}_ascii", text)


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_line_is_wider_than_the_terminal(named_run: tuple[str, RunResult], width: int) -> None:
    lines = shown(named_run[1], width).splitlines()
    grid = 78  # the numbers are never cut, however narrow the terminal is
    assert max(map(cell_width, lines)) <= max(width, grid)


def test_colour_adds_only_colour(named_run: tuple[str, RunResult]) -> None:
    _, result = named_run
    assert ANSI.sub("", shown(result, color=True)) == shown(result)


def test_a_run_without_trouble_takes_at_most_sixteen_lines(runs: Runs) -> None:
    assert len(shown(runs["inference"]).splitlines()) <= 16


def test_the_verdict_comes_first_and_the_next_command_last(runs: Runs) -> None:
    lines = shown(runs["out_of_memory"]).splitlines()
    assert lines[0].startswith("✗ killed: out of memory at 3.21 s (limit 64 MiB), exit 137")
    assert lines[-1].endswith("sandbox runs show 5f0c9a1be27d")


def test_what_a_host_cannot_give_is_a_dash_with_a_reason_and_never_zero(runs: Runs) -> None:
    unknown = replace(
        runs["inference"],
        totals=Totals(),
        summary=Summary(cpu_limit=0.5),
        unavailable={"cpu_usage_usec": "no counter here"},
    )

    text = shown(unknown)

    grid = text.split("\n\n")[1]
    assert re.search(r"^CPUs +- +- +0\.5$", grid, re.MULTILINE)
    assert re.search(r"^memory +- +- +512 MiB$", grid, re.MULTILINE)
    assert "CPU time: no counter here" in " ".join(text.split())
    assert "0 %" not in text.replace("100 %", "")
    assert "tasks        not counted" in text


def test_many_reasons_leave_room_for_the_numbers_and_wait_in_the_details(runs: Runs) -> None:
    text = " ".join(shown(runs["hybrid_timeout"]).split())
    assert "network: the run shares the host's network" in text
    assert "see the details: pressure, swap peak, kernel memory" in text


def test_no_swap_is_said_only_where_it_is_known(runs: Runs) -> None:
    assert "no swap" in shown(runs["inference"])
    assert "no swap" in shown(runs["degraded"])  # its host has none
    assert "no swap" not in shown(runs["hybrid_timeout"])


def test_a_sampled_peak_is_marked(runs: Runs) -> None:
    assert "~301 MiB" in shown(runs["degraded"])
    assert "~" not in shown(runs["inference"])


def test_a_limit_that_is_not_held_is_no_base_for_percentages(runs: Runs) -> None:
    text = shown(runs["degraded"])
    assert "4 (0.5 not held)" in text
    assert "25 %" in text


def test_many_warnings_are_cut_short_and_counted(runs: Runs) -> None:
    warnings = tuple(RunWarning(code="x", text=f"finding {i}") for i in range(9))
    text = shown(replace(runs["inference"], warnings=warnings))
    assert "finding 3" in text
    assert "finding 4" not in text
    assert "and 5 more warnings" in text


@given(st.text(max_size=60), st.lists(st.text(max_size=30), min_size=1, max_size=5))
def test_nothing_from_outside_can_command_the_terminal(
    runs: Runs, reason: str, command: list[str]
) -> None:
    result = replace(
        runs["inference"],
        reason=reason,
        command=tuple(command),
        unavailable={"network": reason},
        warnings=(RunWarning(code="x", text=reason, hint=reason),),
    )

    for unicode in (True, False):
        text = shown(result, unicode=unicode)
        assert all(line.isprintable() for line in text.split("\n"))
        assert unicode or text.isascii()


@given(
    st.sampled_from(list(Outcome)),
    st.one_of(st.none(), st.integers(0, 255)),
    st.one_of(st.none(), st.integers(0, 10**18)),
    st.one_of(st.none(), st.integers(0, 1 << 62)),
    st.one_of(st.none(), st.floats(0, 1e4)),
    st.integers(20, 200),
)
def test_any_result_can_be_shown(
    runs: Runs,
    outcome: Outcome,
    code: int | None,
    wall_ns: int | None,
    number: int | None,
    cpus: float | None,
    width: int,
) -> None:
    result = replace(
        runs["inference"],
        outcome=outcome,
        exit_code=code,
        wall_ns=wall_ns,
        totals=Totals(cpu_usage_usec=number, memory_peak_bytes=number, swap_peak_bytes=number),
        summary=Summary(
            cpu_mean=cpus, cpu_p95=cpus, memory_mean_bytes=number, memory_need_bytes=number
        ),
    )
    assert shown(result, width).count("\n") >= 1
