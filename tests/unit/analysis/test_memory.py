"""What memory was made of, when the kernel's own account of it is late."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sandbox.analysis.memory import need_of, split_of, uncounted_bytes
from sandbox.analysis.warnings import find_warnings
from sandbox.records.result import MemorySplit, RunResult, Summary

MIB = 1 << 20


def split(uncounted: int | None, anon: int = 14 * MIB) -> MemorySplit:
    return MemorySplit(
        time_ns=1,
        current_bytes=51 * MIB,
        anon_bytes=anon,
        file_bytes=2 * MIB,
        shmem_bytes=1 * MIB,
        kernel_bytes=1 * MIB,
        uncounted_bytes=uncounted,
    )


@pytest.mark.parametrize(
    ("current", "anon", "uncounted"),
    [
        (51 * MIB, 48 * MIB, 0),  # what batches explain
        (51 * MIB, 14 * MIB, 34 * MIB),
        (51 * MIB, 80 * MIB, -32 * MIB),
        (4096 * MIB, 4000 * MIB, 0),
        (4096 * MIB, 3600 * MIB, 493 * MIB),
        (3 * MIB, 0, 0),
    ],
)
def test_what_batches_do_not_explain_is_uncounted(current: int, anon: int, uncounted: int) -> None:
    assert uncounted_bytes(current, anon, 2 * MIB, 1 * MIB) == uncounted


def test_without_all_parts_nothing_can_be_called_uncounted() -> None:
    assert uncounted_bytes(51 * MIB, 1, 1, None) is None
    assert uncounted_bytes(None, 1, 1, 1) is None


def test_the_need_counts_what_is_in_no_part_and_stays_below_the_peak() -> None:
    assert need_of(16 * MIB, split(34 * MIB), 60 * MIB) == 50 * MIB
    assert need_of(16 * MIB, split(34 * MIB), 40 * MIB) == 40 * MIB
    assert need_of(16 * MIB, split(0), 60 * MIB) == 16 * MIB
    assert need_of(90 * MIB, split(-30 * MIB), 60 * MIB) == 60 * MIB
    assert need_of(16 * MIB, None, None) == 16 * MIB
    assert need_of(None, split(34 * MIB), 60 * MIB) is None


def test_a_split_has_the_usage_of_the_row_beside_it() -> None:
    slow = {
        "time_ns": 7,
        "memory_anon_bytes": 14 * MIB,
        "memory_file_bytes": 2 * MIB,
        "memory_shmem_bytes": 1 * MIB,
        "memory_kernel_bytes": 1 * MIB,
    }

    made = split_of(slow, {"time_ns": 7, "memory_current_bytes": 51 * MIB})
    alone = split_of(slow, None)

    assert made is not None
    assert alone is not None
    assert (made.current_bytes, made.uncounted_bytes) == (51 * MIB, 34 * MIB)
    assert (alone.current_bytes, alone.uncounted_bytes) == (None, None)


@pytest.mark.parametrize(("uncounted", "word"), [(34 * MIB, "behind"), (-30 * MIB, "ahead of")])
def test_a_late_account_is_said(
    make_result: Callable[..., RunResult], uncounted: int, word: str
) -> None:
    late = make_result(summary=Summary(memory_split=split(uncounted)))
    fine = make_result(summary=Summary(memory_split=split(0)))

    found = {warning.code: warning.text for warning in find_warnings(late)}

    assert f"{abs(uncounted) // MIB} MiB {word} memory.current" in found["memory_stat_late"]
    assert "memory_stat_late" not in {warning.code for warning in find_warnings(fine)}
