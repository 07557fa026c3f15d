"""The process tree as `/proc` tells it, where no group knows its members: walk, stop, kill.

A walk is a look at a moving thing: a process may be missed while others end. So whoever needs
certainty walks again until nothing new is found.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from sandbox.records.light import dataclass

_PROC = Path("/proc")
_READ_BYTES = 1 << 12
_PATIENCE_NS = 10_000_000_000
_BETWEEN_ROUNDS_SEC = 0.001

# Fields of /proc/PID/stat behind the name.
_STATE, _USER, _SYSTEM, _WAITED_USER, _WAITED_SYSTEM = 0, 11, 12, 13, 14
_THREADS, _START, _RESIDENT = 17, 19, 21


@dataclass(frozen=True)
class ProcessStat:
    """One process at one moment, as far as a sum over a tree needs it."""

    is_alive: bool
    """False for a zombie, which has nothing any more but its times."""
    user_ticks: int
    """Its own and that of the children it has waited for."""
    system_ticks: int
    threads: int
    start_ticks: int
    """Since boot; with the pid it names a process for good."""
    resident_pages: int


def parse_process_stat(data: bytes) -> ProcessStat:
    """Return what `/proc/PID/stat` says; the name in it may hold anything, so the last `)` counts.

    Raises:
        ValueError, IndexError: it is not such a file.
    """
    fields = data[data.rindex(b")") + 2 :].split()
    return ProcessStat(
        is_alive=fields[_STATE] not in {b"Z", b"X"},
        user_ticks=int(fields[_USER]) + int(fields[_WAITED_USER]),
        system_ticks=int(fields[_SYSTEM]) + int(fields[_WAITED_SYSTEM]),
        threads=int(fields[_THREADS]),
        start_ticks=int(fields[_START]),
        resident_pages=int(fields[_RESIDENT]),
    )


def read_stat(pid: int, proc: Path = _PROC) -> ProcessStat | None:
    """Return one process, or None if it is gone."""
    data = read_file(f"{proc}/{pid}/stat")
    return parse_process_stat(data) if data else None


def find_state(pid: int, proc: Path = _PROC) -> str | None:
    """Return the kernel's letter for what a process does (`R`, `S`, `T` …); None if it is gone."""
    data = read_file(f"{proc}/{pid}/stat")
    return data[data.rindex(b")") + 2 :][:1].decode() if data else None


def read_file(path: str) -> bytes:
    """Return what a small file of a process says; nothing if it is gone or not ours."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, _READ_BYTES)
    except OSError:
        return b""
    finally:
        os.close(fd)


def find_descendants(root: int, proc: Path = _PROC) -> list[int]:
    """Return every process below `root`, parents before their children; zombies included."""
    if not _has_children_files(root, proc):
        return _descendants_by_parent(root, proc)
    found = [root]
    for pid in found:
        found += _read_children(pid, proc)
    return found[1:]


def _has_children_files(root: int, proc: Path) -> bool:
    return os.path.exists(f"{proc}/{root}/task/{root}/children")  # noqa: PTH110 - on every sample


def _read_children(pid: int, proc: Path) -> list[int]:
    try:
        threads = os.listdir(f"{proc}/{pid}/task")  # noqa: PTH208 - as above
    except OSError:
        return []
    children: list[int] = []
    for thread in threads:
        children += map(int, _read_whole(f"{proc}/{pid}/task/{thread}/children").split())
    return children


def _read_whole(path: str) -> bytes:
    """Read a file that may be longer than a page: a process may have thousands of children."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    parts = []
    try:
        while part := os.read(fd, _READ_BYTES):
            parts.append(part)
    except OSError:
        pass
    finally:
        os.close(fd)
    return b"".join(parts)


def _descendants_by_parent(root: int, proc: Path) -> list[int]:
    """Look at all processes: for kernels that keep no list of children."""
    import psutil

    psutil.PROCFS_PATH = str(proc)
    try:
        return [process.pid for process in psutil.Process(root).children(recursive=True)]
    except psutil.Error:
        return []


def signal_all(pids: Iterable[int], signal_number: int) -> int:
    """Signal each; return how many were reached: not those that ended, or are another user's."""
    reached = 0
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal_number)
            reached += 1
    return reached


def stop_tree(root: int, proc: Path = _PROC) -> list[int]:
    """Stop everything below `root`, so that nothing forks any more; return what was stopped."""
    stopped: dict[int, None] = {}
    deadline_ns = time.monotonic_ns() + _PATIENCE_NS
    while time.monotonic_ns() < deadline_ns:
        new = [pid for pid in find_descendants(root, proc) if pid not in stopped]
        if not new:
            break
        signal_all(new, signal.SIGSTOP)
        stopped.update(dict.fromkeys(new))
    return list(stopped)


def end_children(reap: Callable[[], bool]) -> bool:
    """Kill and reap everything below this process; return whether nothing is left.

    What is left after some seconds belongs to another user or hangs in the kernel.

    Args:
        reap: waits for what has ended, without waiting for it to end; true once nothing is left.
    """
    root = os.getpid()
    deadline_ns = time.monotonic_ns() + _PATIENCE_NS
    while not reap():
        if time.monotonic_ns() > deadline_ns:
            return False
        signal_all(stop_tree(root), signal.SIGKILL)
        time.sleep(_BETWEEN_ROUNDS_SEC)
    return True
