"""The namespaces of a run in a root of its own, and the supervisor's part in making them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from sandbox.errors import HostError, KernelError
from sandbox.kernel.files import find_text
from sandbox.kernel.roots import Roots
from sandbox.records.enclosure import Enclosure, IdMap
from sandbox.records.program import Program
from sandbox.records.security import Sharing

NEW_CGROUP = 0x0200_0000  # only once the process is inside its group: that is what it shows as `/`
_NEW_MOUNT = 0x0002_0000
_NEW_UTS = 0x0400_0000
_NEW_IPC = 0x0800_0000
_NEW_USER = 0x1000_0000
_NEW_PID = 0x2000_0000
_NEW_NETWORK = 0x4000_0000

_RANGE = r"([^:]+):(\d+):(\d+)"
_TOOLS = ("/usr/bin/newuidmap", "/usr/bin/newgidmap")

HINT_CLOSED = (
    "user namespaces may be closed to plain users here: see `sysctl user.max_user_namespaces` and "
    "`kernel.apparmor_restrict_unprivileged_userns`, or run as root"
)


def flags_of(program: Program) -> int:
    """Return the namespaces that the child is born with."""
    flags = 0
    if program.enclosure is not None:
        flags |= _flags_of_enclosure(program.enclosure)
    if program.ids is not None:
        flags |= _NEW_USER
    if program.own_network is not None:
        flags |= _NEW_NETWORK
    return flags


def _flags_of_enclosure(enclosure: Enclosure) -> int:
    if enclosure.in_place is not None and not enclosure.in_place.is_apart:
        return 0
    flags = _NEW_MOUNT | _NEW_UTS
    if enclosure.ipc is not Sharing.HOST:
        flags |= _NEW_IPC
    return flags | _NEW_PID if enclosure.has_own_processes else flags


def clone_error(exc: OSError, ids: IdMap | None) -> KernelError:
    """Return what to raise when no process with these namespaces can be made."""
    error = KernelError.from_os(exc, doing="make", path="the namespaces of the run")
    if exc.errno in {errno.EPERM, errno.ENOSPC, errno.EUSERS}:
        error.hint = HINT_CLOSED if ids is not None else "root without CAP_SYS_ADMIN?"
    elif exc.errno in {errno.ENOSYS, errno.EINVAL}:
        error.hint = "they take Linux 5.12, and no filter on `clone3`"
    return error


def find_ids(uid: int, gid: int, *, as_user: tuple[int, int] = (0, 0), roots: Roots) -> IdMap:
    """Return the map of a plain user: with the ids that are lent to them, else themselves alone.

    Args:
        uid: The user's, on the host; likewise `gid`.
        gid: See `uid`.
        as_user: uid and gid that the one user of a single map has inside.
        roots: Where /etc/subuid is, and the tools that may use it.
    """
    tools = [roots.top / tool.lstrip("/") for tool in _TOOLS]
    lent_uids = _lent(roots.top / "etc/subuid", uid)
    lent_gids = _lent(roots.top / "etc/subgid", uid)
    if not lent_uids or not lent_gids or not all(tool.exists() for tool in tools):
        return IdMap(uids=((as_user[0], uid, 1),), gids=((as_user[1], gid, 1),))
    return IdMap(uids=_stack(uid, lent_uids), gids=_stack(gid, lent_gids))


def _stack(own: int, lent: Iterable[tuple[int, int]]) -> tuple[tuple[int, int, int], ...]:
    ranges = [(0, own, 1)]
    following = 1
    for first, count in lent:
        if any(first < other + size and other < first + count for _, other, size in ranges):
            continue  # lent twice, by name and by number: the kernel maps no id two times
        ranges.append((following, first, count))
        following += count
    return tuple(ranges)


def _lent(path: Path, uid: int) -> list[tuple[int, int]]:
    import pwd
    import re

    try:
        names = {str(uid), pwd.getpwuid(uid).pw_name}
    except KeyError:
        names = {str(uid)}
    lines = (find_text(path) or "").splitlines()
    found = [match for line in lines if (match := re.fullmatch(_RANGE, line.strip()))]
    return [
        (int(match[2]), int(match[3])) for match in found if match[1] in names and int(match[3])
    ]


def write_maps(pid: int, ids: IdMap) -> None:
    """Give the user namespace of a child its ids.

    Raises:
        KernelError: the kernel refuses.
        HostError: `newuidmap` or `newgidmap` refuses.
    """
    if not ids.is_single:
        _write_by_tools(pid, ids)
        return
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", _line(ids.uids)),
        ("gid_map", _line(ids.gids)),
    ):
        path = f"/proc/{pid}/{name}"
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(fd, text.encode())
            finally:
                os.close(fd)
        except OSError as exc:
            error = KernelError.from_os(exc, doing="write", path=path)
            error.hint = HINT_CLOSED
            raise error from exc


def _line(ranges: tuple[tuple[int, int, int], ...]) -> str:
    return " ".join(map(str, ranges[0]))


def _write_by_tools(pid: int, ids: IdMap) -> None:
    started = []
    for tool, ranges in zip(_TOOLS, (ids.uids, ids.gids), strict=True):
        words = [tool, str(pid), *(str(number) for each in ranges for number in each)]
        started.append((words, os.posix_spawn(tool, words, os.environ)))
    for words, tool_pid in started:
        if os.waitstatus_to_exitcode(os.waitpid(tool_pid, 0)[1]) != 0:
            raise HostError(
                f"cannot map the ids of the run: `{' '.join(words)}` fails",
                hint="are the ranges in /etc/subuid and /etc/subgid your own, and is the tool "
                "installed with its privilege (`apt install uidmap`)?",
            )
