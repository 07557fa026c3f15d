"""Reading any live group, whoever made it: all of its counters at one instant, and its limits.

Where a v1 controller has the group, its files are read; what v1 does not have is v2's.
"""

from __future__ import annotations

import errno
import time
from typing import Any

from sandbox.errors import KernelError
from sandbox.kernel import live_parts as parts
from sandbox.kernel.files import find_text
from sandbox.kernel.live_network import Network
from sandbox.kernel.parse import parse_cpu_max, parse_cpuset, parse_limit
from sandbox.kernel.parse_proc import parse_meminfo
from sandbox.kernel.roots import Roots
from sandbox.kernel.run_groups import GroupPaths
from sandbox.records.stats import StatsReading
from sandbox.units import UNLIMITED


class LiveReader:
    """Reads one group again and again through descriptors that stay open."""

    def __init__(
        self, groups: GroupPaths, host: parts.HostCpu, roots: Roots, *, is_whole: bool
    ) -> None:
        """Open what there is.

        Args:
            groups: Where the group is.
            host: The host's CPU time, for docker's formula.
            roots: The kernel's file systems.
            is_whole: Read every counter, not only those of docker's columns.
        """
        self._groups = groups
        self._is_whole = is_whole
        self._files = parts.Files()
        self._parts = self._open(host, roots, is_whole=is_whole)

    @property
    def unavailable(self) -> dict[str, str]:
        """Return why fields of the readings cannot be given, or only in part."""
        reason = self._network.reason
        return {} if reason is None else {"network": reason}

    @property
    def cgroup_version(self) -> int:
        """Return where memory is counted: 1 or 2."""
        return 1 if "memory" in self._groups.v1 or self._groups.v2 is None else 2

    def _open(self, host: parts.HostCpu, roots: Roots, *, is_whole: bool) -> tuple[parts.Read, ...]:
        v1, v2, files = self._groups.v1, self._groups.v2, self._files
        opened: list[parts.Read | None] = []
        if "cpuacct" in v1:
            opened.append(parts.cpuacct(v1["cpuacct"], files, is_whole=is_whole))
        elif v2 is not None:
            opened.append(parts.cpu_stat(v2, files, is_whole=is_whole))
        opened.append(host.read)  # right behind the group's: docker's formula compares them
        if "memory" in v1:
            opened.append(parts.memory_v1(v1["memory"], files, is_whole=is_whole))
        elif v2 is not None:
            opened.append(parts.memory_v2(v2, files, is_whole=is_whole))
        tasks = v1.get("pids", v2)
        opened.append(None if tasks is None else parts.pids(tasks, files))
        if "blkio" in v1:
            opened.append(parts.io_v1(v1["blkio"], files))
        elif v2 is not None:
            opened.append(parts.io_v2(v2, files))
        self._network = Network(self._places(), files, roots, v2)
        opened.append(self._network.read)
        if is_whole:
            opened += self._open_rest()
        return tuple(part for part in opened if part is not None)

    def _open_rest(self) -> list[parts.Read | None]:
        v1, v2, files = self._groups.v1, self._groups.v2, self._files
        return [
            parts.throttling(v1["cpu"], files) if "cpu" in v1 else None,
            parts.pressure(v2, files) if v2 is not None else None,
            parts.processes(self._places()),
        ]

    def _places(self) -> tuple[Any, ...]:
        """Return directories that list the group's processes: one that does is enough."""
        v1, v2 = self._groups.v1, self._groups.v2
        # A group of several controllers may have been joined in some alone, so the v2 side of a
        # hybrid host comes last: engines of v1's time leave it empty.
        chosen = [v1[name] for name in ("memory", "pids", "cpuacct", "cpu") if name in v1][:1]
        return (*chosen, *([] if v2 is None else [v2]))

    def read(self) -> StatsReading:
        """Return every counter as it is now; what cannot be read is left out.

        Raises:
            KernelError: the group was removed; `errno` is ENODEV.
        """
        values: dict[str, Any] = {"time_ns": time.monotonic_ns(), "utc_ns": time.time_ns()}
        for part in self._parts:
            try:
                values.update(part())
            except KernelError as error:
                if error.errno == errno.ENODEV:
                    raise
            except (ValueError, KeyError, IndexError):
                continue
        return StatsReading(**values)

    def read_limits(self) -> dict[str, int | None]:
        """Return the group's own limits, by the fields of `StatsRow`; None is no limit.

        Docker's columns need that of memory alone.
        """
        return read_limits(self._groups) if self._is_whole else read_memory_limit(self._groups)

    def close(self) -> None:
        """Close the descriptors; a second time does nothing."""
        self._files.close()
        self._network.close()


