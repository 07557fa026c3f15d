"""A v2 group's counters at one instant, and the exact totals between two of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.errors import KernelError
from sandbox.kernel.files import find_text
from sandbox.kernel.parse import parse_io_stat, parse_number
from sandbox.kernel.roots import Roots
from sandbox.kernel.unified_reader import CPU_COLUMNS, IO_COLUMNS, RESOURCES, sum_io
from sandbox.kernel.v2 import find_flat, pressure_since, read_pressure
from sandbox.records.result import DeviceIo, Pressure, Totals

_IO_FIELDS = {
    "read_bytes": "rbytes",
    "write_bytes": "wbytes",
    "read_ops": "rios",
    "write_ops": "wios",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Every counter of a group; what the group does not have is missing or None."""

    cpu: Mapping[str, int] = field(default_factory=dict)
    io: Mapping[str, Mapping[str, int]] | None = None
    pressures: Mapping[str, Pressure | None] = field(default_factory=dict)
    memory_events: Mapping[str, int] = field(default_factory=dict)
    """With the groups below."""
    memory_events_local: Mapping[str, int] = field(default_factory=dict)
    """The group's own; those of all groups together before Linux 5.2."""
    pids_events: Mapping[str, int] = field(default_factory=dict)
    outer_oom: int = 0
    """Times that a group around ran out of its own limit."""

    def as_columns(self) -> dict[str, int]:
        """Return the counters by the names that samples have."""
        columns = {column: self.cpu[key] for column, key in CPU_COLUMNS.items() if key in self.cpu}
        if "usage_usec" in self.cpu:
            columns["cpu_usage_usec"] = self.cpu["usage_usec"]
        if self.io is not None:
            columns.update(zip(IO_COLUMNS, sum_io(self.io), strict=True))
        for resource, pressure in self.pressures.items():
            if pressure is not None:
                columns[f"{resource}_pressure_some_usec"] = pressure.some_usec
                if pressure.full_usec is not None:
                    columns[f"{resource}_pressure_full_usec"] = pressure.full_usec
        return columns


def read_snapshot(directory: Path, outer: Iterable[Path]) -> Snapshot:
    """Return the counters of a group as they are now; `outer` are the groups around it."""
    events = find_flat(directory / "memory.events")
    local = find_flat(directory / "memory.events.local")
    io_text = find_text(directory / "io.stat")
    return Snapshot(
        cpu=find_flat(directory / "cpu.stat"),
        io=None if io_text is None else parse_io_stat(io_text),
        pressures={resource: read_pressure(directory, resource) for resource in RESOURCES},
        memory_events=events,
        memory_events_local=local or events,
        pids_events=find_flat(directory / "pids.events"),
        outer_oom=sum(find_flat(group / "memory.events.local").get("oom", 0) for group in outer),
    )


class PeakFile:
    """The largest value so far of `memory.peak` or `memory.swap.peak`.

    Since Linux 6.12 a write starts the peak anew, for the descriptor that wrote alone: so the
    descriptor is kept. Before, the peak counts from the making of the group.
    """

    def __init__(self, path: Path) -> None:
        self._fd = -1
        for flags in (os.O_RDWR, os.O_RDONLY):
            try:
                self._fd = os.open(path, flags | os.O_CLOEXEC)
                break
            except OSError:
                continue

    def restart(self) -> None:
        """Forget what was before, where the kernel can."""
        try:
            os.write(self._fd, b"0\n")
        except OSError:
            return

    def read(self) -> int | None:
        """Return the peak, or None where this kernel has none."""
        try:
            return parse_number(os.pread(self._fd, 64, 0))
        except (OSError, KernelError):
            return None

    def close(self) -> None:
        """Close the descriptor."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def totals_between(
    before: Snapshot,
    after: Snapshot,
    *,
    roots: Roots,
    peaks: tuple[int | None, int | None, int | None],
) -> Totals:
    """Return what was used between two snapshots; `peaks` are those of memory, swap and pids."""
    memory_peak, swap_peak, pids_peak = peaks

    def grown(field_name: str, key: str) -> int | None:
        now: Mapping[str, int] = getattr(after, field_name)
        then: Mapping[str, int] = getattr(before, field_name)
        return now[key] - then.get(key, 0) if key in now else None

    return Totals(
        cpu_usage_usec=grown("cpu", "usage_usec"),
        cpu_user_usec=grown("cpu", "user_usec"),
        cpu_system_usec=grown("cpu", "system_usec"),
        cpu_periods=grown("cpu", "nr_periods"),
        cpu_throttled_periods=grown("cpu", "nr_throttled"),
        cpu_throttled_usec=grown("cpu", "throttled_usec"),
        memory_peak_bytes=memory_peak,
        memory_peak_source=None if memory_peak is None else "kernel",
        swap_peak_bytes=swap_peak,
        oom_events=grown("memory_events_local", "oom"),
        oom_kills=grown("memory_events", "oom_kill"),
        limit_hits=grown("memory_events_local", "max"),
        pids_peak=pids_peak,
        pids_refused=grown("pids_events", "max"),
        io=_io_between(before.io, after.io, roots),
        cpu_pressure=_pressure(before, after, "cpu"),
        memory_pressure=_pressure(before, after, "memory"),
        io_pressure=_pressure(before, after, "io"),
    )


def _pressure(before: Snapshot, after: Snapshot, resource: str) -> Pressure | None:
    return pressure_since(before.pressures.get(resource), after.pressures.get(resource))


def _io_between(
    before: Mapping[str, Mapping[str, int]] | None,
    after: Mapping[str, Mapping[str, int]] | None,
    roots: Roots,
) -> tuple[DeviceIo, ...] | None:
    """Return the I/O of each device that saw any."""
    if after is None:
        return None
    devices = []
    for device, now in sorted(after.items()):
        then = (before or {}).get(device, {})
        used = {name: now.get(key, 0) - then.get(key, 0) for name, key in _IO_FIELDS.items()}
        if any(used.values()):
            devices.append(DeviceIo(device=name_device(device, roots), **used))
    return tuple(devices)


def name_device(device: str, roots: Roots) -> str:
    """Return `8:0 sda` for `8:0`, or the numbers alone where the kernel does not name it."""
    text = find_text(roots.sys / "dev" / "block" / device / "uevent") or ""
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key == "DEVNAME" and value:
            return f"{device} {value}"
    return device
