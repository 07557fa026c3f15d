"""Removing what a run has written in its root: by ids that are the user's, or lent to them."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from sandbox.records.enclosure import IdMap

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEPTH = 100  # each level holds a descriptor, and a frame of Python


def remove_scratch(path: Path, ids: IdMap | None) -> bool:
    """Remove a directory with all that is in it; return whether it is gone.

    Args:
        path: The directory; that it is not there is fine.
        ids: The ids that files in it may have, if they are not ours alone.
    """
    _remove(path)
    if path.exists() and ids is not None and not ids.is_single:
        from sandbox.errors import SandboxError
        from sandbox.kernel.lent import as_lent

        with suppress(OSError, SandboxError):
            as_lent(ids, lambda _tell: _remove(path))
    return not path.exists()


def _remove(path: Path) -> None:
    with suppress(OSError):
        parent = os.open(path.parent, _OPEN)
        try:
            _open_up(path.name, parent)
            top = os.open(path.name, _OPEN, dir_fd=parent)
            try:
                _Emptying(top).run()
            finally:
                os.close(top)
            os.rmdir(path.name, dir_fd=parent)
        finally:
            os.close(parent)


def _open_up(name: str, parent_fd: int) -> None:
    """Let us into a directory that the program has closed, to everybody perhaps."""
    mode = os.stat(name, dir_fd=parent_fd, follow_symlinks=False).st_mode
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        os.chmod(name, stat.S_IRWXU, dir_fd=parent_fd)


class _Emptying:
    """Empties a directory however deep it is: what is too deep is moved up and taken next."""

    def __init__(self, top_fd: int) -> None:
        self._top_fd = top_fd
        self._moved = 0

    def run(self) -> None:
        moved_before = -1
        while self._moved != moved_before:
            moved_before = self._moved
            self._empty(self._top_fd, 0)

    def _empty(self, fd: int, depth: int) -> None:
        for entry in os.listdir(fd):
            with suppress(OSError):
                self._remove(fd, entry, depth)

    def _remove(self, parent_fd: int, name: str, depth: int) -> None:
        found = os.stat(name, dir_fd=parent_fd, follow_symlinks=False)
        if not stat.S_ISDIR(found.st_mode):
            os.unlink(name, dir_fd=parent_fd)
            return
        _open_up(name, parent_fd)
        if depth >= _DEPTH:
            self._moved += 1
            hidden = f".deep-{self._moved}"
            os.rename(name, hidden, src_dir_fd=parent_fd, dst_dir_fd=self._top_fd)
            return
        fd = os.open(name, _OPEN, dir_fd=parent_fd)
        try:
            self._empty(fd, depth + 1)
        finally:
            os.close(fd)
        os.rmdir(name, dir_fd=parent_fd)