def read_host_memory(roots: Roots) -> int:
    """Return the memory of the host in bytes.

    Raises:
        KernelError: `/proc` is not mounted, or makes no sense.
    """
    text = find_text(roots.proc / "meminfo")
    if text is None:
        raise KernelError(f"cannot read {roots.proc}/meminfo", hint="is /proc mounted?")
    return parse_meminfo(text).get("MemTotal", 0)


def read_limits(groups: GroupPaths) -> dict[str, int | None]:
    """Return the limits of a group's own, by the fields of `StatsRow`; None is no limit."""
    v1, v2 = groups.v1, groups.v2
    values: dict[str, int | None] = {}
    if "memory" in v1:
        values |= _memory_v1(f"{v1['memory']}")
    elif v2 is not None:
        values["memory_limit_bytes"] = _limit(f"{v2}/memory.max")
        values["swap_limit_bytes"] = _limit(f"{v2}/memory.swap.max")
    tasks = v1.get("pids", v2)
    values["pids_limit"] = None if tasks is None else _limit(f"{tasks}/pids.max")
    if "cpu" in v1:
        values["cpu_quota_usec"] = _limit(f"{v1['cpu']}/cpu.cfs_quota_us")
        values["cpu_period_usec"] = _limit(f"{v1['cpu']}/cpu.cfs_period_us")
    elif v2 is not None:
        text = find_text(f"{v2}/cpu.max")
        if text is not None:
            quota, values["cpu_period_usec"] = parse_cpu_max(text)
            values["cpu_quota_usec"] = None if quota == UNLIMITED else quota
    values["cpus_allowed"] = _cpus_allowed(groups)
    return values


def read_memory_limit(groups: GroupPaths) -> dict[str, int | None]:
    """Return the limit on memory alone, as `read_limits` does."""
    if "memory" in groups.v1:
        path = f"{groups.v1['memory']}/memory.limit_in_bytes"
    elif groups.v2 is not None:
        path = f"{groups.v2}/memory.max"
    else:
        return {}
    return {"memory_limit_bytes": _limit(path)}


def _memory_v1(directory: str) -> dict[str, int | None]:
    memory = _limit(f"{directory}/memory.limit_in_bytes")
    together = _limit(f"{directory}/memory.memsw.limit_in_bytes")
    swap = None if memory is None or together is None else together - memory
    return {"memory_limit_bytes": memory, "swap_limit_bytes": swap}


def _limit(path: str) -> int | None:
    text = find_text(path)
    try:
        value = UNLIMITED if text is None else parse_limit(text)
    except KernelError:
        return None
    return None if value == UNLIMITED else value


def _cpus_allowed(groups: GroupPaths) -> int | None:
    directory = groups.v1.get("cpuset")
    names = ("cpuset.effective_cpus", "cpuset.cpus")
    if directory is None:
        directory, names = groups.v2, ("cpuset.cpus.effective", "cpuset.cpus")
    for name in names if directory is not None else ():
        text = find_text(f"{directory}/{name}")
        if text and text.strip():
            return len(parse_cpuset(text))
    return None
