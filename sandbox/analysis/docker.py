"""Docker's own formulas and number formats, so that what we print beside them is comparable.

Percentages are docker's: 100 % is one CPU, whatever the limit. The formats keep its warts, such as
`1e+03kB` and `1024KiB`, for they are what users compare with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from sandbox.records.result import DeviceIo
from sandbox.units import NS_PER_SEC

UNAVAILABLE = "--"
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB")
_DECIMAL = ("B", "kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB")
_SHORT_ID = 12
_MINUTE, _HOUR = 60, 3_600
_KEPT = 4_096  # texts; of many groups that are watched, most show the same sizes again and again


def docker_cpu_percent(cpu_ns: int, system_ns: int, online_cpus: int) -> float:
    """Return docker's CPU %: the group's share of the host's CPU time, times the host's CPUs.

    Args:
        cpu_ns: how much the group's CPU time grew.
        system_ns: how much the first seven fields of /proc/stat's `cpu` line grew, all CPUs
            together, taken as 100 ticks a second.
        online_cpus: CPUs of the host, whatever the group may use.
    """
    if cpu_ns <= 0 or system_ns <= 0:
        return 0.0
    return cpu_ns / system_ns * online_cpus * 100.0


def wall_cpu_percent(cpu_ns: int, wall_ns: int) -> float:
    """Return the CPU % by the wall clock: what docker's formula aims at, without its jitter."""
    if cpu_ns <= 0 or wall_ns <= 0:
        return 0.0
    return cpu_ns / wall_ns * 100.0


def mem_used(usage_bytes: int, stat: Mapping[str, int]) -> int:
    """Return docker's MEM USAGE: memory without the page cache that is reclaimed first.

    `stat` is memory.stat; `total_inactive_file` is what marks cgroup v1.
    """
    inactive = stat.get("total_inactive_file", stat.get("inactive_file", 0))
    return usage_bytes - inactive if inactive < usage_bytes else usage_bytes


def memory_limit(limit_bytes: int | None, host_total_bytes: int) -> int:
    """Return docker's LIMIT: the group's own, or the host's memory where that is less."""
    return host_total_bytes if limit_bytes is None else min(limit_bytes, host_total_bytes)


def mem_percent(used_bytes: int, limit_bytes: int) -> float:
    """Return docker's MEM %."""
    return used_bytes / limit_bytes * 100.0 if limit_bytes else 0.0


def io_sum(devices: Iterable[DeviceIo]) -> tuple[int, int]:
    """Return docker's BLOCK I/O: bytes read and written over all devices, stacked ones too."""
    read = write = 0
    for device in devices:
        read += device.read_bytes
        write += device.write_bytes
    return read, write


def format_percent(percent: float | None) -> str:
    """Return a percentage as docker's columns: `99.87%`, or `--`."""
    return UNAVAILABLE if percent is None else f"{percent:.2f}%"


def format_binary(size_bytes: float) -> str:
    """Return a size as docker's memory columns: base 1024, four digits."""
    return _scaled(size_bytes, 1024.0, _BINARY, 4)


def format_decimal(size_bytes: float) -> str:
    """Return a size as docker's I/O columns: base 1000, three digits."""
    return _scaled(size_bytes, 1000.0, _DECIMAL, 3)


def format_podman(size_bytes: float) -> str:
    """Return a size as all of podman's columns: base 1000, four digits."""
    return _scaled(size_bytes, 1000.0, _DECIMAL, 4)


@lru_cache(_KEPT)
def format_memory(used_bytes: int | None, limit_bytes: int | None) -> str:
    """Return the column MEM USAGE / LIMIT: `5.629MiB / 2GiB`."""
    if used_bytes is None or limit_bytes is None:
        return f"{UNAVAILABLE} / {UNAVAILABLE}"
    return f"{format_binary(used_bytes)} / {format_binary(limit_bytes)}"


@lru_cache(_KEPT)
def format_io(in_bytes: int | None, out_bytes: int | None) -> str:
    """Return the columns NET I/O and BLOCK I/O: `1.02kB / 0B`."""
    if in_bytes is None or out_bytes is None:
        return UNAVAILABLE
    return f"{format_decimal(in_bytes)} / {format_decimal(out_bytes)}"


def human_duration(duration_ns: int) -> str:
    """Return a duration in docker's words, its largest unit alone: `About a minute`, `2 hours`."""
    seconds = max(duration_ns, 0) // NS_PER_SEC
    hours = (seconds + _HOUR // 2) // _HOUR  # docker rounds hours, and cuts what is longer
    days = hours // 24
    choices = (
        (seconds, 1, "Less than a second"),
        (seconds, 2, "1 second"),
        (seconds, _MINUTE, f"{seconds} seconds"),
        (seconds, 2 * _MINUTE, "About a minute"),
        (seconds, _HOUR, f"{seconds // _MINUTE} minutes"),
        (hours, 2, "About an hour"),
        (hours, 48, f"{hours} hours"),
        (hours, 14 * 24, f"{days} days"),
        (hours, 60 * 24, f"{days // 7} weeks"),
        (hours, 2 * 365 * 24, f"{days // 30} months"),
    )
    years = seconds // _HOUR // 24 // 365
    return next((text for value, bound, text in choices if value < bound), f"{years} years")


def short_id(full_id: str) -> str:
    """Return an id as docker shows it without --no-trunc."""
    return full_id[:_SHORT_ID]


def _scaled(size: float, base: float, units: tuple[str, ...], digits: int) -> str:
    """Divide while the value is not below the base, then round: a carry stays unscaled."""
    value, index = float(size), 0
    while value >= base and index < len(units) - 1:
        value /= base
        index += 1
    return f"{value:.{digits}g}{units[index]}"
