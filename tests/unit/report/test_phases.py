"""Phases and energy as people see them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandbox.records.result import DeviceIo, EnergyUse, Phase, RunResult, Totals
from sandbox.report.details import render_details
from sandbox.report.numbers import energy_text
from sandbox.report.phases import phase_lines
from sandbox.report.style import Style
from sandbox.report.table import render_result

MIB = 1 << 20
SEC = 10**9
PLAIN = Style(width=80)


def phase(name: str, seconds: float = 2, **totals: object) -> Phase:
    values = {"cpu_usage_usec": 1_000_000, **totals}
    return Phase(
        name=name,
        started_ns=0,
        wall_ns=round(seconds * SEC),
        totals=Totals(**values),  # type: ignore[arg-type]
    )


def disk(read: int, written: int = 0) -> tuple[DeviceIo, ...]:
    return (
        DeviceIo(device="8:0 sda", read_bytes=read, write_bytes=written, read_ops=1, write_ops=0),
    )


THREE = (
    phase("start", 0.5, memory_peak_bytes=20 * MIB, memory_peak_source="kernel", io=disk(3 * MIB)),
    phase("warm-up", 2, memory_peak_bytes=90 * MIB, memory_peak_source="sampled", io=()),
    phase("infer", 10, memory_peak_bytes=80 * MIB, memory_peak_source="kernel", io=()),
)


def test_one_line_a_phase_with_what_can_be_compared() -> None:
    assert phase_lines(THREE, PLAIN) == [
        "phase      wall  CPUs     peak   read",
        "start    500 ms  2.00   20 MiB  3 MiB",
        "warm-up     2 s  0.50  ~90 MiB    0 B",
        "infer      10 s  0.10   80 MiB    0 B",
    ]


def test_details_add_cpu_time_throttling_and_energy() -> None:
    phases = [
        phase("start", cpu_periods=20, cpu_throttled_periods=5, energy_uj=61_200_000),
        phase("infer", cpu_periods=20, cpu_throttled_periods=0, energy_uj=2_500_000_000),
    ]

    assert phase_lines(phases, PLAIN, is_full=True) == [
        "phase  wall  CPU time  CPUs  throttled  energy",
        "start   2 s       1 s  0.50       25 %  61.2 J",
        "infer   2 s       1 s  0.50        0 %  2.5 kJ",
    ]


def test_a_host_that_counts_nothing_shows_names_and_time() -> None:
    nothing = [Phase(name="start", started_ns=0, wall_ns=SEC, totals=Totals())]

    assert phase_lines(nothing, PLAIN) == ["phase  wall", "start   1 s"]


def test_many_phases_are_cut_short_with_their_number() -> None:
    lines = phase_lines([phase(str(index)) for index in range(9)], PLAIN, most=2)

    assert len(lines) == 4
    assert lines[-1] == "and 7 more phases, see the details"
    assert phase_lines(THREE, PLAIN, most=2)[-1] == "and 1 more phase, see the details"


def test_long_wide_and_evil_names_keep_the_columns_straight() -> None:
    names = ("x" * 60, "数据" * 20, "a\033[2Jb", "été")
    lines = phase_lines([phase(name) for name in names], PLAIN)

    assert all("\033" not in line for line in lines)
    assert lines[1].startswith("x" * 19 + "…")
    ends = [line.rindex("0.50") for line in (lines[1], lines[4])]
    assert ends[0] == ends[1]


@pytest.fixture
def marked(runs: dict[str, RunResult]) -> RunResult:
    run = runs["inference"]
    return replace(
        run,
        phases=THREE,
        totals=replace(
            run.totals,
            energy_uj=617_000_000,
            energy=(
                EnergyUse(domain="package-0", energy_uj=617_000_000),
                EnergyUse(domain="package-0/dram", energy_uj=12_000_000),
            ),
        ),
    )


def test_the_table_shows_phases_and_the_machines_energy(marked: RunResult) -> None:
    text = render_result(marked, width=80, color=False, unicode=True)

    assert "\nphase      wall  CPUs     peak   read\nstart    500 ms" in text
    assert "\nenergy       617 J of the whole machine, 50 W on average\n" in text


def test_the_details_show_each_counter(marked: RunResult) -> None:
    text = render_details(marked, width=80, color=False, unicode=True)

    assert "\nPhases\n  phase " in text
    assert "\nEnergy of the whole machine\n  all packages           617 J of the whole" in text
    assert "package-0/dram         12 J" in text


def test_energy_that_is_unavailable_is_told_in_the_details_alone(
    runs: dict[str, RunResult],
) -> None:
    run = runs["inference"]
    run = replace(run, unavailable={**run.unavailable, "energy_uj": "no powercap here"})

    assert "no powercap" not in render_result(run, width=80, color=False, unicode=True)
    assert "no powercap here" in render_details(run, width=80, color=False, unicode=True)


@pytest.mark.parametrize(
    ("energy_uj", "text"),
    [
        (None, "-"),
        (0, "0 J"),
        (61_234_000, "61.2 J"),
        (999_000_000, "999 J"),
        (999_700_000, "1 kJ"),
        (1_240_000_000, "1.24 kJ"),
        (999_700_000_000, "1000 kJ"),
        (5_000_000_000_000, "5000 kJ"),
    ],
)
def test_energy_in_three_digits(energy_uj: int | None, text: str) -> None:
    assert energy_text(energy_uj) == text
