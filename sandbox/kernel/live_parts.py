"""What can be read of a live group, controller by controller: each part fills a few fields.

A part opens its files once and returns a function that reads them again, in the words of
`StatsReading`. Nothing is ever written: the group may be anybody's. `is_whole` asks for all that
the group tells; without it only what docker's columns need is read.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sandbox.errors import KernelError
from sandbox.kernel.files import KeptFile
from sandbox.kernel.parse import (
    find_flat,
    parse_blkio,
    parse_flat,
    parse_io_stat,
    parse_number,
    parse_pids,
    parse_pressure,
)
from sandbox.records.result import DeviceIo, Pressure

Read = Callable[[], dict[str, Any]]
"""Return fields of a reading.

Raises:
    KernelError: a file can no longer be read; ENODEV once the group was removed.
"""

_NS_PER_USEC = 1_000
_DOCKER_TICK_NS = 10_000_000  # docker takes /proc/stat as 100 ticks a second on every host
_FRESH_NS = 2_000_000  # the kernel counts in ticks of at least a millisecond
_STAT_NS = 900_000_000  # so that a display of one second has it new every time
_SHARE_THAT_COUNTS = 20
_V1_IO = (  # where a scheduler counts, it has the whole; else the throttling layer
    ("blkio.bfq.io_service_bytes_recursive", "blkio.bfq.io_serviced_recursive"),
    ("blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_serviced_recursive"),
    ("blkio.throttle.io_service_bytes", "blkio.throttle.io_serviced"),
)


class Files:
    """The descriptors of one reader."""

    def __init__(self) -> None:
        self._kept: list[KeptFile] = []

    def find(self, path: Path | str) -> KeptFile | None:
        """Open a file, or return None where there is none or it cannot be read.

        Raises:
            KernelError: this process may not open any more.
        """
        try:
            file = KeptFile(path)
        except KernelError as error:
            if error.errno in {errno.EMFILE, errno.ENFILE}:
                raise KernelError(
                    f"cannot open {path}: too many files are open",
                    hint="watch fewer at once, or raise `ulimit -n`: each takes about ten",
                    errno=error.errno,
                ) from error
            return None
        try:
            file.read()
        except KernelError:
            file.close()
            return None
        self._kept.append(file)
        return file

    def drop(self, file: KeptFile | None) -> None:
        """Close one file early, if there is one."""
        if file is not None:
            self._kept.remove(file)
            file.close()

    def close(self) -> None:
        """Close all; a second time does nothing."""
        for file in self._kept:
            file.close()


class HostCpu:
    """The whole host's CPU time as docker counts it, shared by the readers of many groups."""

    def __init__(self, proc: Path) -> None:
        """Open `/proc/stat`.

        Raises:
            KernelError: `/proc` is not mounted.
        """
        self._file = KeptFile(proc / "stat")
        self._read_ns = 0
        self._values: dict[str, Any] = {}

    def read(self) -> dict[str, Any]:
        """Return the host's CPU time and its number of CPUs, at most two milliseconds old."""
        now_ns = time.monotonic_ns()
        if not self._values or now_ns - self._read_ns > _FRESH_NS:
            data = self._file.read()
            ticks = sum(map(int, data[: data.index(b"\n")].split()[1:8]))
            cpus = data.count(b"\ncpu")
            self._values = {"host_cpu_ns": ticks * _DOCKER_TICK_NS, "cpus_online": cpus}
            self._read_ns = now_ns
        return self._values

    def close(self) -> None:
        """Close the file."""
        self._file.close()


# --- CPU ------------------------------------------------------------------------------------------


def cpuacct(directory: Path, files: Files, *, is_whole: bool) -> Read | None:
    """Read v1's CPU time, by CPU and by mode as well."""
    usage = files.find(directory / "cpuacct.usage")
    if usage is None:
        return None
    by_mode = files.find(directory / "cpuacct.stat") if is_whole else None
    by_cpu = files.find(directory / "cpuacct.usage_percpu") if is_whole else None
    tick_ns = 10**9 // os.sysconf("SC_CLK_TCK")

    def read() -> dict[str, Any]:
        values: dict[str, Any] = {"cpu_usage_ns": parse_number(usage.read())}
        if by_mode is not None:
            ticks = parse_flat(by_mode.read())
            values["cpu_user_ns"] = ticks["user"] * tick_ns
            values["cpu_system_ns"] = ticks["system"] * tick_ns
        if by_cpu is not None:
            values["cpu_percpu_ns"] = tuple(map(int, by_cpu.read().split()))
        return values

    return read


