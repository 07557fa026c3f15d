"""The table of what builds cost, beside Docker's."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def page(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("_build_page")


def result(what: str, **more: Any) -> dict[str, Any]:
    return {
        "benchmark": "build", "what": what, "ours": 500.0, "peer": 2000.0, "ratio": 0.25,
        "interval": [0.2, 0.3], "details": {}, "bar": None, **more,
    }  # fmt: skip


SECONDS = result("all", ratio=None, details={"a": 100.0, "b": 130.4, "c": 90.0}, bar="500 ms")


def test_a_row_is_a_build(page: ModuleType) -> None:
    record = {"results": [result("else", benchmark="image"), SECONDS, result("a first build")]}

    seconds, beside = page.figures(record)

    assert page.table(beside).splitlines()[2:] == [
        "| a first build | 0.50 s | 2.00 s | 0.25 (0.20 to 0.30) |"
    ]
    assert page.sentence(seconds) == (
        "Second builds of the 3 Dockerfiles of the tests take 100 ms in the middle, and\n"
        "130 ms at most (`b`); the bar is 500 ms.\n"
    )


@pytest.mark.parametrize("results", [[], [SECONDS], [result("a first build")]])
def test_half_of_it_is_an_error(page: ModuleType, results: list[Any]) -> None:
    with pytest.raises(ValueError, match="no figures of builds"):
        page.figures({"results": results})
