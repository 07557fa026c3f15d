"""Where run directories are kept, and whether that place can be trusted."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from sandbox.errors import StoreError

ROOT_HOME = Path("/var/lib/sandbox")

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_HINT = "set SANDBOX_HOME to a directory of your own"


def find_home(environ: Mapping[str, str] | None = None, uid: int | None = None) -> Path:
    """Return where run directories belong; nothing is looked up on the disk.

    $SANDBOX_HOME, else /var/lib/sandbox for root, else $XDG_DATA_HOME/sandbox, else
    ~/.local/share/sandbox. A user without any home gets a directory below /tmp.
    """
    variables = os.environ if environ is None else environ
    user = os.geteuid() if uid is None else uid
    if asked := variables.get("SANDBOX_HOME"):
        return Path(os.path.abspath(asked))  # noqa: PTH100 - resolve() would follow links
    if user == 0:
        return ROOT_HOME
    data = variables.get("XDG_DATA_HOME", "")
    if data.startswith("/"):  # a relative one is to be ignored, says its specification
        return Path(data, "sandbox")
    home = variables.get("HOME", "")
    if home.startswith("/"):
        return Path(home, ".local", "share", "sandbox")
    return Path("/tmp", f"sandbox-{user}")  # noqa: S108 - `open_home` trusts no one else's


def open_home(home: Path, *, make: bool, uid: int | None = None) -> int:
    """Return a descriptor of `home`; everything else is reached through it, not by its path.

    Whoever may write to the directory above could otherwise put something else in its place.

    Args:
        home: What `find_home` returned.
        make: Make it (0700), and what is missing above it.
        uid: Whose it has to be; the caller's unless given.

    Raises:
        StoreError: it belongs to someone else, or others may write to it.
        OSError: it is not there, or cannot be made or opened.
    """
    user = os.geteuid() if uid is None else uid
    if make:
        _make(home)
    fd = _open_own(home, user)
    try:
        _check_own(home, os.fstat(fd), user)
    except StoreError:
        os.close(fd)
        raise
    return fd


def _check_own(home: Path, found: os.stat_result, user: int) -> None:
    if found.st_uid != user:
        raise StoreError(f"{home} belongs to another user (uid {found.st_uid})", hint=_HINT)
    if found.st_mode & _OTHERS_WRITE:
        raise StoreError(
            f"{home} can be written by other users (mode {stat.S_IMODE(found.st_mode):03o})",
            hint=f"`chmod go-w {home}`, or {_HINT}",
        )


def _make(home: Path) -> None:
    missing = [home]
    while not os.path.lexists(missing[-1].parent):
        missing.append(missing[-1].parent)
    for directory in reversed(missing):
        try:
            directory.mkdir(mode=0o700)
        except FileExistsError:
            continue


def _open_own(home: Path, user: int) -> int:
    """Open the directory; a link is followed only if the user or root has made it."""
    if home.is_symlink():
        owner = home.lstat().st_uid
        if owner not in {user, 0}:
            raise StoreError(
                f"{home} is a link that another user has made (uid {owner})", hint=_HINT
            )
        home = home.resolve(strict=True)
    return os.open(home, _DIRECTORY | os.O_NOFOLLOW)


def open_child(directory_fd: int, name: str, *, make: bool = False) -> int:
    """Return a descriptor of a directory in a directory; a link is not followed.

    Raises:
        OSError: it is not there, or cannot be made or opened.
    """
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=directory_fd)
    return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=directory_fd)
