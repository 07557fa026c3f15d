"""Samples: raw counters and gauges at an instant, in two tables of integers.

The fast table is read at the run's interval, the slow one (dearer files) about ten times a
second. A row is a list of ints in the order of its table's columns; the first is `time_ns`
(CLOCK_MONOTONIC). A column that this host cannot give is not in the table at all; a single
reading that failed is `ABSENT`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Protocol

from sandbox.records.light import dataclass

ABSENT = -(1 << 63)

TIME = "time_ns"


class Kind(StrEnum):
    """How the values of a column behave."""

    COUNTER = "counter"  # only grows, from the start of the run
    GAUGE = "gauge"


class Table(StrEnum):
    """Which of the two tables a row belongs to."""

    FAST = "fast"
    SLOW = "slow"


@dataclass(frozen=True)
class Column:
    """One column: its name (with the unit), its kind and what it means."""

    name: str
    kind: Kind
    meaning: str


def _by_name(*columns: Column) -> dict[str, Column]:
    return {column.name: column for column in columns}


_C, _G = Kind.COUNTER, Kind.GAUGE

COLUMNS: dict[str, Column] = _by_name(
    Column(TIME, _C, "CLOCK_MONOTONIC at the reading"),
    # fast
    Column("cpu_usage_usec", _C, "CPU time of the whole group, user and system"),
    Column("memory_current_bytes", _G, "memory of the group, page cache included"),
    Column("pids", _G, "processes and threads in the group"),
    Column("io_read_bytes", _C, "bytes read from block devices, all devices"),
    Column("io_write_bytes", _C, "bytes written to block devices, all devices"),
    Column("io_read_ops", _C, "read requests to block devices"),
    Column("io_write_ops", _C, "write requests to block devices"),
    # slow
    Column("cpu_user_usec", _C, "CPU time in user mode"),
    Column("cpu_system_usec", _C, "CPU time in the kernel"),
    Column("cpu_periods", _C, "enforcement periods of the CPU quota"),
    Column("cpu_throttled_periods", _C, "periods in which the quota was used up"),
    Column("cpu_throttled_usec", _C, "time throttled, summed over CPUs"),
    Column("memory_anon_bytes", _G, "anonymous memory: heaps, stacks"),
    Column("memory_file_bytes", _G, "page cache, shared memory included"),
    Column("memory_shmem_bytes", _G, "shared memory and tmpfs"),
    Column("memory_kernel_bytes", _G, "memory of the kernel for the group"),
    Column("memory_inactive_file_bytes", _G, "page cache that is reclaimed first"),
    Column("memory_swap_bytes", _G, "swap in use"),
    Column("processes", _G, "processes in the group"),
    Column("net_rx_bytes", _C, "bytes received, all interfaces but lo"),
    Column("net_tx_bytes", _C, "bytes sent, all interfaces but lo"),
    Column("net_rx_packets", _C, "packets received"),
    Column("net_tx_packets", _C, "packets sent"),
    Column("net_rx_errors", _C, "packets that arrived broken"),
    Column("net_tx_errors", _C, "packets that could not be sent"),
    Column("net_rx_dropped", _C, "packets received and dropped"),
    Column("net_tx_dropped", _C, "packets dropped instead of sent"),
    Column("cpu_pressure_some_usec", _C, "PSI: time in which some task waited for a CPU"),
    Column("cpu_pressure_full_usec", _C, "PSI: time in which all tasks waited for a CPU"),
    Column("memory_pressure_some_usec", _C, "PSI: time in which some task waited for memory"),
    Column("memory_pressure_full_usec", _C, "PSI: time in which all tasks waited for memory"),
    Column("io_pressure_some_usec", _C, "PSI: time in which some task waited for I/O"),
    Column("io_pressure_full_usec", _C, "PSI: time in which all tasks waited for I/O"),
)


@dataclass(frozen=True)
class Block:
    """Consecutive rows of one table, column by column: `data[i]` belongs to `columns[i]`."""

    table: Table
    columns: tuple[str, ...]
    data: tuple[array[int], ...]

    def column(self, name: str) -> array[int] | None:
        """Return one column, or None if this host did not give it."""
        return self.data[self.columns.index(name)] if name in self.columns else None

    def rows(self) -> Iterator[tuple[int, ...]]:
        """Iterate over the rows."""
        return zip(*self.data, strict=True)


class SampleSink(Protocol):
    """Where the sampler puts its rows; keeps them in memory at most about a second."""

    def fast(self, row: Sequence[int]) -> None:
        """Append one row (time first) of the fast table."""

    def slow(self, row: Sequence[int]) -> None:
        """Append one row (time first) of the slow table."""

    def close(self) -> None:
        """Write what is left."""