def cpu_stat(directory: Path, files: Files, *, is_whole: bool) -> Read | None:
    """Read v2's CPU time, by mode and with the throttling that the group has."""
    file = files.find(directory / "cpu.stat")
    if file is None:
        return None

    def read_usage() -> dict[str, Any]:
        # `usage_usec` is the first line of every kernel's cpu.stat.
        return {"cpu_usage_ns": int(file.read().split(None, 2)[1]) * _NS_PER_USEC}

    def read() -> dict[str, Any]:
        stat = parse_flat(file.read())
        values = {
            "cpu_usage_ns": stat["usage_usec"] * _NS_PER_USEC,
            "cpu_user_ns": stat["user_usec"] * _NS_PER_USEC,
            "cpu_system_ns": stat["system_usec"] * _NS_PER_USEC,
        }
        if "nr_periods" in stat:
            values["cpu_periods"] = stat["nr_periods"]
            values["cpu_throttled_periods"] = stat["nr_throttled"]
            values["cpu_throttled_ns"] = stat["throttled_usec"] * _NS_PER_USEC
        return values

    return read if is_whole else read_usage


def throttling(directory: Path, files: Files) -> Read | None:
    """Read v1's enforcement of the quota."""
    file = files.find(directory / "cpu.stat")
    if file is None or "nr_periods" not in parse_flat(file.read()):
        return None

    def read() -> dict[str, Any]:
        stat = parse_flat(file.read())
        return {
            "cpu_periods": stat["nr_periods"],
            "cpu_throttled_periods": stat["nr_throttled"],
            "cpu_throttled_ns": stat["throttled_time"],
        }

    return read


# --- memory ---------------------------------------------------------------------------------------


def memory_v1(directory: Path, files: Files, *, is_whole: bool) -> Read | None:
    """Read v1's memory: usage, what it is made of, its peak, refusals and swap."""
    extra = {
        "memory_peak_bytes": "memory.max_usage_in_bytes",
        "memory_failures": "memory.failcnt",
    }
    read = _memory(
        files.find(directory / "memory.usage_in_bytes"),
        files.find(directory / "memory.stat"),
        "total_inactive_file",
        {name: files.find(directory / file) for name, file in extra.items() if is_whole},
        is_whole=is_whole,
    )
    if read is None or not is_whole:
        return read

    def with_swap() -> dict[str, Any]:
        values = read()
        values["swap_bytes"] = values.get("memory_stat", {}).get("total_swap")
        return values

    return with_swap


def memory_v2(directory: Path, files: Files, *, is_whole: bool) -> Read | None:
    """Read v2's memory: usage, what it is made of, its peak, OOMs and swap."""
    extra = {"memory_peak_bytes": "memory.peak", "swap_bytes": "memory.swap.current"}
    events = files.find(directory / "memory.events") if is_whole else None
    read = _memory(
        files.find(directory / "memory.current"),
        files.find(directory / "memory.stat"),
        "inactive_file",
        {name: files.find(directory / file) for name, file in extra.items() if is_whole},
        is_whole=is_whole,
    )
    if read is None or events is None:
        return read

    def with_events() -> dict[str, Any]:
        values = read()
        values["memory_failures"] = parse_flat(events.read()).get("oom")
        return values

    return with_events


def _memory(
    usage: KeptFile | None,
    stat: KeptFile | None,
    inactive: str,
    extra: dict[str, KeptFile | None],
    *,
    is_whole: bool,
) -> Read | None:
    """Read a few numbers; of memory.stat, which is dear, all or what docker subtracts.

    The latter is read again once a second as docker does, and at once when usage has changed by
    more than a twentieth.
    """
    if usage is None:
        return None
    numbers = [(name, file) for name, file in extra.items() if file is not None]

    def read() -> dict[str, Any]:
        values: dict[str, Any] = {"memory_usage_bytes": parse_number(usage.read())}
        if stat is not None:
            values["memory_stat"] = parse_flat(stat.read())
        for name, file in numbers:
            values[name] = parse_number(file.read())
        return values

    part: dict[str, int] = {}
    read_ns = read_bytes = 0

    def read_few() -> dict[str, Any]:
        nonlocal part, read_ns, read_bytes
        used = int(usage.read())
        now_ns = time.monotonic_ns()
        changed = abs(used - read_bytes) * _SHARE_THAT_COUNTS
        if stat is not None and (changed > read_bytes or now_ns - read_ns > _STAT_NS):
            part = find_flat(stat.read(), (inactive,))
            read_ns, read_bytes = now_ns, used
        return {"memory_usage_bytes": used, "memory_stat": part}

    return read if is_whole else read_few


