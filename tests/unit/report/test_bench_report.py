"""Benchmarks as text, as ratios and as hyperfine's JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sandbox.cli.bench import _Report
from sandbox.records.benchmark import Benchmark, Repeat
from sandbox.records.result import Outcome
from sandbox.report.bench import hyperfine_json, judged_figures, render_benchmark, render_ratios
from sandbox.report.style import Style

MS = 1_000_000
MIB = 1 << 20
STYLE = Style()


def repeat(wall_ms: float, **changes: Any) -> Repeat:
    plain: dict[str, Any] = {
        "run_id": "5f0c9a1be27d",
        "outcome": Outcome.EXITED,
        "exit_code": 0,
        "wall_ns": int(wall_ms * MS),
        "cpu_user_usec": 30_000,
        "cpu_system_usec": 9_000,
        "memory_peak_bytes": 11 * MIB,
        "throttled_ratio": 0.1,
    }
    return Repeat(**{**plain, **changes})


def benchmark(name: str, *walls_ms: float, **changes: Any) -> Benchmark:
    return Benchmark(command=name, repeats=tuple(repeat(wall, **changes) for wall in walls_ms))


def test_a_benchmark_is_its_figures_line_by_line() -> None:
    text = render_benchmark(benchmark("infer", 40, 42, 41, 43, 39), 1, STYLE)

    assert text.splitlines() == [
        "Benchmark 1: infer",
        "  time      41.0 ms ± 1.6 ms (mean ± \u03c3, 5 runs)",
        "            39.0 ms … 43.0 ms (95 % interval of the mean)",
        "  median    41.0 ms, 39.0 ms … 43.0 ms",
        "  CPU time  30.0 ms user, 9.0 ms system",
        "  memory    11 MiB at most",
        "  throttled in 10% of the periods",
    ]


def test_what_the_host_does_not_tell_has_no_line() -> None:
    blind = dict.fromkeys(
        ("cpu_user_usec", "cpu_system_usec", "memory_peak_bytes", "throttled_ratio")
    )

    text = render_benchmark(benchmark("x", 40, **blind), 2, STYLE)

    assert text.splitlines() == [
        "Benchmark 2: x",
        "  time      40.0 ms (mean ± \u03c3, 1 run)",
        "  median    40.0 ms, 40.0 ms … 40.0 ms",
    ]


def test_failures_that_were_measured_are_counted() -> None:
    text = render_benchmark(benchmark("x", 40, 41, exit_code=3), 1, STYLE)

    assert text.splitlines()[-1] == "  failed    2 of 2 runs"


def test_an_outlier_is_a_warning_with_its_cause_and_a_hint() -> None:
    cold = repeat(90, io_read_bytes=64 * MIB)
    usual = [repeat(40 + index / 10, io_read_bytes=0) for index in range(5)]

    text = render_benchmark(Benchmark(command="x", repeats=(cold, *usual)), 1, STYLE)

    assert "warning   run 1 took 90.0 ms, the median is 40.2 ms: cold page cache" in text
    assert "hint      use --warmup 1" in text


def test_what_disturbed_every_run_is_said_once() -> None:
    steal = {"steal": "the hypervisor gave 9 % of the CPU time to others"}

    text = render_benchmark(benchmark("x", 40, 41, 42, disturbances=steal), 1, STYLE)

    assert text.count("all runs were disturbed: the hypervisor gave 9 %") == 1


def test_the_fastest_is_the_base_unless_another_is_named() -> None:
    both = [benchmark("slow", 80, 82, 78), benchmark("fast", 40, 41, 39)]

    assert render_ratios(both, STYLE, None).splitlines() == [
        "Summary",
        "  fast, 40.0 ms, is the base",
        "  2.00 ± 0.07 times slower: slow",
    ]
    assert render_ratios(both, STYLE, 0).splitlines()[1:] == [
        "  slow, 80.0 ms, is the base",
        "  2.00 ± 0.07 times faster: fast",
    ]


def test_the_json_has_hyperfines_names_and_seconds() -> None:
    one = Benchmark(command="x {n}", parameters={"n": "1"}, repeats=(repeat(40), repeat(42)))

    (result,) = json.loads(hyperfine_json([one]))["results"]

    assert result["times"] == [0.04, 0.042]
    assert result["mean"] == pytest.approx(0.041)
    assert (result["user"], result["system"]) == (0.03, 0.009)
    assert result["parameters"] == {"n": "1"}
    assert result["exit_codes"] == [0, 0]
    assert result["memory_usage_byte"] == [11 * MIB] * 2
    assert result["sandbox"]["run_ids"] == ["5f0c9a1be27d"] * 2


def test_a_name_cannot_command_the_terminal() -> None:
    assert "\x1b" not in render_benchmark(benchmark("\x1b[31m", 40), 1, STYLE)


def test_gates_judge_the_highest_peak_and_mean_times() -> None:
    one = Benchmark(command="x", repeats=(repeat(40), repeat(42, memory_peak_bytes=12 * MIB)))

    assert judged_figures(one) == {
        "peak_bytes": 12 * MIB,
        "wall_ns": 41 * MS,
        "cpu_time_usec": 39_000,
    }
    unknown = Benchmark(command="x", repeats=(repeat(40), repeat(42, memory_peak_bytes=None)))
    assert judged_figures(unknown)["peak_bytes"] is None


def test_an_export_that_fails_at_the_end_loses_no_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    gone = tmp_path / "removed-meanwhile" / "x.json"
    report = _Report(said.append, gone, runs=1)

    report.show([benchmark("infer", 40)])

    assert "Benchmark 1: infer" in capsys.readouterr().out
    assert str(report.problem) == f"cannot write {gone}: No such file or directory"
    gone.parent.mkdir()
    report.show([benchmark("infer", 40)])
    assert report.problem is None
    assert [path.name for path in gone.parent.iterdir()] == ["x.json"]
