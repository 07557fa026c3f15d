"""Samples to a curve of few points."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.analysis.curve import find_curve
from sandbox.records.result import RunResult, Summary
from sandbox.records.sample import ABSENT, Block, Table

Make = Callable[..., RunResult]
MakeBlock = Callable[..., Block]
MS, SEC = 10**6, 10**9
FAST = ("cpu_usage_usec", "memory_current_bytes")


def test_a_curve_keeps_the_cpu_time_and_the_memory_peak(
    make_result: Make, make_block: MakeBlock
) -> None:
    rows = [(i * 10 * MS, min(i, 150) * 10_000, 5 + (i == 77)) for i in range(301)]
    blocks = [make_block(Table.FAST, FAST, *rows[i : i + 100]) for i in range(0, 301, 100)]
    result = make_result(wall_ns=3 * SEC, summary=Summary(samples=301))

    curve = find_curve(result, blocks, 6)

    assert curve is not None
    assert curve.step_ns == 500 * MS
    assert curve.cpus == pytest.approx((1.0, 1.0, 1.0, 0.0, 0.0, 0.0))
    assert curve.memory_bytes == (5, 6, 5, 5, 5, 5)


@given(
    st.lists(st.tuples(st.integers(MS, SEC), st.integers(0, 10**6)), min_size=2, max_size=60),
    st.integers(2, 80),
    st.integers(1, 20),
)
def test_a_curve_adds_up_to_the_whole_cpu_time(
    make_result: Make,
    make_block: MakeBlock,
    steps: list[tuple[int, int]],
    points: int,
    size: int,
) -> None:
    rows, now, used = [(0, 0, 1)], 0, 0
    for elapsed, grown in steps:
        now, used = now + elapsed, used + grown
        rows.append((now, used, 1))
    result = make_result(wall_ns=now, summary=Summary(samples=len(rows)))
    blocks = [make_block(Table.FAST, FAST, *rows[i : i + size]) for i in range(0, len(rows), size)]

    curve = find_curve(result, blocks, points)

    assert curve is not None
    assert len(curve.cpus) == len(curve.memory_bytes) == min(points, len(rows))
    assert None not in curve.cpus
    total = sum(cpus for cpus in curve.cpus if cpus is not None) * curve.step_ns / 1_000
    assert total == pytest.approx(used, abs=100)  # fewer than 80 ns are left over at the end


def test_a_run_without_an_end_or_with_one_sample_has_no_curve(make_result: Make) -> None:
    assert find_curve(make_result(summary=Summary(samples=9)), [], 50) is None
    assert find_curve(make_result(wall_ns=SEC, summary=Summary(samples=1)), [], 50) is None


def test_a_curve_draws_what_was_sampled_and_leaves_out_the_rest(
    make_result: Make, make_block: MakeBlock
) -> None:
    result = make_result(wall_ns=4 * SEC, summary=Summary(samples=10))
    memory_only = [make_block(Table.FAST, ("memory_current_bytes",), (SEC // 2, 7), (SEC, ABSENT))]
    cpu_only = [
        make_block(Table.SLOW, ("processes",), (0, 1)),
        make_block(Table.FAST, ("cpu_usage_usec",), (SEC, 500_000), (2 * SEC, ABSENT)),
        make_block(Table.FAST, ("cpu_usage_usec",), (2 * SEC, 1_000_000)),
    ]

    memory, cpu = find_curve(result, memory_only, 4), find_curve(result, cpu_only, 4)

    assert memory is not None
    assert memory.memory_bytes == (7, None, None, None)
    assert memory.cpus == (None, None, None, None)
    assert cpu is not None
    assert cpu.cpus == (0.5, 0.5, None, None)
    assert cpu.memory_bytes == (None, None, None, None)


def test_the_last_sample_may_lie_just_before_the_end(
    make_result: Make, make_block: MakeBlock
) -> None:
    result = make_result(wall_ns=2 * SEC, summary=Summary(samples=10))
    block = make_block(Table.FAST, ("cpu_usage_usec",), (SEC, SEC // 1_000), (SEC + 9, 1_000_500))

    curve = find_curve(result, [block], 2)

    assert curve is not None
    assert curve.cpus == pytest.approx((1.0, 0.0005))


def test_empty_blocks_leave_no_mark(make_result: Make, make_block: MakeBlock) -> None:
    empty = Block(Table.FAST, ("time_ns", *FAST), (array("q"),) * 3)
    block = make_block(Table.FAST, FAST, (SEC, 500_000, 3), (2 * SEC, 1_000_000, 4))
    result = make_result(wall_ns=2 * SEC, summary=Summary(samples=2))

    curve = find_curve(result, [empty, block, empty], 2)

    assert curve is not None
    assert curve.cpus == (0.5, 0.5)
    assert curve.memory_bytes == (None, 3)
