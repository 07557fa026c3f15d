"""CPUs of one's own: leases that hold for the whole host, so that measured runs do not meet.

A lease is a lock on a file, one for each CPU, in a directory that every user may write to. It ends
with the process that holds it, however that ends.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from sandbox.errors import HostError, SandboxError
from sandbox.kernel.files import find_text
from sandbox.kernel.roots import Roots
from sandbox.records.light import dataclass
from sandbox.units import format_cpu_list, parse_cpu_list

_PLACES = ("run/lock", "tmp")
_FILE = "sandbox-cpu-{}"
_ATTEMPTS = 3
_PAUSE_SEC = 0.01
_LONG_PAUSE_SEC = 0.05
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True, kw_only=True)
class CpuKind:
    """What tells CPUs apart when choosing."""

    cpu: int
    capacity: int
    """How fast it is beside the others, in the kernel's own measure; equal where all are alike."""
    siblings: tuple[int, ...]
    """The hardware threads of its core, itself included."""


class Lease:
    """CPUs that nobody else leases until it is closed, or until this process ends."""

    def __init__(self, fds: dict[int, int]) -> None:
        """Take the open locks by CPU."""
        self._fds = fds
        self.cpus = tuple(sorted(fds))

    def close(self) -> None:
        """Give the CPUs back; a second time does nothing."""
        for fd in self._fds.values():
            with suppress(OSError):
                os.close(fd)
        self._fds = {}

    def __enter__(self) -> Self:
        """Give them back at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give them back, whatever has happened."""
        self.close()


def lease_cpus(count: int, allowed: Iterable[int], roots: Roots) -> Lease:
    """Take `count` CPUs of one kind that nobody leases, whole cores first.

    Raises:
        HostError: fewer are allowed here at all, or fewer are free now.
    """
    kinds = cpu_kinds(allowed, roots)
    best = max((len(one) for one in _by_capacity(kinds)), default=0)
    if count > best:
        raise HostError(
            f"{_asked(count)}, but only {best} may be used here",
            hint=f"ask for at most {best}, as in `--cpuset-cpus auto:{best}`",
        )
    directory = _directory(roots)
    for attempt in range(_ATTEMPTS):  # whoever looks or takes too little holds locks for a moment
        if attempt:
            time.sleep(_PAUSE_SEC)
        for alike in _by_capacity(kinds):
            fds = _take(alike, count, directory)
            if len(fds) == count:
                return Lease(fds)
            _close(fds)
    taken = format_cpu_list(one.cpu for one in kinds if is_leased(one.cpu, roots))
    raise HostError(
        f"{_asked(count)}, but other runs have leased CPU {taken}",
        hint="wait until they end (`sandbox ps`), or ask for fewer",
    )


def _asked(count: int) -> str:
    what = "1 CPU of one kind was" if count == 1 else f"{count} CPUs of one kind were"
    return f"{what} asked for"


def lease_cpus_soon(
    count: int, allowed: Iterable[int], roots: Roots, *, within_sec: float = 3600.0
) -> Lease:
    """Take CPUs as `lease_cpus` does, but wait until others have given theirs back.

    Raises:
        HostError: so many are not allowed here at all, or they were not free in time.
    """
    wanted, until = tuple(allowed), time.monotonic() + within_sec
    while True:
        try:
            return lease_cpus(count, wanted, roots)
        except HostError:
            most = max(map(len, _by_capacity(cpu_kinds(wanted, roots))), default=0)
            if count > most or time.monotonic() > until:
                raise
        time.sleep(_LONG_PAUSE_SEC)


def _take(alike: Sequence[CpuKind], count: int, directory: Path) -> dict[int, int]:
    """Lock up to `count` of these, a core's second thread only after all first ones."""
    fds: dict[int, int] = {}
    for one in _cores_first(alike):
        if len(fds) == count:
            break
        fd = _lock(directory / _FILE.format(one.cpu))
        if fd is not None:
            fds[one.cpu] = fd
    return fds


def _cores_first(alike: Sequence[CpuKind]) -> list[CpuKind]:
    return sorted(alike, key=lambda one: (one.siblings.index(one.cpu), one.cpu))


def _by_capacity(kinds: Sequence[CpuKind]) -> list[list[CpuKind]]:
    """Return the CPUs that are alike together, the fastest first."""
    capacities = sorted({one.capacity for one in kinds}, reverse=True)
    return [[one for one in kinds if one.capacity == capacity] for capacity in capacities]


def cpu_kinds(cpus: Iterable[int], roots: Roots) -> list[CpuKind]:
    """Return what the kernel tells of CPUs; what it does not tell makes them alike."""
    found = []
    for cpu in cpus:
        directory = roots.sys / f"devices/system/cpu/cpu{cpu}"
        siblings: tuple[int, ...] = ()
        with suppress(SandboxError):
            siblings = parse_cpu_list(find_text(directory / "topology/thread_siblings_list") or "")
        capacity = _number(directory / "cpu_capacity")
        if capacity is None:
            capacity = _number(directory / "cpufreq/cpuinfo_max_freq")
        found.append(
            CpuKind(
                cpu=cpu,
                capacity=capacity or 0,
                siblings=siblings if cpu in siblings else (cpu,),
            )
        )
    return found


def _number(path: Path) -> int | None:
    text = (find_text(path) or "").strip()
    return int(text) if text.isdecimal() else None


def is_leased(cpu: int, roots: Roots) -> bool:
    """Return whether someone holds a lease on a CPU at this moment."""
    path = _directory(roots) / _FILE.format(cpu)
    if not path.exists():
        return False
    fd = _lock(path)
    if fd is None:
        return True
    os.close(fd)
    return False


def _lock(path: Path) -> int | None:
    """Return a locked descriptor, or None if someone else has the lock.

    Made readable for all and opened for reading only: that is enough for a lock, and what another
    user has made in a sticky directory may not be opened for writing by root on some hosts.
    """
    try:
        fd = _open(path)
    except OSError as exc:
        raise HostError(f"CPUs cannot be leased: {path}: {exc.strerror}") from exc
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise HostError(f"CPUs cannot be leased: {path} is not a file")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except OSError as exc:
        os.close(fd)
        raise HostError(f"CPUs cannot be leased: {path}: {exc.strerror}") from exc
    return fd


def _open(path: Path) -> int:
    try:
        return os.open(path, _OPEN)
    except FileNotFoundError:
        pass
    try:
        fd = os.open(path, _OPEN | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:  # someone else was faster
        return os.open(path, _OPEN)
    with suppress(OSError):
        os.fchmod(fd, 0o644)  # whatever the umask: other users open it too
    return fd


def _directory(roots: Roots) -> Path:
    """Return where the locks are: the first place that every user may write to."""
    for name in _PLACES:
        directory = roots.top / name
        with suppress(OSError):
            mode = directory.stat().st_mode
            if stat.S_ISDIR(mode) and mode & stat.S_IWOTH and mode & stat.S_ISVTX:
                return directory
    raise HostError(
        f"CPUs cannot be leased: neither {' nor '.join(str(roots.top / p) for p in _PLACES)} "
        "can be written by every user",
        hint="name CPUs yourself, as in `--cpuset-cpus 2,3`",
    )


def _close(fds: dict[int, int]) -> None:
    for fd in fds.values():
        os.close(fd)
