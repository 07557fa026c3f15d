"""Which limits held: what the kernel said, an outer group, or the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sandbox.analysis.in_force import (
    cpus_in_force,
    has_cpu_limit,
    memory_in_force_bytes,
    pids_in_force,
)
from sandbox.records.limits import LimitReport, LimitState
from sandbox.records.result import RunResult

Make = Callable[..., RunResult]
MIB = 1 << 20


def limited(make: Make, name: str, asked: str, **changes: Any) -> RunResult:
    spec = changes.pop("spec", {})
    report = LimitReport(**{"name": name, "asked": asked, "state": LimitState.ENFORCED, **changes})
    return make(limits=(report,), spec=spec)


@pytest.mark.parametrize(
    ("asked", "changes", "size"),
    [
        ("1.5 GiB", {"value": "1610616832"}, 1610616832),  # exact beats rounded
        ("1.5 GiB", {"value": "1610616832", "effective": "1 GiB"}, 1 << 30),
        ("1.5 GiB", {}, 1536 * MIB),
        ("1.5 GiB", {"spec": {"limits": {"memory_bytes": 1610616999}}}, 1610616999),
        ("1.5 GiB", {"value": "what?"}, 1536 * MIB),
        ("unlimited", {"value": "max"}, None),
        ("unlimited", {"value": "9223372036854771712"}, None),  # v1 has no word for it
        ("what?", {}, None),
        ("1 GiB", {"state": LimitState.UNAVAILABLE}, None),
        ("1 GiB", {"state": LimitState.APPROXIMATED, "value": str(512 * MIB)}, 512 * MIB),
    ],
)
def test_the_memory_limit_that_held(
    make_result: Make, asked: str, changes: dict[str, Any], size: int | None
) -> None:
    assert memory_in_force_bytes(limited(make_result, "memory", asked, **changes)) == size


@pytest.mark.parametrize(
    ("asked", "changes", "count"),
    [
        ("4096", {"value": "4096"}, 4096),
        ("4096", {"value": "4096", "effective": "100"}, 100),
        ("4096", {}, 4096),
        ("unlimited", {"value": "max"}, None),
        ("4096", {"state": LimitState.UNAVAILABLE}, None),
    ],
)
def test_the_limit_of_processes_that_held(
    make_result: Make, asked: str, changes: dict[str, Any], count: int | None
) -> None:
    assert pids_in_force(limited(make_result, "pids", asked, **changes)) == count


def test_without_limits_the_host_is_the_bound(make_result: Make) -> None:
    assert cpus_in_force(make_result()) == 4.0
    assert not has_cpu_limit(make_result())
    assert memory_in_force_bytes(make_result()) is None
    assert pids_in_force(make_result()) is None


def test_texts_that_cannot_be_read_bound_nothing(make_result: Make) -> None:
    assert cpus_in_force(limited(make_result, "cpus", "what?", effective="?")) == 4.0
    assert not has_cpu_limit(limited(make_result, "cpus", "what?"))
    assert cpus_in_force(limited(make_result, "cpuset_cpus", "what?")) == 4.0


def test_an_outer_quota_in_the_kernels_words_is_understood(make_result: Make) -> None:
    assert cpus_in_force(limited(make_result, "cpus", "2", effective="75000 100000")) == 0.75
