"""What every v2 group can do, with or without controllers: kill, freeze, list, count, tell.

Functions of a directory; the unified hierarchy's groups and the v2 side of a hybrid host use the
same ones.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from sandbox.errors import KernelError
from sandbox.kernel.files import KeptFile, find_text, list_tree, write_text
from sandbox.kernel.parse import parse_controllers, parse_flat, parse_pids, parse_pressure
from sandbox.records.result import Pressure

ROOM = "init"
_MOVING_ROUNDS = 100
KILL_PATIENCE_SEC = 10.0
FREEZE_PATIENCE_SEC = 1.0
_LONGEST_WAIT_SEC = 0.05


class EventsAlarm:
    """Becomes ready when the kernel changes `cgroup.events` or `memory.events`."""

    mask = select.EPOLLPRI

    def __init__(self, path: Path) -> None:
        """Open the file.

        Raises:
            KernelError: there is no such file.
        """
        self._file = KeptFile(path)
        self.fd = self._file.fd
        self.drain()  # what happened before is no news

    def drain(self) -> None:
        """Make the descriptor quiet until the next change."""
        try:
            self._file.read()  # the kernel compares with what was read last
        except KernelError as error:
            if error.errno != errno.ENODEV:  # the group is gone: nothing will happen any more
                raise

    def read(self) -> dict[str, int]:
        """Return what the file says, which also makes the descriptor quiet."""
        return parse_flat(self._file.read())

    def close(self) -> None:
        """Close the descriptor."""
        self._file.close()


def is_populated(directory: Path) -> bool:
    """Return whether any process is alive in the group or below; False if there is no group."""
    return _event(directory, "populated")


def is_frozen(directory: Path) -> bool:
    """Return whether every process of the group has come to a stop."""
    return _event(directory, "frozen")


def _event(directory: Path, key: str) -> bool:
    text = find_text(directory / "cgroup.events")
    return text is not None and parse_flat(text).get(key) == 1


def list_pids(directory: Path) -> tuple[int, ...]:
    """Return the processes in the group and below, ascending; groups may vanish meanwhile."""
    found: set[int] = set()
    for group in list_tree(directory):
        text = find_text(f"{group}/cgroup.procs") or _opened(f"{group}/cgroup.procs")
        if text is not None:
            found.update(parse_pids(text))
    return tuple(sorted(found))


def _opened(file: str) -> str | None:
    """Return the content of a file that the program has closed to us, if it is ours to open."""
    if os.access(file, os.R_OK):
        return None  # it is empty
    with suppress(OSError):
        os.chmod(file, 0o644)  # noqa: PTH101 - a string
    return find_text(file)


def signal_all(directory: Path, signal_number: int) -> int:
    """Send a signal to every process in the group and below; return how many were reached."""
    reached = 0
    for pid in list_pids(directory):
        try:
            os.kill(pid, signal_number)
        except (ProcessLookupError, PermissionError):
            continue
        reached += 1
    return reached


def freeze(directory: Path, *, frozen: bool) -> None:
    """Stop or let go everything in the group; return once it has stopped, or after a second.

    A process that waits for a device stops when the device has answered.

    Raises:
        KernelError: the kernel (before Linux 5.2) cannot freeze.
    """
    write_text(directory / "cgroup.freeze", "1" if frozen else "0")
    deadline = time.monotonic() + FREEZE_PATIENCE_SEC
    while is_frozen(directory) != frozen and time.monotonic() < deadline:
        time.sleep(0.000_5)


def kill(directory: Path, *, patience_sec: float = KILL_PATIENCE_SEC) -> None:
    """SIGKILL everything in the group and below; return when it is empty.

    Frozen and forking processes die too. Before Linux 5.14 the group is frozen and every process
    is sent the signal, until none is left.

    Raises:
        KernelError: something is still alive after `patience_sec`.
    """
    alarm = _find_alarm(directory)
    if alarm is None:
        return  # no group, nothing alive
    try:
        _kill_until_empty(directory, alarm, patience_sec)
    except KernelError as error:
        if error.errno != errno.ENODEV:  # somebody else removed the group: it is empty
            raise
    finally:
        alarm.close()


def _kill_until_empty(directory: Path, alarm: EventsAlarm, patience_sec: float) -> None:
    deadline = time.monotonic() + patience_sec
    while alarm.read().get("populated") == 1:
        _strike(directory)
        if time.monotonic() >= deadline:
            raise KernelError(
                f"cannot kill everything in {directory}: after {patience_sec:g} s "
                f"these processes are still alive: {list_pids(directory)}",
                hint="they wait for a device or a network file system inside the kernel",
            )
        _wait(alarm, _LONGEST_WAIT_SEC)


def _find_alarm(directory: Path) -> EventsAlarm | None:
    try:
        return EventsAlarm(directory / "cgroup.events")
    except KernelError as error:
        if error.errno == errno.ENOENT:
            return None
        raise


def _strike(directory: Path) -> None:
    """Send SIGKILL once; freezing first keeps a fork storm from outrunning the list."""
    try:
        write_text(directory / "cgroup.kill", "1")
    except KernelError as error:
        if error.errno == errno.ENODEV:
            return
    else:
        return
    try:
        freeze(directory, frozen=True)
    except KernelError as error:  # no freezer before Linux 5.2: the caller strikes again
        if error.errno not in {errno.ENOENT, errno.ENODEV}:
            raise
    signal_all(directory, signal.SIGKILL)
    # A frozen process dies of SIGKILL without being let go.


def _wait(alarm: EventsAlarm, seconds: float) -> None:
    poll = select.poll()
    poll.register(alarm.fd, select.POLLPRI)
    poll.poll(seconds * 1_000)


def read_pressure(directory: Path, resource: str) -> Pressure | None:
    """Return the stall totals of `cpu`, `memory` or `io`, or None if this kernel has no PSI."""
    text = find_text(f"{directory}/{resource}.pressure")
    if not text:
        return None
    some, full = parse_pressure(text)
    return None if some is None else Pressure(some_usec=some, full_usec=full)


def pressure_since(before: Pressure | None, now: Pressure | None) -> Pressure | None:
    """Return the stall between two readings, or None if one is missing."""
    if before is None or now is None:
        return None
    full = None
    if before.full_usec is not None and now.full_usec is not None:
        full = now.full_usec - before.full_usec
    return Pressure(some_usec=now.some_usec - before.some_usec, full_usec=full)


def find_flat(path: Path) -> dict[str, int]:
    """Return the numbers of a flat keyed file; none if the file does not exist."""
    text = find_text(path)
    return {} if text is None else parse_flat(text)


def read_controllers(directory: Path) -> frozenset[str]:
    """Return the controllers that the group's parent has enabled for it; none if unreadable."""
    text = find_text(directory / "cgroup.controllers")
    return frozenset() if text is None else parse_controllers(text)


