"""Journals: a plan and what came of it so far, a line each, for work that may be taken up again."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sandbox.errors import StoreError
from sandbox.store.home import open_child, open_home
from sandbox.store.targets import MODE, write_all

_ENDING = ".jsonl"
_NAME = re.compile(r"[0-9a-z][0-9a-z-]*")


class Journal:
    """One file of lines that is only added to; locked as long as it is open for writing.

    A line is whole or is not counted: what a crash has cut off at the end is left out when it is
    read, and cut off before more is added.
    """

    def __init__(self, fd: int, path: Path) -> None:
        """Take an open, locked file."""
        self._fd = fd
        self.path = path

    @classmethod
    def create(cls, home: Path, kind: str, name: str, header: dict[str, Any]) -> Self:
        """Make `home/kind/name.jsonl` with its first line.

        Raises:
            StoreError: it is there already, or cannot be made.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND
        journal = cls(*_open(home, kind, name, flags))
        try:
            journal.append(header)
        except StoreError:
            journal.close()
            raise
        return journal

    @classmethod
    def resume(cls, home: Path, kind: str, name: str) -> tuple[Self, list[dict[str, Any]]]:
        """Open one for more lines, and return those that it has.

        Raises:
            StoreError: there is none, someone else is writing it, or its lines are not JSON.
        """
        fd, path = _open(home, kind, name, os.O_RDWR | os.O_APPEND)
        try:
            data = _read_all(fd)
            whole = data[: data.rfind(b"\n") + 1]
            os.ftruncate(fd, len(whole))
            return cls(fd, path), list(_lines(whole, path))
        except OSError as exc:
            os.close(fd)
            raise StoreError(f"{path} cannot be taken up again: {exc.strerror}") from exc
        except StoreError:
            os.close(fd)
            raise

    def append(self, line: dict[str, Any]) -> None:
        """Add a line and have the kernel write it to the disk: runs are dearer than that.

        Raises:
            StoreError: there is no room, or the disk fails.
        """
        try:
            write_all(self._fd, json.dumps(line, separators=(",", ":")).encode() + b"\n")
            os.fdatasync(self._fd)
        except OSError as exc:
            raise StoreError(
                f"{self.path} cannot be written: {exc.strerror}",
                hint="make room and take it up again with --resume",
            ) from exc

    def close(self) -> None:
        """Unlock and close."""
        with suppress(OSError):
            os.close(self._fd)

    def __enter__(self) -> Self:
        """Close it at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it, whatever has happened."""
        self.close()


def read_journal(home: Path, kind: str, name: str) -> list[dict[str, Any]]:
    """Return the whole lines of a journal, which may be written at the same time.

    Raises:
        StoreError: there is none, or its lines are not JSON.
    """
    fd, path = _open(home, kind, name, os.O_RDONLY, lock=False)
    try:
        data = _read_all(fd)
    finally:
        os.close(fd)
    return list(_lines(data[: data.rfind(b"\n") + 1], path))


def list_journals(home: Path, kind: str) -> list[str]:
    """Return the names of a kind's journals, the newest last."""
    try:
        with os.scandir(home / kind) as entries:
            found = [
                (entry.stat().st_mtime_ns, entry.name.removesuffix(_ENDING))
                for entry in entries
                if entry.name.endswith(_ENDING)
            ]
    except FileNotFoundError:
        return []
    return [name for _, name in sorted(found)]


def _open(home: Path, kind: str, name: str, flags: int, *, lock: bool = True) -> tuple[int, Path]:
    path = home / kind / f"{name}{_ENDING}"
    if not _NAME.fullmatch(name):
        raise StoreError(
            f"`{name}` is not the name of one of {home / kind}",
            hint=f"`ls {home / kind}` shows them, each with the ending {_ENDING}",
        )
    try:
        home_fd = open_home(home, make=bool(flags & os.O_CREAT))
        try:
            directory_fd = open_child(home_fd, kind, make=bool(flags & os.O_CREAT))
        finally:
            os.close(home_fd)
        try:
            safe = flags | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(path.name, safe, MODE, dir_fd=directory_fd)
        finally:
            os.close(directory_fd)
    except FileNotFoundError:
        known = ", ".join(list_journals(home, kind)[-5:])
        raise StoreError(
            f"there is no {path}", hint=f"the last ones are {known}" if known else None
        ) from None
    except OSError as exc:
        raise StoreError(f"{path} cannot be opened: {exc.strerror}") from exc
    if lock:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise StoreError(f"{path} is being written by another process") from None
    return fd, path


def _read_all(fd: int) -> bytes:
    with os.fdopen(os.dup(fd), "rb") as stream:
        stream.seek(0)
        return stream.read()


def _lines(data: bytes, path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise StoreError(f"{path}:{number}: not a JSON object")
        yield found
