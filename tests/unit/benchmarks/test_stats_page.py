"""The table and the picture of what watching costs."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from xml.etree import ElementTree as ET

import pytest


@pytest.fixture
def page(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("_stats_page")


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


def test_a_record_of_something_else_is_refused(page: ModuleType) -> None:
    with pytest.raises(ValueError, match="no figures"):
        page.costs({"results": [{"details": {"pairs": 3}}]})
