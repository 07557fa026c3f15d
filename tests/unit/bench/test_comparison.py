"""Two sides of measurements: their ratio, its error, the gate, and where figures come from."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.analysis.comparison import Comparison, compare, failed_gate
from sandbox.bench.exported import Measured, pair, read_side
from sandbox.cli import _status_of
from sandbox.errors import StoreError
from sandbox.records.result import RunResult
from sandbox.report.comparison import render_comparison
from sandbox.report.style import Style

FIXTURES = Path(__file__).parents[2] / "fixtures" / "hyperfine"
PLAIN = Style(width=80, color=False, unicode=True)


def one(before: Sequence[float], after: Sequence[float]) -> Comparison:
    (found,) = compare({"time": before}, {"time": after})
    return found


def no_run(text: str) -> RunResult:
    raise StoreError(f"there is no run `{text}`")


def test_the_error_is_propagated_from_both_intervals() -> None:
    found = one([1.0, 1.1, 0.9], [2.0, 2.2, 1.8])

    interval = 4.302652729911275 * 0.1 / math.sqrt(3)  # Student's t for two degrees of freedom
    assert found.ratio == pytest.approx(2.0)
    assert found.error == pytest.approx(2.0 * math.hypot(interval, interval))
    assert found.verdict == "more"


def test_the_gate_needs_the_ratio_less_its_error_above_it() -> None:
    steady = one([1.0, 1.001, 0.999], [1.1, 1.101, 1.099])
    noisy = one([1.0, 1.3, 0.7], [1.1, 1.4, 0.8])

    assert steady.exceeds(0.05)
    assert not steady.exceeds(0.1)
    assert not noisy.exceeds(0.05)
    assert (steady.verdict, noisy.verdict) == ("more", "same")
    assert one([1.1, 1.101, 1.099], [1.0, 1.001, 0.999]).verdict == "less"


def test_a_single_run_has_no_error_and_says_so() -> None:
    found = one([1.0], [1.2])

    assert (found.error, found.verdict) == (None, "unsure")
    assert found.exceeds(0.1)
    assert not found.exceeds(0.3)


def test_a_metric_that_one_side_lacks_is_left_out() -> None:
    assert compare({"time": [1.0], "memory": []}, {"memory": [1.0]}) == []
    found = one([0.0], [1.0])
    assert found.ratio is None
    assert not found.exceeds(0.0)


@given(
    before=st.lists(st.floats(0.001, 1e6), min_size=2, max_size=8),
    after=st.lists(st.floats(0.001, 1e6), min_size=2, max_size=8),
)
def test_turning_the_sides_turns_the_ratio(before: list[float], after: list[float]) -> None:
    there, back = one(before, after), one(after, before)

    assert there.ratio is not None
    assert back.ratio is not None
    assert there.ratio * back.ratio == pytest.approx(1)
    assert there.exceeds(0.5) <= there.exceeds(0.1)


def _file(path: Path, *results: dict[str, Any]) -> str:
    path.write_text(json.dumps({"results": results}))
    return str(path)


def test_benchmarks_are_paired_by_name_else_by_place(tmp_path: Path) -> None:
    a = {"command": "a", "times": [1.0, 2.0], "exit_codes": [0, 1]}
    b = {"command": "b", "times": [3.0], "user": 0.5, "system": 0.25, "memory_usage_byte": [7]}
    first = read_side(_file(tmp_path / "1", a, b), no_run)
    turned = read_side(_file(tmp_path / "2", b, a), no_run)
    renamed = read_side(_file(tmp_path / "3", {**a, "command": "x"}, {**b, "command": "y"}), no_run)

    assert [(x.name, y.name) for x, y in pair(first, turned)] == [("a", "a"), ("b", "b")]
    assert [(x.name, y.name) for x, y in pair(first, renamed)] == [("a", "x"), ("b", "y")]
    assert first[0].failed == 1
    assert first[1].figures == {"time": (3.0,), "cpu": (0.75,), "memory": (7.0,)}
    with pytest.raises(StoreError, match="2 commands cannot be compared with 1 others"):
        pair(first, [Measured(name="z", figures={})])


def test_our_own_files_have_the_cpu_time_of_each_run(tmp_path: Path) -> None:
    ours = {"command": "a", "times": [1.0], "user": 9.0, "system": 9.0}
    ours["sandbox"] = {"cpu_seconds": [0.5, None, 0.75]}

    (found,) = read_side(_file(tmp_path / "1", ours), no_run)

    assert found.figures["cpu"] == (0.5, 0.75)


def test_files_that_hyperfine_wrote_are_read() -> None:
    files = sorted(FIXTURES.glob("*.json"))
    assert files
    for file in files:
        for found in read_side(str(file), no_run):
            assert found.figures["time"]


@pytest.mark.parametrize(
    "results", [[{"command": "a"}], [{"times": [1]}], [{"command": "a", "times": ["x"]}], ["a"]]
)
def test_a_file_that_is_not_quite_one_is_an_error(tmp_path: Path, results: list[Any]) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"results": results}))

    with pytest.raises(StoreError, match="is no file of benchmarks") as caught:
        read_side(str(path), no_run)

    assert "--export-json" in (caught.value.hint or "")


def test_what_is_no_file_of_benchmarks_is_taken_for_a_run(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("{}")

    for text in (str(path), "some-name", "a,b"):
        with pytest.raises(StoreError, match="there is no run"):
            read_side(text, no_run)
    with pytest.raises(StoreError, match="names no run"):
        read_side(",", no_run)


def test_the_text_marks_what_is_too_much() -> None:
    found = compare(
        {"time": [1.0, 1.001], "memory": [1 << 20]}, {"time": [2.0, 2.0], "memory": [1]}
    )

    text = render_comparison("a", found, PLAIN, over=[found[0]])

    assert "TOO MUCH, more" in text
    assert text.count("TOO MUCH") == 1
    assert "1 MiB" in text
    assert "a single figure has no error" in text


def test_a_failed_run_after_the_change_passes_no_gate_however_fast_it_was() -> None:
    faster = one([1.0, 1.001, 0.999], [0.5, 0.501, 0.499])
    slower = one([1.0, 1.001, 0.999], [2.0, 2.001, 1.999])

    assert failed_gate(0, [faster], []) == []
    assert failed_gate(1, [faster], []) == [
        "1 run after the change failed, whatever the figures say"
    ]
    assert failed_gate(0, [slower], [slower]) == ["the time is 2.000 times that before"]
    assert failed_gate(0, [], []) == ["none of the metrics was measured on both sides"]


@pytest.mark.parametrize(("codes", "status"), [([0, 0], 0), ([0, 3], 1), ([0, None], 1)])
def test_the_gate_ends_with_1_when_a_run_after_the_change_failed(
    codes: list[int | None], status: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    files = []
    for name, times, exit_codes in (("before", [1.0, 1.1], [0, 0]), ("after", [0.1, 0.2], codes)):
        result = {"command": "x", "times": times, "exit_codes": exit_codes}
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(json.dumps({"results": [result]}), "utf-8")

    ended = _status_of(["compare", *map(str, files), "--fail-over", "5%"])

    assert ended == status
    assert ("gate: x: 1 run after the change failed" in capfd.readouterr().err) == (status == 1)
    assert _status_of(["compare", *map(str, files)]) == 0
