"""The exact totals of a v2 group between two readings of its counters."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sandbox.errors import KernelError
from sandbox.kernel.disks import label_disk
from sandbox.kernel.parse import parse_number
from sandbox.kernel.roots import Roots
from sandbox.kernel.unified_snapshot import Snapshot
from sandbox.kernel.v2 import pressure_since
from sandbox.records.result import DeviceIo, Pressure, Totals

_IO_FIELDS = {
    "read_bytes": "rbytes",
    "write_bytes": "wbytes",
    "read_ops": "rios",
    "write_ops": "wios",
}


class PeakFile:
    """The largest value so far of `memory.peak` or `memory.swap.peak`.

    Since Linux 6.12 a write starts the peak anew, for the descriptor that wrote alone: so the
    descriptor is kept. Before, the peak counts from the making of the group.
    """

    def __init__(self, path: Path) -> None:
        self.largest = 0
        """What was read so far, restarts or not."""
        self._fd = -1
        for flags in (os.O_RDWR, os.O_RDONLY):
            try:
                self._fd = os.open(path, flags | os.O_CLOEXEC)
                break
            except OSError:
                continue

    def restart(self) -> bool:
        """Forget what was before; return whether the kernel can."""
        try:
            os.write(self._fd, b"0\n")
        except OSError:
            return False
        return True

    def read(self) -> int | None:
        """Return the peak, or None where this kernel has none."""
        try:
            value = parse_number(os.pread(self._fd, 64, 0))
        except (OSError, KernelError):
            return None
        self.largest = max(self.largest, value)
        return value

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
            devices.append(DeviceIo(device=label_disk(roots, device), **used))
    return tuple(devices)
