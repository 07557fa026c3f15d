"""The statistics of repeats: hyperfine's on the same times, and tables of Student's t."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.analysis.statistics_of_runs import (
    find_outliers,
    outlier_scores,
    ratio_of,
    statistics_of,
    student_t,
)

# Written by hyperfine 1.15 itself.
GOLDEN = sorted((Path(__file__).resolve().parents[2] / "fixtures/hyperfine").glob("*.json"))
FIGURES = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=40)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_the_figures_are_hyperfines_on_the_same_times(path: Path) -> None:
    results = json.loads(path.read_text())["results"]

    assert results
    for result in results:
        ours = statistics_of(result["times"])
        assert ours.mean == pytest.approx(result["mean"], rel=1e-12)
        assert ours.stddev == pytest.approx(result["stddev"], rel=1e-9)
        assert ours.median == pytest.approx(result["median"], rel=1e-12)
        assert (ours.minimum, ours.maximum) == (result["min"], result["max"])


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_the_ratios_are_hyperfines(path: Path) -> None:
    times = [statistics_of(result["times"]) for result in json.loads(path.read_text())["results"]]
    fastest = min(times, key=lambda one: one.mean)
    rows = path.with_suffix(".md").read_text().splitlines()[2:]

    compared = 0
    for one, row in zip(times, rows, strict=True):
        ratio = ratio_of(one, fastest)
        shown = re.search(r"\| ([\d.]+) ± ([\d.]+) \|$", row)
        if shown is not None:
            assert ratio is not None
            assert (f"{ratio.value:.2f}", f"{ratio.stddev:.2f}") == shown.groups()
            compared += 1
    assert compared == len(times) - 1


@pytest.mark.parametrize(
    ("freedom", "t"),
    [
        (1, 12.7062),
        (2, 4.3027),
        (3, 3.1824),
        (4, 2.7764),
        (9, 2.2622),
        (30, 2.0423),
        (1000, 1.9623),
    ],
)
def test_students_t_is_that_of_the_tables(freedom: int, t: float) -> None:
    assert student_t(0.95, freedom) == pytest.approx(t, abs=5e-5)


def test_the_interval_of_a_known_sample() -> None:
    stats = statistics_of([1.0, 2.0, 3.0, 4.0, 5.0])

    assert stats.interval == pytest.approx(2.7764 * 2.5**0.5 / 5**0.5, abs=1e-3)


def test_a_single_figure_has_no_spread() -> None:
    stats = statistics_of([3.0])

    assert (stats.mean, stats.stddev, stats.interval) == (3.0, None, None)
    ratio = ratio_of(stats, statistics_of([1.5]))
    assert ratio is not None
    assert (ratio.value, ratio.stddev) == (2.0, None)
    assert ratio_of(stats, statistics_of([0.0])) is None


@given(FIGURES)
def test_any_figures_have_their_mean_and_median_between_the_ends(figures: list[float]) -> None:
    stats = statistics_of(figures)

    slack = 1e-9 * stats.maximum
    assert stats.minimum - slack <= stats.mean <= stats.maximum + slack
    assert stats.minimum <= stats.median <= stats.maximum
    assert len(outlier_scores(figures)) == len(figures)


def test_one_far_off_is_an_outlier_and_close_ones_are_not() -> None:
    assert find_outliers([10.0, 10.1, 10.2, 9.9, 30.0]) == (4,)
    assert find_outliers([10.0, 10.1, 10.2, 9.9, 10.6]) == ()
    assert find_outliers([10.0, 10.0, 10.0, 10.0, 10.0001]) == ()  # all even: a hair is no finding
    assert find_outliers([1.0, 9.0, 1.0]) == ()  # too few
