"""Locks: a run is live as long as its supervisor holds the lock of its directory."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox.errors import StoreError

LOCK = "lock"

_WAIT_SEC = 2.0
_PAUSE_SEC = 0.005
# Never inherited by an exec: neither the program nor the guard may keep a run alive.
_MAKE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def hold(directory_fd: int, *, wait_sec: float = _WAIT_SEC) -> int:
    """Lock a directory and return the lock's descriptor.

    Raises:
        BlockingIOError: someone else still holds it after `wait_sec`.
        OSError: the lock file cannot be made, or the file system has no locks.
    """
    fd = os.open(LOCK, _MAKE, 0o600, dir_fd=directory_fd)
    try:
        _lock(fd, wait_sec)
    except OSError:
        os.close(fd)
        raise
    return fd


def _lock(fd: int, wait_sec: float) -> None:
    until = time.monotonic() + wait_sec
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(_PAUSE_SEC)
        else:
            return


def let_go(fd: int) -> None:
    """Unlock and close, even if a forked child still has the descriptor."""
    try:
        fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)


def is_held(directory_fd: int) -> bool:
    """Return whether a directory is locked.

    Raises:
        OSError: its lock cannot be looked at; one that is not there is not held.
    """
    try:
        fd = os.open(LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory_fd)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(fd)


def is_locked(path: Path) -> bool:
    """Return whether the run of this run directory is live: its supervisor is there.

    Raises:
        StoreError: the directory cannot be looked at.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return is_held(fd)
        finally:
            os.close(fd)
    except OSError as exc:
        raise StoreError(f"cannot see whether {path} is in use: {exc.strerror}") from exc


@contextmanager
def held(directory_fd: int) -> Iterator[None]:
    """Hold a directory's lock for a moment.

    Raises:
        OSError: as `hold`.
    """
    fd = hold(directory_fd)
    try:
        yield
    finally:
        let_go(fd)
