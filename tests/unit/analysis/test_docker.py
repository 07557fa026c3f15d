"""Docker's formulas and formats, against what docker prints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.analysis.docker import (
    docker_cpu_percent,
    format_binary,
    format_decimal,
    format_io,
    format_memory,
    format_percent,
    format_podman,
    io_sum,
    mem_percent,
    mem_used,
    memory_limit,
    short_id,
    wall_cpu_percent,
)
from sandbox.records.result import DeviceIo


@pytest.mark.parametrize(
    ("size", "binary", "decimal", "podman"),
    [
        (0, "0B", "0B", "0B"),
        (1000, "1000B", "1kB", "1kB"),
        (1024, "1KiB", "1.02kB", "1.024kB"),
        (13300, "12.99KiB", "13.3kB", "13.3kB"),
        (147456, "144KiB", "147kB", "147.5kB"),
        (999500, "976.1KiB", "1e+03kB", "999.5kB"),
        (1048575, "1024KiB", "1.05MB", "1.049MB"),
        (5902434, "5.629MiB", "5.9MB", "5.902MB"),
        (2147483648, "2GiB", "2.15GB", "2.147GB"),
        (33567830016, "31.26GiB", "33.6GB", "33.57GB"),
        (25276510208, "23.54GiB", "25.3GB", "25.28GB"),
        (2**64 - 1, "16EiB", "18.4EB", "18.45EB"),
    ],
)
def test_sizes_read_as_docker_and_podman_write_them(
    size: int, binary: str, decimal: str, podman: str
) -> None:
    assert format_binary(size) == binary
    assert format_decimal(size) == decimal
    assert format_podman(size) == podman


@pytest.mark.parametrize(
    ("percent", "text"), [(0.0, "0.00%"), (99.995, "100.00%"), (0.125, "0.12%"), (None, "--")]
)
def test_percentages_have_two_decimals(percent: float | None, text: str) -> None:
    assert format_percent(percent) == text


def test_one_busy_cpu_of_four_is_100_percent() -> None:
    assert docker_cpu_percent(10**9, 4 * 10**9, 4) == 100.0
    assert wall_cpu_percent(10**9, 10**9) == 100.0


@given(st.integers(-(10**18), 10**18), st.integers(-(10**18), 10**18), st.integers(1, 512))
def test_without_progress_of_both_counters_docker_says_zero(
    cpu_ns: int, other_ns: int, cpus: int
) -> None:
    percent = docker_cpu_percent(cpu_ns, other_ns, cpus)
    assert (percent > 0) == (cpu_ns > 0 and other_ns > 0)
    assert (wall_cpu_percent(cpu_ns, other_ns) > 0) == (cpu_ns > 0 and other_ns > 0)


@pytest.mark.parametrize(
    ("stat", "used"),
    [
        ({"inactive_file": 30}, 70),
        ({"inactive_file": 30, "total_inactive_file": 40}, 60),  # v1 wins
        ({"inactive_file": 100}, 100),  # not below the usage: not subtracted
        ({"inactive_file": 101}, 100),
        ({}, 100),
    ],
)
def test_memory_is_shown_without_inactive_page_cache(stat: dict[str, int], used: int) -> None:
    assert mem_used(100, stat) == used


@given(st.integers(0, 2**63), st.integers(0, 2**63))
def test_memory_in_use_is_never_negative_nor_above_the_raw_usage(usage: int, inactive: int) -> None:
    assert 0 <= mem_used(usage, {"inactive_file": inactive}) <= usage


def test_a_limit_above_the_host_is_the_host() -> None:
    assert memory_limit(2**64 - 1, 1 << 34) == 1 << 34
    assert memory_limit(None, 1 << 34) == 1 << 34
    assert memory_limit(1 << 20, 1 << 34) == 1 << 20
    assert mem_percent(1 << 19, 1 << 20) == 50.0
    assert mem_percent(5, 0) == 0.0


def test_block_io_adds_every_device_even_stacked_ones() -> None:
    devices = [
        DeviceIo(device="8:0 sda", read_bytes=10, write_bytes=20, read_ops=1, write_ops=1),
        DeviceIo(device="253:0 dm-0", read_bytes=10, write_bytes=20, read_ops=1, write_ops=1),
    ]
    assert io_sum(devices) == (20, 40)


def test_columns_join_two_sizes() -> None:
    assert format_memory(5902434, 2147483648) == "5.629MiB / 2GiB"
    assert format_memory(None, 5) == "-- / --"
    assert format_io(1024, 0) == "1.02kB / 0B"
    assert format_io(None, 0) == "--"
    assert short_id("0123456789abcdef") == "0123456789ab"
