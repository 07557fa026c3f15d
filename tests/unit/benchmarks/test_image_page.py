"""The table of what images cost, beside others who fetch them."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def page(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("_image_page")


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


def test_nothing_measured_is_an_error(page: ModuleType) -> None:
    with pytest.raises(ValueError, match="no figures"):
        page.figures({"results": [result("a", "b", ratio=None)]})
