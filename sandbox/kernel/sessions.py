"""What a user's login gives: systemd's user manager, what it hands on, ranges of ids.

Only files, sockets and their owners are looked at; nobody is talked to.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping
from pathlib import Path

from sandbox.kernel.files import find_text
from sandbox.kernel.roots import Roots
from sandbox.kernel.systemd import find_manager, is_booted
from sandbox.kernel.v2 import read_controllers
from sandbox.records.light import dataclass

_SYSTEMD_LIBRARY = re.compile(r"libsystemd-shared-(\d+)")
_LIBRARY_PLACES = (
    "usr/lib/systemd",
    "lib/systemd",
    "usr/lib/*-linux-gnu*/systemd",
    "usr/lib64/systemd",
)
_ID_RANGE = re.compile(r"([^:]+):(\d+):(\d+)")


@dataclass(frozen=True, kw_only=True)
class Sessions:
    """Systemd as one user finds it."""

    uid: int
    user: str
    is_booted: bool
    """Whether systemd is PID 1 here."""
    version: int | None
    runtime_directory: Path | None
    """What XDG_RUNTIME_DIR names; None where it is unset."""
    runtime_owner: int | None
    """Whose it is; None where it is unset or not there."""
    manager_socket: Path | None
    """Where the user's manager can be spoken to; None where none runs. Root's is PID 1."""
    is_lingering: bool
    """Whether the user's manager runs without a login."""
    controllers: frozenset[str] | None
    """What the user's manager may hand on; None where it has no group."""
    subuids: int
    """How many user ids besides their own the user may map into a user namespace."""
    subgids: int
    maps_ids: bool
    """Whether `newuidmap` and `newgidmap` are installed, without which the ranges are no use."""


def read_sessions(roots: Roots, environ: Mapping[str, str]) -> Sessions:
    """Return what systemd and the id ranges give this user."""
    uid = os.geteuid()
    user = _user_name(uid)
    runtime = environ.get("XDG_RUNTIME_DIR") or None
    directory = None if runtime is None else Path(runtime)
    manager = find_manager(roots, environ)
    return Sessions(
        uid=uid,
        user=user,
        is_booted=is_booted(roots),
        version=_version(roots),
        runtime_directory=directory,
        runtime_owner=None if directory is None else _owner(directory),
        manager_socket=None if manager is None else manager.sockets[0][0],
        is_lingering=(roots.top / "var/lib/systemd/linger" / user).exists(),
        controllers=_delegated(roots, uid),
        subuids=_count_ids(roots.top / "etc/subuid", uid, user),
        subgids=_count_ids(roots.top / "etc/subgid", uid, user),
        maps_ids=all(
            any((roots.top / place / tool).exists() for place in ("usr/bin", "bin"))
            for tool in ("newuidmap", "newgidmap")
        ),
    )


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _version(roots: Roots) -> int | None:
    """Return the installed version by the name of its library: a process would cost 10 ms."""
    for place in _LIBRARY_PLACES:
        for library in roots.top.glob(f"{place}/libsystemd-shared-*.so"):
            found = _SYSTEMD_LIBRARY.match(library.name)
            if found is not None:
                return int(found[1])
    return None


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None


def _delegated(roots: Roots, uid: int) -> frozenset[str] | None:
    group = roots.cgroup / "user.slice" / f"user-{uid}.slice" / f"user@{uid}.service"
    return read_controllers(group) if (group / "cgroup.controllers").exists() else None


def _count_ids(path: Path, uid: int, user: str) -> int:
    lines = (find_text(path) or "").splitlines()
    ranges = [match for line in lines if (match := _ID_RANGE.fullmatch(line.strip()))]
    return sum(int(match[3]) for match in ranges if match[1] in {user, str(uid)})