# --- I/O ------------------------------------------------------------------------------------------


def io_v1(directory: Path, files: Files) -> Read | None:
    """Read v1's block I/O by device."""
    moved = requests = None
    for names in _V1_IO:
        files.drop(moved)
        files.drop(requests)
        moved, requests = (files.find(directory / name) for name in names)
        if moved is not None and requests is not None and parse_blkio(moved.read()):
            break
    if moved is None or requests is None:
        return None

    def parse(data: bytes) -> Iterator[DeviceIo]:
        asked = parse_blkio(requests.read())
        for device, moved_bytes in parse_blkio(data).items():
            counts = asked.get(device, {})
            yield DeviceIo(
                device=device,
                read_bytes=moved_bytes.get("Read", 0),
                write_bytes=moved_bytes.get("Write", 0),
                read_ops=counts.get("Read", 0),
                write_ops=counts.get("Write", 0),
            )

    return _changing(moved, parse)


def io_v2(directory: Path, files: Files) -> Read | None:
    """Read v2's block I/O by device."""
    file = files.find(directory / "io.stat")

    def parse(data: bytes) -> Iterator[DeviceIo]:
        for device, values in parse_io_stat(data).items():
            if values:
                yield DeviceIo(
                    device=device,
                    read_bytes=values.get("rbytes", 0),
                    write_bytes=values.get("wbytes", 0),
                    read_ops=values.get("rios", 0),
                    write_ops=values.get("wios", 0),
                )

    return None if file is None else _changing(file, parse)


def _changing(file: KeptFile, parse: Callable[[bytes], Iterator[DeviceIo]]) -> Read:
    """Parse only what is not the same as before: most groups do no I/O most of the time."""
    seen: bytes | None = None
    values: dict[str, Any] = {}

    def read() -> dict[str, Any]:
        nonlocal seen, values
        data = file.read()
        if data != seen:
            values = {"io": tuple(parse(data))}
            seen = data
        return values

    return read


# --- the rest -------------------------------------------------------------------------------------


def pids(directory: Path, files: Files) -> Read | None:
    """Read the number of tasks."""
    file = files.find(directory / "pids.current")
    return None if file is None else lambda: {"pids": parse_number(file.read())}


def pressure(directory: Path, files: Files) -> Read | None:
    """Read what PSI counts for the group."""
    found = [
        (f"{resource}_pressure", file)
        for resource in ("cpu", "memory", "io")
        if (file := files.find(directory / f"{resource}.pressure")) is not None
    ]

    def read() -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, file in found:
            some, full = parse_pressure(file.read())
            if some is not None:
                values[name] = Pressure(some_usec=some, full_usec=full)
        return values

    return read if found else None


def processes(directories: Sequence[Path]) -> Read:
    """Count the processes of the group and of those below, looked at anew each time."""

    def read() -> dict[str, Any]:
        found = {pid for directory in directories for pid in list_members(directory)}
        return {"processes": len(found)}

    return read


def list_members(directory: Path | str) -> Iterator[int]:
    """Yield the processes in a group and below; what is closed to us is left closed."""
    waiting = [str(directory)]
    while waiting:
        group = waiting.pop()
        try:
            fd = os.open(f"{group}/cgroup.procs", os.O_RDONLY | os.O_CLOEXEC)
            try:
                data = b"".join(iter(lambda: os.read(fd, 16_384), b""))  # noqa: B023 - used at once
            finally:
                os.close(fd)
            yield from parse_pids(data)
        except OSError:
            pass  # a threaded group lists none; one that has gone has none
        try:
            with os.scandir(group) as entries:
                waiting += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue
