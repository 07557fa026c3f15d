"""Rates of a live group: shares of the time between two readings, and when there are none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandbox.analysis.live import cpus_in_force, growth, live_usage
from sandbox.records.result import Pressure
from sandbox.records.stats import StatsReading, StatsRow

SEC = 10**9
BEFORE = StatsReading(
    time_ns=SEC,
    utc_ns=0,
    cpu_usage_ns=0,
    cpu_periods=0,
    cpu_throttled_periods=0,
    cpu_pressure=Pressure(some_usec=0, full_usec=None),
    io=(),
)
NOW = replace(
    BEFORE,
    time_ns=3 * SEC,
    cpu_usage_ns=3 * SEC,
    cpu_periods=20,
    cpu_throttled_periods=5,
    cpu_pressure=Pressure(some_usec=1_500_000, full_usec=None),
)
ROW = StatsRow(
    asked="x",
    id="x",
    name="x",
    cgroup_version=2,
    now=NOW,
    before=BEFORE,
    host_memory_bytes=1 << 30,
    cpus_allowed=2,
)


def test_rates_are_taken_over_the_time_between_two_readings() -> None:
    usage = live_usage(ROW)

    assert usage is not None
    assert usage.elapsed_ns == 2 * SEC
    assert usage.cpu_percent == 150.0
    assert usage.cpu_of_limit_percent == 75.0
    assert usage.throttled_percent == 25.0
    assert usage.cpu_pressure_percent == 75.0
    assert usage.memory_pressure_percent is None
    assert usage.read_bytes_per_sec == 0.0


@pytest.mark.parametrize(
    "row",
    [
        replace(ROW, now=None),
        replace(ROW, before=None),
        replace(ROW, before=NOW),
        replace(ROW, before=replace(NOW, time_ns=4 * SEC)),
    ],
    ids=["nothing read", "one reading", "no time between", "time went back"],
)
def test_without_two_readings_in_order_there_are_no_rates(row: StatsRow) -> None:
    assert live_usage(row) is None


def test_a_stall_is_never_more_than_the_time() -> None:
    """The kernel's clock of a stall and ours differ by a little."""
    late = replace(NOW, cpu_pressure=Pressure(some_usec=2_000_100, full_usec=None))
    usage = live_usage(replace(ROW, now=late))

    assert usage is not None
    assert usage.cpu_pressure_percent == 100.0


def test_a_quota_below_the_cpuset_is_what_is_in_force() -> None:
    assert cpus_in_force(ROW) == 2
    assert cpus_in_force(replace(ROW, cpu_quota_usec=50_000, cpu_period_usec=100_000)) == 0.5
    assert cpus_in_force(replace(ROW, cpus_allowed=None)) is None


@pytest.mark.parametrize(
    ("before", "after", "grown"), [(1, 3, 2), (3, 3, 0), (3, 1, None), (None, 1, None)]
)
def test_a_counter_that_went_down_grew_by_nothing_known(
    before: int | None, after: int, grown: int | None
) -> None:
    assert growth(before, after) == grown
