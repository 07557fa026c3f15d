"""What the tests of the store share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.records.host import Host, Mode
from sandbox.records.result import Outcome, RunResult


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home that does not exist yet."""
    return tmp_path / "home"


@pytest.fixture
def result_of() -> Callable[..., RunResult]:
    """Make a result, whole but small."""

    def make(**fields: Any) -> RunResult:
        host = Host(
            mode=Mode.NONE,
            mode_reason="a test",
            cpus_online=(0,),
            cpus_allowed=(0,),
            memory_total_bytes=1,
            swap_total_bytes=0,
            kernel="6",
            machine="m",
        )
        values: dict[str, Any] = {
            "run_id": "0123456789ab",
            "name": "a-name",
            "command": ("true",),
            "spec": {},
            "host": host,
            "outcome": Outcome.EXITED,
            "exit_code": 0,
            "started_utc_ns": 1,
            "started_ns": 1,
        }
        return RunResult(**(values | fields))

    return make
