"""Rows of `sandbox stats` for programs: raw integers with both clocks, as CSV or as JSON lines.

A value that cannot be told is an empty cell or null, never 0. The column names carry the units.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter

from sandbox.analysis.live import whose_network
from sandbox.records.result import DeviceIo, NetworkIo, Pressure
from sandbox.records.stats import StatsReading, StatsRow

_Cell = int | str | None


def _plain(*names: str) -> dict[str, Callable[[StatsReading], _Cell]]:
    return {name: attrgetter(name) for name in names}


def _stat(*keys: str) -> Callable[[StatsReading], _Cell]:
    """Return a key of memory.stat: the first that is there, so that v1's totals come first."""

    def column(reading: StatsReading) -> _Cell:
        stat = reading.memory_stat or {}
        return next((stat[key] for key in keys if key in stat), None)

    return column


def _io(name: str) -> Callable[[StatsReading], _Cell]:
    def column(reading: StatsReading) -> _Cell:
        return _sum(reading.io, name)

    return column


def _network(name: str) -> Callable[[StatsReading], _Cell]:
    def column(reading: StatsReading) -> _Cell:
        return _sum(reading.network, name)

    return column


def _sum(parts: tuple[DeviceIo, ...] | tuple[NetworkIo, ...] | None, name: str) -> int | None:
    if parts is None:
        return None
    values = [getattr(part, name) for part in parts]
    return None if None in values else sum(values)


def _pressure(resource: str, name: str) -> Callable[[StatsReading], _Cell]:
    def column(reading: StatsReading) -> _Cell:
        pressure: Pressure | None = getattr(reading, f"{resource}_pressure")
        value: int | None = getattr(pressure, name, None)
        return value

    return column


_READING: Mapping[str, Callable[[StatsReading], _Cell]] = {
    **_plain(
        "cpu_usage_ns",
        "cpu_user_ns",
        "cpu_system_ns",
        "cpu_periods",
        "cpu_throttled_periods",
        "cpu_throttled_ns",
        "host_cpu_ns",
        "cpus_online",
        "memory_usage_bytes",
    ),
    "memory_anon_bytes": _stat("anon", "total_rss"),
    "memory_file_bytes": _stat("file", "total_cache"),
    "memory_inactive_file_bytes": _stat("total_inactive_file", "inactive_file"),
    "memory_shmem_bytes": _stat("total_shmem", "shmem"),
    **_plain("memory_peak_bytes", "memory_failures", "swap_bytes", "pids", "processes"),
    "io_read_bytes": _io("read_bytes"),
    "io_write_bytes": _io("write_bytes"),
    "io_read_ops": _io("read_ops"),
    "io_write_ops": _io("write_ops"),
    "net_rx_bytes": _network("rx_bytes"),
    "net_tx_bytes": _network("tx_bytes"),
    "cpu_pressure_some_usec": _pressure("cpu", "some_usec"),
    "cpu_pressure_full_usec": _pressure("cpu", "full_usec"),
    "memory_pressure_some_usec": _pressure("memory", "some_usec"),
    "memory_pressure_full_usec": _pressure("memory", "full_usec"),
    "io_pressure_some_usec": _pressure("io", "some_usec"),
    "io_pressure_full_usec": _pressure("io", "full_usec"),
}
_LIMITS = (
    "memory_limit_bytes",
    "swap_limit_bytes",
    "pids_limit",
    "cpu_quota_usec",
    "cpu_period_usec",
    "cpus_allowed",
    "host_memory_bytes",
)
COLUMNS = ("time_ns", "utc_ns", "id", "name", "state", *_READING, *_LIMITS, "network")
"""The columns of every row, in order; new ones are only ever added at the end."""


def cells(row: StatsRow) -> dict[str, _Cell]:
    """Return one row by column."""
    now = row.now
    values: dict[str, _Cell] = {
        "time_ns": None if now is None else now.time_ns,
        "utc_ns": None if now is None else now.utc_ns,
        "id": row.id,
        "name": row.name,
        "state": row.state.value,
    }
    for name, column in _READING.items():
        values[name] = None if now is None else column(now)
    for name in _LIMITS:
        values[name] = getattr(row, name)
    values["network"] = whose_network(row)
    return values


def render_jsonl(rows: Iterable[StatsRow]) -> str:
    """Return one JSON object a line."""
    return "".join(json.dumps(cells(row), separators=(",", ":")) + "\n" for row in rows)


def render_csv(rows: Iterable[StatsRow], *, header: bool) -> str:
    """Return lines of CSV, under the names of the columns if `header`."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if header:
        writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow(cells(row).values())
    return out.getvalue()