def read_enabled(directory: Path) -> frozenset[str]:
    """Return the controllers that the group enables for those below; none if unreadable."""
    text = find_text(directory / "cgroup.subtree_control")
    return frozenset() if text is None else parse_controllers(text)


def is_real_root(directory: Path) -> bool:
    """Return whether this is the hierarchy's root, not just the top of what a container sees.

    Only the real root lacks `cgroup.events`; it is exempt from the rule that a group with
    processes cannot enable controllers for those below.
    """
    return not (directory / "cgroup.events").exists()


def has_processes(directory: Path) -> bool:
    """Return whether a process sits in the group itself; True if that cannot be told."""
    text = find_text(directory / "cgroup.procs")
    return text is None or bool(text.strip())


def list_own_pids(directory: Path) -> tuple[int, ...]:
    """Return the processes in the group itself, 0 for each that is outside our PID namespace."""
    text = find_text(directory / "cgroup.procs")
    return () if text is None else tuple(int(word) for word in text.split())


def make_room(directory: Path) -> None:
    """Move the processes in a group into its leaf `init`, so that it can enable controllers.

    That is where container engines' own images put them too. They stay there: others may have
    made groups beside it by the time that we are gone.

    Raises:
        KernelError: the kernel does not let us.
    """
    leaf = directory / ROOM
    with suppress(FileExistsError):
        leaf.mkdir(mode=0o755)
    for _ in range(_MOVING_ROUNDS):
        pids = list_own_pids(directory)
        if not pids:
            return
        for pid in pids:
            try:
                write_text(leaf / "cgroup.procs", str(pid))
            except KernelError as error:
                if error.errno != errno.ESRCH:  # it has ended meanwhile
                    raise
    raise KernelError(f"cannot empty {directory}: its processes start others all the time")


def path_down(top: Path, directory: Path) -> tuple[Path, ...]:
    """Return the groups from `top` down to `directory`, both included."""
    parts = directory.relative_to(top).parts
    return tuple(top.joinpath(*parts[:count]) for count in range(len(parts) + 1))


def enable(directories: Collection[Path], controllers: Collection[str]) -> Mapping[str, str]:
    """Enable controllers in each group, from the top down; return why some could not be enabled.

    What is enabled stays so: others may use it by the time that we are gone.
    """
    refused: dict[str, str] = {}
    for directory in directories:
        missing = set(controllers) - read_enabled(directory)
        for controller in sorted(missing - refused.keys()):
            try:
                write_text(directory / "cgroup.subtree_control", f"+{controller}")
            except KernelError as error:
                refused[controller] = str(error)
    return refused
