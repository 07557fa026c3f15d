"""A run to analyse, and blocks of samples built from rows."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sandbox.records.host import Host, Mode
from sandbox.records.result import Outcome, RunResult
from sandbox.records.sample import Block, Table

STARTED_NS = 1_000_000_000_000


def _result(**changes: Any) -> RunResult:
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
    plain: dict[str, Any] = {
        "run_id": "5f0c9a1be27d",
        "name": "x",
        "command": ("x",),
        "spec": {"limits": {}, "interval_ns": 10_000_000},
        "host": host,
        "outcome": Outcome.RUNNING,
        "exit_code": None,
        "started_utc_ns": 0,
        "started_ns": STARTED_NS,
    }
    return RunResult(**{**plain, **changes})


def _block(table: Table, columns: Sequence[str], *rows: Sequence[int]) -> Block:
    """Times in `rows` are relative to the start of the run."""
    data = [array("q", column) for column in zip(*rows, strict=True)]
    data[0] = array("q", (time + STARTED_NS for time in data[0]))
    return Block(table, ("time_ns", *columns), tuple(data))


@pytest.fixture(scope="session")
def make_result() -> Callable[..., RunResult]:
    """Build a result; every field can be given."""
    return _result


@pytest.fixture(scope="session")
def make_block() -> Callable[..., Block]:
    """Build a block of a table from its columns (without the time) and rows (time first)."""
    return _block
