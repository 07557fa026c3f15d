"""Counters of a run that no group counts: sums over its processes, as they are when looked at.

What has ended is exact (its parent waited for it), what is alive is a sample in steps of the
kernel's tick; a process that lives between two looks, and memory that is shared, are the blind
spots.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from sandbox.kernel.ledger import Ledger
from sandbox.kernel.parse_proc import parse_pid_io
from sandbox.kernel.processes import find_descendants, parse_process_stat, read_file
from sandbox.kernel.roots import Roots
from sandbox.records.sample import ABSENT

if TYPE_CHECKING:
    from sandbox.kernel.keeper_process import Keeper

_USEC_PER_TICK = 1_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_KIB = 1024
_KEPT_PROCESSES = 64
_WALK_SHARE = 20  # a walk may take one part in so many of the time
_READ_BYTES = 1 << 12

_MEMORY_KEYS = (b"RssAnon:", b"RssFile:", b"RssShmem:", b"VmSwap:")


class _Member:
    """One process, with descriptors that stay open while there are not too many."""

    __slots__ = ("io_fd", "path", "stat_fd")

    def __init__(self, path: str, *, keep: bool) -> None:
        self.path = path
        self.stat_fd = _open(f"{path}/stat") if keep else -1
        self.io_fd = _open(f"{path}/io") if keep else -1

    def read_stat(self) -> bytes:
        return _pread(self.stat_fd) if self.stat_fd >= 0 else read_file(f"{self.path}/stat")

    def read_io(self) -> bytes:
        return _pread(self.io_fd) if self.io_fd >= 0 else read_file(f"{self.path}/io")

    def close(self) -> None:
        for fd in (self.stat_fd, self.io_fd):
            if fd >= 0:
                os.close(fd)


class Tree:
    """The processes of a run below its keeper."""

    def __init__(self, roots: Roots, keeper: Keeper, ledger: Ledger, baseline_usec: int) -> None:
        """Count CPU time from `baseline_usec` on, and memory once the program is executed."""
        self.peak_rss_bytes = 0
        self.rss_bytes = 0
        self.start_ticks: dict[int, int] = {}
        """Who was there at the last reading: what is left to go by if the keeper is killed."""
        self._roots = roots
        self._keeper = keeper
        self._ledger = ledger
        self._baseline_usec = baseline_usec
        self._members: dict[int, _Member] = {}
        self._walk_at_ns = 0
        self._user_usec = 0
        self._system_usec = 0
        self._usage_usec = 0
        self._io = (0, 0)

    def refresh(self) -> None:
        """Look for new processes, unless the last look was dear and not long ago."""
        now_ns = time.monotonic_ns()
        if now_ns < self._walk_at_ns:
            return
        pids = find_descendants(self._keeper.pid, self._roots.proc)
        for pid in self._members.keys() - set(pids):
            self._members.pop(pid).close()
        # In the order of the walk: see `read_fast`.
        self._members = {pid: self._members.get(pid) or self._open(pid) for pid in pids}
        end_ns = time.monotonic_ns()
        self._walk_at_ns = end_ns + _WALK_SHARE * (end_ns - now_ns)

    def _open(self, pid: int) -> _Member:
        keep = len(self._members) < _KEPT_PROCESSES
        return _Member(f"{self._roots.proc}/{pid}", keep=keep)

    def read_fast(self) -> list[int]:
        """Return CPU time, resident memory, tasks, and bytes read and written.

        Memory is absent until the program is executed, because its process is still a copy of ours,
        and when nothing is left that has any.
        The dead are counted first, then parents before their children: a process that ends
        meanwhile is then missed once, never counted twice, and the largest sum so far stands.
        """
        self.refresh()
        reaped = self._ledger.read()
        user_ticks = system_ticks = pages = tasks = 0
        starts = {}
        read_bytes, write_bytes = reaped.read_bytes, reaped.write_bytes
        for pid, member in tuple(self._members.items()):
            data = member.read_stat()
            if not data:
                self._members.pop(pid).close()
                continue
            stat = parse_process_stat(data)
            user_ticks += stat.user_ticks
            system_ticks += stat.system_ticks
            if stat.is_alive:
                pages += stat.resident_pages
                tasks += stat.threads
                starts[pid] = stat.start_ticks
            io = parse_pid_io(member.read_io())
            read_bytes += io.get("read_bytes", 0)
            write_bytes += io.get("write_bytes", 0)
        user = reaped.user_usec + user_ticks * _USEC_PER_TICK
        # What the fork costs before the program starts is the kernel's work.
        system = reaped.system_usec + system_ticks * _USEC_PER_TICK - self._baseline_usec
        self._user_usec = max(self._user_usec, user)
        self._system_usec = max(self._system_usec, system)
        self._usage_usec = max(self._usage_usec, user + max(system, 0))
        self._io = (max(self._io[0], read_bytes), max(self._io[1], write_bytes))
        self.start_ticks = starts or self.start_ticks
        self.rss_bytes = pages * _PAGE_BYTES if self._keeper.is_program_executed else 0
        if not self.rss_bytes:
            return [self._usage_usec, ABSENT, tasks, *self._io]
        self.peak_rss_bytes = max(self.peak_rss_bytes, self.rss_bytes)
        return [self._usage_usec, self.rss_bytes, tasks, *self._io]

    def cpu_split_usec(self) -> tuple[int, int]:
        """Return user and system time as of the last `read_fast`."""
        return self._user_usec, self._system_usec

    def read_memory(self) -> tuple[list[int], int]:
        """Return the sums of anonymous, file, shared and swapped memory, and the living processes.

        Pages that processes share are counted in each of them. As `read_fast`, absent at first.
        """
        sums = [0] * len(_MEMORY_KEYS)
        living = 0
        for pid in self._members:
            values = parse_memory(read_file(f"{self._roots.proc}/{pid}/status"))
            if values is not None:
                living += 1
                sums = [total + value for total, value in zip(sums, values, strict=True)]
        if not living or not self._keeper.is_program_executed:
            sums = [ABSENT] * len(_MEMORY_KEYS)
        return sums, living

    def needed_bytes(self) -> int | None:
        """Return the memory that cannot be dropped, shared pages counted once; None if unknown.

        The page cache that a process has mapped is not in it: a group would drop that first.
        """
        total = 0
        for pid in self._members:
            data = read_file(f"{self._roots.proc}/{pid}/smaps_rollup")
            if data:
                share = parse_needed(data)
                if share is None:
                    return None
                total += share
        return total

    def close(self) -> None:
        """Close the descriptors."""
        for member in self._members.values():
            member.close()
        self._members.clear()


class TreeReader:
    """A `Reader` over a tree of processes."""

    fast_columns: tuple[str, ...] = (
        "cpu_usage_usec",
        "memory_current_bytes",
        "pids",
        "io_read_bytes",
        "io_write_bytes",
    )
    slow_columns: tuple[str, ...] = (
        "cpu_user_usec",
        "cpu_system_usec",
        "memory_anon_bytes",
        "memory_file_bytes",
        "memory_shmem_bytes",
        "memory_swap_bytes",
        "processes",
    )

    def __init__(self, tree: Tree) -> None:
        """Read `tree`, which its group owns."""
        self._tree = tree

    def read_fast(self) -> list[int]:
        """Read every living process; about 10 µs each."""
        return self._tree.read_fast()

    def read_slow(self) -> list[int]:
        """Read what their memory is made of; about 30 µs each."""
        (anon, file, shmem, swap), living = self._tree.read_memory()
        if file != ABSENT:  # as in a group's counters, shared memory is part of what is called file
            file += shmem
        return [*self._tree.cpu_split_usec(), anon, file, shmem, swap, living]

    def close(self) -> None:
        """Leave the tree to its group."""


def parse_memory(data: bytes) -> list[int] | None:
    """Return the bytes behind `RssAnon RssFile RssShmem VmSwap` of `/proc/PID/status`.

    None for what has no memory any more, as a zombie.
    """
    values = {line[: line.find(b":") + 1]: line for line in data.splitlines()}
    try:
        return [int(values[key].split()[1]) * _KIB for key in _MEMORY_KEYS]
    except (KeyError, IndexError, ValueError):
        return None


def parse_needed(data: bytes) -> int | None:
    """Return anonymous and shared memory of `/proc/PID/smaps_rollup`, shares counted by halves.

    None before Linux 5.4, which does not tell them apart.
    """
    total, found = 0, 0
    for line in data.splitlines():
        if line.startswith((b"Pss_Anon:", b"Pss_Shmem:")):
            total += int(line.split()[1]) * _KIB
            found += 1
    return total if found == 2 else None  # noqa: PLR2004 - both keys


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _pread(fd: int) -> bytes:
    with suppress(OSError):
        return os.pread(fd, _READ_BYTES, 0)
    return b""
