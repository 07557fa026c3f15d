"""A v2 group's counters at one instant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from sandbox.kernel.disks import is_stacked
from sandbox.kernel.files import find_text
from sandbox.kernel.parse import parse_io_stat
from sandbox.kernel.roots import Roots
from sandbox.kernel.v2 import find_flat, read_pressure
from sandbox.records.light import dataclass, field
from sandbox.records.result import Pressure

IO_COLUMNS = ("io_read_bytes", "io_write_bytes", "io_read_ops", "io_write_ops")
_IO_LINE = rb"(?m)^(\d+:\d+) rbytes=(\d+) wbytes=(\d+) rios=(\d+) wios=(\d+)\b"
_IO_KEYS = ("rbytes", "wbytes", "rios", "wios")
CPU_COLUMNS = {
    "cpu_user_usec": "user_usec",
    "cpu_system_usec": "system_usec",
    "cpu_periods": "nr_periods",
    "cpu_throttled_periods": "nr_throttled",
    "cpu_throttled_usec": "throttled_usec",
}
RESOURCES = ("cpu", "memory", "io")


class Disks:
    """Tells which devices to count: not those that stand on others, which count again."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._stacked: dict[str, bool] = {}
        self._known: dict[bytes, bool] = {}

    def counted(self, devices: Mapping[str, Mapping[str, int]]) -> dict[str, Mapping[str, int]]:
        """Return the devices of an `io.stat` whose bytes nothing below them counts again."""
        for device in devices.keys() - self._stacked.keys():
            self._stacked[device] = is_stacked(self._roots, device)
        return {name: values for name, values in devices.items() if not self._stacked[name]}

    def sums(self, data: bytes) -> list[int]:
        """Return bytes read, bytes written, reads and writes of the counted devices.

        Raises:
            KernelError: `data` is not an `io.stat`.
        """
        found = re.findall(_IO_LINE, data)
        if len(found) != data.count(b"\n"):  # a form that only the whole grammar knows
            return sum_io(self.counted(parse_io_stat(data)))
        sums = [0, 0, 0, 0]
        for device, *numbers in found:
            if device not in self._known:
                self._known[device] = not self.counted({device.decode("ascii"): {}})
            if not self._known[device]:
                sums = [total + int(number) for total, number in zip(sums, numbers, strict=True)]
        return sums


def sum_io(devices: Mapping[str, Mapping[str, int]]) -> list[int]:
    """Return bytes read, bytes written, reads and writes of all devices together."""
    return [sum(values.get(key, 0) for values in devices.values()) for key in _IO_KEYS]


@dataclass(frozen=True, kw_only=True)
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
            columns.update(
                zip(
                    IO_COLUMNS,
                    sum_io(self.io),
                    strict=True,
                )
            )
        for resource, pressure in self.pressures.items():
            if pressure is not None:
                columns[f"{resource}_pressure_some_usec"] = pressure.some_usec
                if pressure.full_usec is not None:
                    columns[f"{resource}_pressure_full_usec"] = pressure.full_usec
        return columns


def read_snapshot(directory: Path, roots: Roots, outer: Iterable[Path] = ()) -> Snapshot:
    """Return the counters of a group as they are now; `outer` are the groups around it."""
    events = find_flat(directory / "memory.events")
    local = find_flat(directory / "memory.events.local")
    io_text = find_text(directory / "io.stat")
    return Snapshot(
        cpu=find_flat(directory / "cpu.stat"),
        io=None if io_text is None else Disks(roots).counted(parse_io_stat(io_text)),
        pressures={resource: read_pressure(directory, resource) for resource in RESOURCES},
        memory_events=events,
        memory_events_local=local or events,
        pids_events=find_flat(directory / "pids.events"),
        outer_oom=sum(find_flat(group / "memory.events.local").get("oom", 0) for group in outer),
    )
