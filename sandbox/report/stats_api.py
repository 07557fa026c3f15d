"""A row of `sandbox stats` as the object that docker's `GET /containers/{id}/stats` answers.

Numbers are docker's units: CPU time in nanoseconds, sizes in bytes. What this host cannot give is
left out, apart from what docker's own parsers cannot do without; a sandbox that has ended has its
names and zeros.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from sandbox.analysis.docker import memory_limit
from sandbox.records.result import DeviceIo, NetworkIo
from sandbox.records.stats import StatsReading, StatsRow
from sandbox.units import NS_PER_SEC

_NEVER = "0001-01-01T00:00:00Z"
_UNLIMITED_V2 = (1 << 64) - 1
_V2 = 2
_BLKIO_KEYS = (
    "io_service_bytes_recursive",
    "io_serviced_recursive",
    "io_queue_recursive",
    "io_service_time_recursive",
    "io_wait_time_recursive",
    "io_merged_recursive",
    "io_time_recursive",
    "sectors_recursive",
)
_V1_OWN_KEYS = (
    "active_anon",
    "active_file",
    "cache",
    "dirty",
    "inactive_anon",
    "inactive_file",
    "mapped_file",
    "pgfault",
    "pgmajfault",
    "pgpgin",
    "pgpgout",
    "rss",
    "rss_huge",
    "unevictable",
    "writeback",
)
_V1_MEMORY_KEYS = (
    *_V1_OWN_KEYS,
    "hierarchical_memory_limit",
    "hierarchical_memsw_limit",
    *(f"total_{key}" for key in _V1_OWN_KEYS),
)
_V2_MEMORY_KEYS = (
    "active_anon",
    "active_file",
    "anon",
    "anon_thp",
    "file",
    "file_dirty",
    "file_mapped",
    "file_writeback",
    "inactive_anon",
    "inactive_file",
    "kernel_stack",
    "pgactivate",
    "pgdeactivate",
    "pgfault",
    "pglazyfree",
    "pglazyfreed",
    "pgmajfault",
    "pgrefill",
    "pgscan",
    "pgsteal",
    "shmem",
    "slab",
    "slab_reclaimable",
    "slab_unreclaimable",
    "sock",
    "thp_collapse_alloc",
    "thp_fault_alloc",
    "unevictable",
    "workingset_activate",
    "workingset_nodereclaim",
    "workingset_refault",
)
_INTERFACE_KEYS = (
    "rx_bytes",
    "rx_packets",
    "rx_errors",
    "rx_dropped",
    "tx_bytes",
    "tx_packets",
    "tx_errors",
    "tx_dropped",
)


def render_api(rows: Iterable[StatsRow]) -> str:
    """Return one object a line, as docker's stream of one container has them."""
    return "".join(json.dumps(api_object(row), separators=(",", ":")) + "\n" for row in rows)


def api_object(row: StatsRow) -> dict[str, Any]:
    """Return the object of one row, shaped as on a cgroup v1 or v2 host."""
    now, before = row.now, row.before
    answer: dict[str, Any] = {
        "id": row.id,
        "name": "/" + row.name.removeprefix("/"),
        "os_type": "linux",
        "read": _NEVER if now is None else rfc3339(now.utc_ns),
        "preread": _NEVER if before is None else rfc3339(before.utc_ns),
        "num_procs": 0,
        "pids_stats": _pids(row),
        "storage_stats": {},
        "cpu_stats": _cpu(now),
        "precpu_stats": _cpu(before),
        "memory_stats": _memory(row),
        "blkio_stats": _blkio(row),
    }
    if now is not None and now.network:
        answer["networks"] = {port.name: _interface(port) for port in now.network}
    return answer


def rfc3339(utc_ns: int) -> str:
    """Return a time with nanoseconds as Go writes it: without zeros at its end."""
    from datetime import UTC, datetime

    seconds, fraction = divmod(utc_ns, NS_PER_SEC)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    digits = f".{fraction:09d}".rstrip("0").rstrip(".")
    return f"{text}{digits}Z"


def _known(**values: int | None) -> dict[str, int]:
    return {name: value for name, value in values.items() if value is not None}


def _pids(row: StatsRow) -> dict[str, int]:
    if row.now is None:
        return {}
    limit = row.pids_limit
    if limit is None and row.cgroup_version == _V2:
        limit = _UNLIMITED_V2
    return _known(current=row.now.pids, limit=limit)


def _cpu(reading: StatsReading | None) -> dict[str, Any]:
    if reading is None:
        zero = _known(total_usage=0, usage_in_kernelmode=0, usage_in_usermode=0)
        return {"cpu_usage": zero, "throttling_data": _throttling(0, 0, 0)}
    usage: dict[str, Any] = dict(
        _known(
            total_usage=reading.cpu_usage_ns,
            usage_in_kernelmode=reading.cpu_system_ns,
            usage_in_usermode=reading.cpu_user_ns,
        )
    )
    if reading.cpu_percpu_ns is not None:
        usage["percpu_usage"] = list(reading.cpu_percpu_ns)
    return {
        "cpu_usage": usage,
        **_known(system_cpu_usage=reading.host_cpu_ns, online_cpus=reading.cpus_online),
        "throttling_data": _throttling(
            reading.cpu_periods, reading.cpu_throttled_periods, reading.cpu_throttled_ns
        ),
    }


def _throttling(
    periods: int | None, throttled_periods: int | None, throttled_ns: int | None
) -> dict[str, int]:
    return _known(periods=periods, throttled_periods=throttled_periods, throttled_time=throttled_ns)


def _memory(row: StatsRow) -> dict[str, Any]:
    now = row.now
    if now is None:
        return {}
    v2 = row.cgroup_version == _V2
    known_keys = _V2_MEMORY_KEYS if v2 else _V1_MEMORY_KEYS
    stat = {key: value for key, value in (now.memory_stat or {}).items() if key in known_keys}
    limit = memory_limit(row.memory_limit_bytes, row.host_memory_bytes)
    known = _known(
        usage=now.memory_usage_bytes,
        max_usage=None if v2 else now.memory_peak_bytes,  # docker fills it on v1 alone
        failcnt=now.memory_failures or None,  # docker leaves out a 0
        limit=limit,
    )
    return {**known, "stats": stat}


def _blkio(row: StatsRow) -> dict[str, Any]:
    v2 = row.cgroup_version == _V2
    if row.now is None:
        return dict.fromkeys(_BLKIO_KEYS)
    answer: dict[str, Any] = dict.fromkeys(_BLKIO_KEYS, None if v2 else [])
    if not row.now.io:
        return answer
    names = ("read", "write") if v2 else ("Read", "Write")
    answer["io_service_bytes_recursive"] = [
        entry
        for device in row.now.io
        for entry in _entries(device, names, (device.read_bytes, device.write_bytes))
    ]
    if not v2:
        answer["io_serviced_recursive"] = [
            entry
            for device in row.now.io
            for entry in _entries(device, names, (device.read_ops, device.write_ops))
        ]
    return answer


def _entries(
    device: DeviceIo, names: tuple[str, str], values: tuple[int, int]
) -> list[dict[str, Any]]:
    """Return one entry an operation; the device is `8:0` or `8:0 sda`."""
    major, _, minor = device.device.partition(" ")[0].partition(":")
    return [
        {"major": int(major), "minor": int(minor), "op": name, "value": value}
        for name, value in zip(names, values, strict=True)
    ]


def _interface(port: NetworkIo) -> dict[str, int]:
    return {key: value for key in _INTERFACE_KEYS if (value := getattr(port, key)) is not None}
