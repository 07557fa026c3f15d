"""A run to analyse, and blocks of samples built from rows."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sandbox.records.result import Outcome, RunResult
from sandbox.records.sample import Block, Table

STARTED_NS = 1_000_000_000_000


def _block(table: Table, columns: Sequence[str], *rows: Sequence[int]) -> Block:
    """Times in `rows` are relative to the start of the run."""
    data = [array("q", column) for column in zip(*rows, strict=True)]
    data[0] = array("q", (time + STARTED_NS for time in data[0]))
    return Block(table, ("time_ns", *columns), tuple(data))


@pytest.fixture(scope="session")
def make_result(make_result: Callable[..., RunResult]) -> Callable[..., RunResult]:
    """Build the result of a run that has not ended; every field can be given."""
    plain: dict[str, Any] = {
        "outcome": Outcome.RUNNING,
        "exit_code": None,
        "reason": "",
        "started_ns": STARTED_NS,
        "wall_ns": None,
    }
    return lambda **changes: make_result(**(plain | changes))


@pytest.fixture(scope="session")
def make_block() -> Callable[..., Block]:
    """Build a block of a table from its columns (without the time) and rows (time first)."""
    return _block
