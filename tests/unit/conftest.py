"""What tests of several layers share: a run's result, whole but small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sandbox.records.host import Host, Mode
from sandbox.records.result import Outcome, RunResult


def _make_result(**fields: Any) -> RunResult:
    host = Host(
        mode=Mode.UNIFIED,
        mode_reason="root",
        cpus_online=(0, 1, 2, 3),
        cpus_allowed=(0, 1, 2, 3),
        memory_total_bytes=8 << 30,
        swap_total_bytes=0,
        kernel="6.8",
        machine="x86_64",
    )
    values: dict[str, Any] = {
        "run_id": "5f0c9a1be27d",
        "name": "x",
        "command": ("x",),
        "spec": {"limits": {}, "interval_ns": 10_000_000},
        "host": host,
        "outcome": Outcome.EXITED,
        "exit_code": 0,
        "reason": "exited 0",
        "started_utc_ns": 0,
        "started_ns": 1,
        "wall_ns": 5,
    }
    return RunResult(**(values | fields))


@pytest.fixture(scope="session")
def make_result() -> Callable[..., RunResult]:
    """Build the result of a run that ended well on a host that takes limits; all can be changed."""
    return _make_result
