"""What the tests of the store share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.records.result import RunResult


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home that does not exist yet."""
    return tmp_path / "home"


@pytest.fixture
def result_of(make_result: Callable[..., RunResult]) -> Callable[..., RunResult]:
    """Make a result, whole but small."""
    plain: dict[str, Any] = {
        "run_id": "0123456789ab",
        "name": "a-name",
        "command": ("true",),
        "reason": "",
        "wall_ns": None,
    }
    return lambda **fields: make_result(**(plain | fields))
