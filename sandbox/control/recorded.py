"""A running sandbox's own record as readings: what came before the first look at it.

The record counts from the start of the program, the group from its making; between the two lies
the millisecond that the launch took.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sandbox.records.result import DeviceIo, NetworkIo, Pressure
from sandbox.records.sample import ABSENT, TIME, Block, Table
from sandbox.records.stats import StatsReading
from sandbox.store.tail import newest_blocks

_NS_PER_USEC = 1_000
_NANOSECONDS = {  # fields of a reading by the columns that they are made of
    "cpu_usage_ns": "cpu_usage_usec",
    "cpu_user_ns": "cpu_user_usec",
    "cpu_system_ns": "cpu_system_usec",
    "cpu_throttled_ns": "cpu_throttled_usec",
}
_SAME = {
    "cpu_periods": "cpu_periods",
    "cpu_throttled_periods": "cpu_throttled_periods",
    "memory_usage_bytes": "memory_current_bytes",
    "swap_bytes": "memory_swap_bytes",
    "pids": "pids",
    "processes": "processes",
}
_ALL = "0:0 all devices"
_ALL_INTERFACES = "all"
_NETWORK = (
    *("rx_bytes", "tx_bytes", "rx_packets", "tx_packets"),
    *("rx_errors", "tx_errors", "rx_dropped", "tx_dropped"),
)
_IO = ("io_read_bytes", "io_write_bytes", "io_read_ops", "io_write_ops")


def find_reading(directory: Path, at_ns: int, *, with_io: bool = False) -> StatsReading | None:
    """Return what a run has recorded: its newest sample up to a moment, else its oldest one.

    Args:
        directory: The run directory; it may be written meanwhile.
        at_ns: The moment, on CLOCK_MONOTONIC.
        with_io: Its I/O and traffic too, which a record has for all devices and interfaces
            together: not to be compared with a group's, which has it by device.

    Raises:
        StoreError: the samples cannot be read.
    """
    blocks = newest_blocks(directory)
    fast = _row(blocks, Table.FAST, at_ns)
    if fast is None:
        return None
    row = {**(_row(blocks, Table.SLOW, fast[TIME]) or {}), **fast}
    return reading_of(row, with_io=with_io)


def _row(blocks: Iterable[Block], table: Table, at_ns: int) -> dict[str, int] | None:
    found: dict[str, int] | None = None
    for block in blocks:
        if block.table is table:
            for row in block.rows():
                if found is not None and row[0] > at_ns:
                    return found
                found = dict(zip(block.columns, row, strict=True))
    return found


def reading_of(row: Mapping[str, int], *, with_io: bool = False) -> StatsReading:
    """Return one row of both tables as a reading; what the run lacked stays None."""
    known = {name: value for name, value in row.items() if value != ABSENT}
    values: dict[str, Any] = {
        **{
            name: known[column] * _NS_PER_USEC
            for name, column in _NANOSECONDS.items()
            if column in known
        },
        **{name: known[column] for name, column in _SAME.items() if column in known},
    }
    for resource in ("cpu", "memory", "io"):
        some = known.get(f"{resource}_pressure_some_usec")
        if some is not None:
            full = known.get(f"{resource}_pressure_full_usec")
            values[f"{resource}_pressure"] = Pressure(some_usec=some, full_usec=full)
    if with_io:
        values["io"] = _all_devices(known)
        values["network"] = _all_interfaces(known)
    since_ns = time.monotonic_ns() - known[TIME]
    return StatsReading(time_ns=known[TIME], utc_ns=time.time_ns() - since_ns, **values)


def _all_interfaces(known: Mapping[str, int]) -> tuple[NetworkIo, ...] | None:
    if not {f"net_{name}" for name in _NETWORK[:2]} <= known.keys():
        return None
    values = {name: known.get(f"net_{name}") for name in _NETWORK}
    return (NetworkIo(name=_ALL_INTERFACES, **values),)  # type: ignore[arg-type]


def _all_devices(known: Mapping[str, int]) -> tuple[DeviceIo, ...] | None:
    if not set(_IO[:2]) <= known.keys():
        return None
    read, write, reads, writes = (known.get(name, 0) for name in _IO)
    return (
        DeviceIo(device=_ALL, read_bytes=read, write_bytes=write, read_ops=reads, write_ops=writes),
    )
