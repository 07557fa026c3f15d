"""The arithmetic of the benchmarks: turns, ratios, their uncertainty, and what is printed."""

from __future__ import annotations

import importlib.util
import statistics
import sys
from pathlib import Path
from types import ModuleType

import pytest

_FILE = Path(__file__).parents[3] / "scripts" / "benchmarks" / "_measure.py"


@pytest.fixture(scope="module")
def measure() -> ModuleType:
    spec = importlib.util.spec_from_file_location("_measure", _FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["_measure"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_each_side_of_a_pair_goes_first_in_turn(measure: ModuleType) -> None:
    order: list[str] = []

    def side(name: str, value: float) -> float:
        order.append(name)
        return value

    pairs = measure.in_pairs(lambda: side("ours", 3.0), lambda: side("peer", 2.0), 4)

    assert "".join(name[0] for name in order) == "oppooppo"
    assert pairs.ratio == 1.5


def test_every_round_starts_with_the_next_side(measure: ModuleType) -> None:
    order: list[str] = []

    def side(name: str) -> float:
        order.append(name)
        return 1.0

    found = measure.in_turns({name: lambda name=name: side(name) for name in "abc"}, 3)

    assert "".join(order) == "abcbcacab"
    assert found == {"a": (1.0,) * 3, "b": (1.0,) * 3, "c": (1.0,) * 3}


def test_one_outlier_moves_neither_the_ratio_nor_its_interval_far(measure: ModuleType) -> None:
    ours = (2.0, 2.1, 1.9, 2.0, 2.2, 1.8, 2.0, 2.1, 1.9, 2.0, 2.0, 2.1, 1.9, 2.0, 90.0)
    pairs = measure.Pairs(ours, (1.0,) * 15)
    low, high = pairs.interval()

    assert pairs.ratio == 2.0
    assert 1.9 <= low <= 2.0 <= high <= 2.1


def test_the_interval_is_the_same_each_time_it_is_asked_for(measure: ModuleType) -> None:
    values = [1.0, 2.0, 3.0, 4.0, 5.0]

    assert measure.bootstrap(values, statistics.median) == measure.bootstrap(
        values, statistics.median
    )


@pytest.mark.parametrize(("ours", "verdict"), [(2.5, "ok"), (2.51, "OVER")])
def test_the_bar_is_the_largest_ratio_that_is_allowed(
    measure: ModuleType, ours: float, verdict: str
) -> None:
    pairs = measure.Pairs((ours,) * 3, (1.0,) * 3)
    result = pairs.result(benchmark="tick", what="a tick", unit="µs", peer_name="C", bar=2.5)

    assert result.ok is (verdict == "ok")
    assert result.line().split()[0] == verdict


def test_a_peer_that_is_absent_is_named_with_the_reason(measure: ModuleType) -> None:
    result = measure.skipped("launch", "beside podman", "`podman` is not installed")

    assert result.ok is None
    assert result.line().strip() == "-  beside podman; skipped: `podman` is not installed"
