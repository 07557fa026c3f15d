"""Every test here needs unified cgroup v2: `scripts/guest test` gives it one."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in this directory; the hook is called for the whole session."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.guest)
