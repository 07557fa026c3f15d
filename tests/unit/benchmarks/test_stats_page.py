"""The table and the picture of what watching costs."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as ET

import pytest

PATH = Path(__file__).resolve().parents[3] / "scripts" / "benchmarks" / "_stats_page.py"


@pytest.fixture(scope="module")
def page() -> ModuleType:
    spec = importlib.util.spec_from_file_location("stats_page", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def record(*counts: int) -> dict[str, object]:
    details = [
        {
            "containers": count,
            "rate_hz": rate,
            "ours_usec_per_sec": 100.0 * count * rate,
            "docker_usec_per_sec": 3_000.0 * count,
        }
        for count in counts
        for rate in (1, 10, 100)
    ]
    return {"results": [{"details": {}}, *({"details": one} for one in details)]}


def test_the_table_has_costs_shares_and_the_ratio(page: ModuleType) -> None:
    lines = page.table(page.costs(record(1, 10))).splitlines()

    assert len(lines) == 4
    assert lines[3] == (
        "| 10 | 100 µs (0.1 %) | 100 µs (1 %) | 100 µs (10 %) | 3000 µs (3 %) | 1 : 30 |"
    )


@pytest.mark.parametrize("counts", [(1,), (1, 10), (1, 10, 50)])
def test_the_picture_is_whole_and_shows_every_series(
    page: ModuleType, counts: tuple[int, ...]
) -> None:
    text = page.picture(page.costs(record(*counts)))

    root = ET.fromstring(text)
    circles = [element for element in root.iter() if element.tag.endswith("circle")]
    assert len(circles) == 4 * len(counts)
    assert "docker stats, 1 Hz" in text
    for circle in circles:
        assert 0 < float(circle.get("cx", "")) < 640
        assert 0 < float(circle.get("cy", "")) < 360


def test_only_what_is_between_the_marks_is_renewed(page: ModuleType) -> None:
    before = f"a\n{page.BEGIN}\nold\n{page.END}\nb\n"

    assert page.renewed(before, "new\n") == f"a\n{page.BEGIN}\nnew\n{page.END}\nb\n"


def test_a_record_of_something_else_is_refused(page: ModuleType) -> None:
    with pytest.raises(ValueError, match="no figures"):
        page.costs({"results": [{"details": {"pairs": 3}}]})
