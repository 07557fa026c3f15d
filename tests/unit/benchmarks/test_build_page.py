"""The table of what builds cost, beside Docker's."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

DIRECTORY = Path(__file__).resolve().parents[3] / "scripts" / "benchmarks"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(DIRECTORY))
    for name in ("_build_page", "_image_page"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("_build_page")


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


def test_only_what_is_between_the_marks_changes(page: ModuleType) -> None:
    text = f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n"

    assert page.renewed(text, "new\n") == f"before\n{page.BEGIN}\nnew\n{page.END}\nafter\n"
    with pytest.raises(ValueError, match="the page has no"):
        page.renewed("before\n", "new\n")
    assert page.BEGIN in page.PAGE.read_text()
