"""A run's record becomes one row with true values, and a sample for each step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sandbox.analysis.profile import profile_of
from sandbox.records.limits import LimitReport, LimitState
from sandbox.records.result import NetworkIo, Outcome, RunResult, Summary, Totals
from sandbox.records.sample import ABSENT, Block, Table

SEC = 10**9
MIB = 1 << 20
FAST = ("cpu_usage_usec", "memory_current_bytes", "io_read_bytes", "io_write_bytes")

Make = Callable[..., Any]


def run_of(make_result: Make, wall_ns: int, **summary: Any) -> RunResult:
    result: RunResult = make_result(
        wall_ns=wall_ns,
        outcome=Outcome.EXITED,
        exit_code=0,
        reason="exited 0",
        totals=Totals(cpu_usage_usec=3_000_000, memory_peak_bytes=90 * MIB),
        summary=Summary(**{"cpu_mean": 0.75, "memory_mean_bytes": 60 * MIB, **summary}),
        limits=(
            LimitReport(
                name="memory", asked="100 MiB", state=LimitState.ENFORCED, value=str(100 * MIB)
            ),
        ),
    )
    return result


@pytest.fixture
def blocks(make_block: Make) -> list[Block]:
    """Four seconds: idle, two busy, idle; 20 MiB of the memory is cache for half of the time."""
    return [
        make_block(
            Table.FAST,
            FAST,
            (0, 0, 10 * MIB, 0, 0),
            (1 * SEC, 0, 60 * MIB, 5, 0),
            (2 * SEC, 1_500_000, 80 * MIB, 9, 0),
            (3 * SEC, 3_000_000, 80 * MIB, 9, ABSENT),
            (4 * SEC, 3_000_000, 60 * MIB, 9, 7),
        ),
        make_block(
            Table.SLOW,
            ("memory_inactive_file_bytes",),
            (0, 0),
            (2 * SEC, 20 * MIB),
            (4 * SEC, 20 * MIB),
        ),
    ]


def test_the_row_has_totals_and_the_busiest_second(make_result: Make, blocks: list[Block]) -> None:
    result = run_of(make_result, 4 * SEC, io_read_bytes=9, io_write_bytes=7)

    row, _ = profile_of(result, blocks, name="net", model="a/net", step_ns=SEC)

    assert row.cpu_mean_percent == 75.0
    assert row.cpu_peak_percent == 150.0
    assert row.memory_mean_bytes == (60 - 15) * MIB  # 20 MiB rose evenly over half of the time
    assert row.memory_peak_bytes == 90 * MIB  # the kernel's, not the largest sample
    assert (row.read_bytes, row.write_bytes, row.wall_ns) == (9, 7, 4 * SEC)
    assert row.is_good


def test_there_is_a_sample_for_each_step_and_one_at_the_end(
    make_result: Make, blocks: list[Block]
) -> None:
    _, samples = profile_of(
        run_of(make_result, 4 * SEC), blocks, name="net", model=None, step_ns=int(1.5 * SEC)
    )

    assert [one.utc_ms for one in samples] == [1_500, 3_000, 4_000]
    assert [one.cpu_percent for one in samples] == [0.0, 200.0, 0.0]
    assert [one.memory_bytes for one in samples] == [60 * MIB, 60 * MIB, 40 * MIB]
    assert [one.write_bytes for one in samples] == [0, 0, 7]


def test_traffic_is_in_the_row_and_in_each_sample(make_result: Make, make_block: Make) -> None:
    ports = tuple(
        NetworkIo(name=name, rx_bytes=received, tx_bytes=20)
        for name, received in (("eth0", 700), ("eth1", 300))
    )
    result = run_of(make_result, 2 * SEC)
    result = replace(result, totals=replace(result.totals, network=ports))
    columns = ("net_rx_bytes", "net_tx_bytes")
    slow = make_block(Table.SLOW, columns, (0, 0, 0), (1 * SEC, 400, 10), (2 * SEC, 1000, 40))
    fast = make_block(Table.FAST, FAST, (0, 0, 1, 0, 0), (2 * SEC, 1, 1, 0, 0))

    row, samples = profile_of(result, [fast, slow], name="a", model=None, step_ns=SEC)

    assert (row.net_received_bytes, row.net_sent_bytes) == (1000, 40)
    received = [(one.net_received_bytes, one.net_sent_bytes) for one in samples]
    assert received == [(400, 10), (1000, 40)]


def test_a_run_shorter_than_a_second_is_its_own_busiest(make_result: Make) -> None:
    row, samples = profile_of(
        run_of(make_result, SEC // 2), [], name="x", model=None, step_ns=3 * SEC
    )

    assert row.cpu_peak_percent == row.cpu_mean_percent == 75.0
    assert len(samples) == 1


def test_what_the_host_cannot_tell_is_absent_and_not_zero(make_result: Make) -> None:
    result = make_result(wall_ns=2 * SEC, outcome=Outcome.EXITED, exit_code=0, summary=Summary())

    row, samples = profile_of(result, [], name="x", model=None, step_ns=SEC)

    assert (row.cpu_mean_percent, row.cpu_peak_percent, row.memory_mean_bytes) == (None,) * 3
    assert (row.memory_peak_bytes, row.read_bytes, row.net_sent_bytes) == (None,) * 3
    assert row.memory_limit_bytes == 8 << 30  # the host's
    assert {(one.cpu_percent, one.memory_bytes) for one in samples} == {(None, None)}
