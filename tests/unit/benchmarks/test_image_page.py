"""The table of what images cost, beside others who fetch them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PATH = Path(__file__).resolve().parents[3] / "scripts" / "benchmarks" / "_image_page.py"


@pytest.fixture(scope="module")
def page() -> ModuleType:
    spec = importlib.util.spec_from_file_location("image_page", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def result(what: str, name: str, **more: Any) -> dict[str, Any]:
    return {
        "benchmark": "image", "what": what, "peer_name": name, "ours": 1.0, "peer": 4.0,
        "ratio": 0.25, "interval": [0.2, 0.3], **more,
    }  # fmt: skip


def test_a_row_is_one_of_the_others(page: ModuleType) -> None:
    record = {
        "results": [
            result("a layout", "umoci unpack"),
            result("a registry", "docker pull", peer=2.0, ratio=0.5),
            result("a registry", "podman pull"),
            result("a registry", "absent", ratio=None),
            result("else", "x", benchmark="launch"),
        ]
    }

    lines = page.table(page.figures(record)).splitlines()

    assert lines[2:] == [
        "| a layout | 1.00 s | `umoci unpack` | 4.00 s | 0.25 (0.20 to 0.30) |",
        "| a registry | 1.00 s | `docker pull` | 2.00 s | 0.50 (0.20 to 0.30) |",
        "|  | 1.00 s | `podman pull` | 4.00 s | 0.25 (0.20 to 0.30) |",
    ]


@pytest.mark.parametrize(("load", "is_busy"), [(1.5, False), (14.0, True)])
def test_a_machine_that_was_busy_is_called_so(
    page: ModuleType, load: float, *, is_busy: bool
) -> None:
    host = {"cpu": "C", "cpus": 2, "kernel": "6.1.0-56-amd64", "python": "3.11.7", "load": load}

    said = page.described(host)

    assert said.startswith("On C, 2 CPUs, Linux 6.1.0, Python 3.11.7, load")
    assert ("too long" in said) == is_busy


def test_nothing_measured_is_an_error(page: ModuleType) -> None:
    with pytest.raises(ValueError, match="no figures"):
        page.figures({"results": [result("a", "b", ratio=None)]})


def test_only_what_is_between_the_marks_changes(page: ModuleType) -> None:
    text = f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n"

    assert page.renewed(text, "new\n") == f"before\n{page.BEGIN}\nnew\n{page.END}\nafter\n"
    with pytest.raises(ValueError, match="the page has no"):
        page.renewed("before\n", "new\n")
    assert page.BEGIN in page.PAGE.read_text()
