"""The v1 control files: their names and grammar, and the settings among them by cgroupspy.

cgroupspy's controllers know which files hold limits and how their values are written. Its own
reader and writer are replaced by ours: a buffered write would lose the kernel's refusal or create
a file that the kernel lacks. It is imported when the first limit is set, never while sampling.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from sandbox.errors import KernelError
from sandbox.kernel.files import (
    find_text,
    list_tree,
    read_text,
    write_and_read_back,
    write_text,
)
from sandbox.kernel.parse import (
    parse_blkio,
    parse_flat,
    parse_limit,
    parse_pids,
)
from sandbox.records.light import dataclass
from sandbox.units import UNLIMITED

USED = ("cpu", "memory", "pids", "cpuset", "blkio")
"""The controllers that a run's groups are made in; CPU time and freezing are v2's."""

ENTRANCE = "tasks"
"""Takes one thread. For `0`, the caller itself, the kernel need not stop the world as it does for
`cgroup.procs` (Linux 5.5), which saves the launch several milliseconds."""

CPU_STAT = "cpu.stat"
MEMORY_USAGE = "memory.usage_in_bytes"
MEMORY_PEAK = "memory.max_usage_in_bytes"
MEMORY_SWAP_PEAK = "memory.memsw.max_usage_in_bytes"
MEMORY_KERNEL = "memory.kmem.usage_in_bytes"
MEMORY_STAT = "memory.stat"
MEMORY_REFUSALS = ("memory.failcnt", "memory.memsw.failcnt")
OOM_CONTROL = "memory.oom_control"
EVENT_CONTROL = "cgroup.event_control"
CPUSET_MEMS = "cpuset.mems"
PIDS_CURRENT = "pids.current"
PIDS_PEAK = "pids.peak"
PIDS_EVENTS = "pids.events"
IO_BYTES = "blkio.throttle.io_service_bytes_recursive"
IO_OPERATIONS = "blkio.throttle.io_serviced_recursive"
_IO_LIMIT = "blkio.throttle.read_bps_device"

_MOST_PIDS = 1 << 22  # the kernel's PID_MAX_LIMIT; it refuses a larger number
_NS_PER_USEC = 1_000


@dataclass(frozen=True)
class Setting:
    """One file that can be set: its controller, its name, and cgroupspy's name for it.

    The last is empty for `pids`, which cgroupspy does not know.
    """

    controller: str
    file: str
    attribute: str


CPU_PERIOD = Setting("cpu", "cpu.cfs_period_us", "cfs_period_us")
CPU_QUOTA = Setting("cpu", "cpu.cfs_quota_us", "cfs_quota_us")
CPU_SHARES = Setting("cpu", "cpu.shares", "shares")
CPUSET_CPUS = Setting("cpuset", "cpuset.cpus", "cpus")
MEMORY_LIMIT = Setting("memory", "memory.limit_in_bytes", "limit_in_bytes")
MEMORY_SWAP_LIMIT = Setting("memory", "memory.memsw.limit_in_bytes", "memsw_limit_in_bytes")
MEMORY_SOFT_LIMIT = Setting("memory", "memory.soft_limit_in_bytes", "soft_limit_in_bytes")
PIDS_LIMIT = Setting("pids", "pids.max", "")


class _Files:
    """Stands before a cgroupspy controller and reads and writes in its place.

    `node` may be anything with a `full_path`, which is all that a controller takes from it.
    """

    node: Any

    def get_property(self, filename: bytes) -> str:
        return read_text(self._path(filename)).strip()

    def set_property(self, filename: bytes, value: object) -> None:
        write_text(self._path(filename), str(value).strip())

    def _path(self, filename: bytes) -> str:
        return f"{os.fsdecode(self.node.full_path)}/{os.fsdecode(filename)}"


@dataclass(frozen=True)
class _Node:
    full_path: bytes


@cache
def _controllers() -> Mapping[str, Any]:
    """Return our subclass of each cgroupspy controller; its `nodes` would load logging as well."""
    from cgroupspy import controllers

    return {
        "cpu": type("Cpu", (_Files, controllers.CpuController), {}),
        "cpuset": type("CpuSet", (_Files, controllers.CpuSetController), {}),
        "memory": type("Memory", (_Files, controllers.MemoryController), {}),
    }


def _open(directory: Path, setting: Setting) -> Any:
    return _controllers()[setting.controller](_Node(os.fsencode(directory)))


def write_number(directory: Path, setting: Setting, value: int) -> int:
    """Write one limit and return what the kernel made of it; `UNLIMITED` takes a limit away.

    Raises:
        KernelError: the file is missing, or the kernel refused the value; `errno` says why.
    """
    if not setting.attribute:
        text = "max" if value > _MOST_PIDS else str(value)
        return parse_limit(write_and_read_back(f"{directory}/{setting.file}", text))
    group = _open(directory, setting)
    # None is how cgroupspy's integers say -1, v1's word for no limit.
    setattr(group, setting.attribute, None if value == UNLIMITED else value)
    return _get_number(group, directory, setting)


def read_number(directory: Path, setting: Setting) -> int:
    """Return one limit; `UNLIMITED` for none.

    Raises:
        KernelError: the file is missing or cannot be read.
    """
    if not setting.attribute:
        return parse_limit(read_text(f"{directory}/{setting.file}"))
    return _get_number(_open(directory, setting), directory, setting)


def _get_number(group: Any, directory: Path, setting: Setting) -> int:
    value = _get(group, directory, setting)
    # v1's "no limit" is -1, or the largest multiple of a page.
    return UNLIMITED if value is None else parse_limit(str(value))


def _get(group: Any, directory: Path, setting: Setting) -> Any:
    try:
        return getattr(group, setting.attribute)
    except ValueError as exc:
        raise KernelError(f"cannot understand {directory / setting.file}: {exc}") from exc


def write_numbers(directory: Path, setting: Setting, values: Iterable[int]) -> frozenset[int]:
    """Write a list of CPUs or memory nodes and return what the kernel made of it.

    Raises:
        KernelError: the file is missing, or the kernel refused the list; `errno` says why.
    """
    group = _open(directory, setting)
    setattr(group, setting.attribute, set(values))
    return frozenset(_get(group, directory, setting))


def read_numbers(directory: Path, setting: Setting) -> frozenset[int]:
    """Return a list of CPUs or memory nodes.

    Raises:
        KernelError: the file is missing or cannot be read.
    """
    return frozenset(_get(_open(directory, setting), directory, setting))


def fill_cpuset(parent: Path, directories: Iterable[Path]) -> None:
    """Give new cpuset groups what their parent has: they start empty, and nobody could join.

    Raises:
        KernelError: a file is missing, or the kernel refused.
    """
    # Memory nodes first, as the kernel wants it. Both are empty where the mount behaves as v2.
    texts = {
        name: read_text(f"{parent}/{name}").strip() for name in (CPUSET_MEMS, CPUSET_CPUS.file)
    }
    for directory in directories:
        for name, text in texts.items():
            if text:
                write_text(f"{directory}/{name}", text)


def count_io(directory: Path, disks: Iterable[str]) -> None:
    """Make the kernel count a group's I/O on `disks`, by a limit of 0, which is none.

    Since Linux 6.10 a disk is counted only once any group has configured it; the first time takes
    some 25 ms a disk, and it stays counted as long as the disk is there.
    """
    for disk in disks:
        try:
            write_text(directory / _IO_LIMIT, f"{disk} 0")
        except KernelError:
            continue  # it was unplugged, or cannot be throttled: the counters will lack it


def restart_peak(path: str | None) -> None:
    """Start a `max_usage` file anew from what is in use now, if there is such a file."""
    if path is None:
        return
    try:
        write_text(path, "0")
    except KernelError as error:
        if error.errno != errno.ENOENT:
            raise


def count_everywhere(directory: Path, file: str, key: str) -> int | None:
    """Return the sum of one key of a flat file over a group and all below; None if none has it.

    v1 counts OOM kills and refused forks only in the group that the process was in.
    """
    total: int | None = None
    for group in list_tree(directory):
        text = find_text(f"{group}/{file}")
        value = None if text is None else parse_flat(text).get(key)
        if value is not None:
            total = (total or 0) + value
    return total


def list_pids(directories: Iterable[Path]) -> tuple[int, ...]:
    """Return the processes in several groups and all below, ascending."""
    found: set[int] = set()
    for directory in directories:
        for group in list_tree(directory):
            found.update(parse_pids(find_text(f"{group}/cgroup.procs") or ""))
    return tuple(sorted(found))


def parse_throttling(data: bytes | str) -> tuple[int, int, int] | None:
    """Return periods, throttled periods and throttled microseconds; None if they are not there.

    They lack where the kernel was built without CPU bandwidth control.

    Raises:
        KernelError: it is no such file.
    """
    values = parse_flat(data)
    try:
        return (
            values["nr_periods"],
            values["nr_throttled"],
            values["throttled_time"] // _NS_PER_USEC,
        )
    except KeyError:
        return None


def parse_reads_and_writes(data: bytes | str) -> dict[str, tuple[int, int]]:
    """Return what a blkio file says was read and written, by device.

    Raises:
        KernelError: it is no such file.
    """
    return {
        device: (operations.get("Read", 0), operations.get("Write", 0))
        for device, operations in parse_blkio(data).items()
    }
