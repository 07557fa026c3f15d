"""Where blocks are kept: a file of the run directory, or memory. Both grow at the end only."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Protocol, Self

MODE = 0o600
NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`; a full disk may take a part of it and then raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


class Target(Protocol):
    """Bytes that grow at their end."""

    size: int

    def append(self, data: bytes) -> None:
        """Append all of it, or nothing and raise OSError."""

    def read_at(self, offset: int, length: int) -> bytes:
        """Return what there is from `offset` on, at most `length` bytes; raises OSError."""

    def sibling(self) -> Self:
        """Return an empty target that may `replace` this one; raises OSError."""

    def replace(self, other: Self) -> None:
        """Take over the bytes of a sibling in one step; raises OSError."""

    def close(self) -> None:
        """Give back what is held; a sibling that did not replace anything leaves nothing."""


class FileTarget:
    """A file, reached through the descriptor of its directory."""

    def __init__(self, directory_fd: int, name: str, temporary_name: str) -> None:
        """Make an empty file; the directory's descriptor stays the caller's.

        Raises:
            OSError: it cannot be made.
        """
        self.size = 0
        self._directory_fd = directory_fd
        self._name = name
        self._temporary_name = temporary_name
        self._is_temporary = False
        self._fd = os.open(name, NEW_FILE, MODE, dir_fd=directory_fd)

    def append(self, data: bytes) -> None:
        """Append all of it, or nothing and raise OSError."""
        try:
            write_all(self._fd, data)
        except OSError:
            # A reader would skip the torn part, but what follows is found faster without it.
            with suppress(OSError):
                os.ftruncate(self._fd, self.size)
            raise
        self.size += len(data)

    def read_at(self, offset: int, length: int) -> bytes:
        """Return what there is from `offset` on."""
        return os.pread(self._fd, length, offset)

    def sibling(self) -> FileTarget:
        """Return an empty file beside it."""
        other = FileTarget(self._directory_fd, self._temporary_name, self._name)
        other._is_temporary = True
        return other

    def replace(self, other: FileTarget) -> None:
        """Rename the sibling over this file; who reads the old one reads on undisturbed."""
        directory = self._directory_fd
        os.rename(other._name, self._name, src_dir_fd=directory, dst_dir_fd=directory)
        os.close(self._fd)
        self._fd, self.size, other._fd = other._fd, other.size, -1

    def close(self) -> None:
        """Close the file; again is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            if self._is_temporary:
                with suppress(OSError):
                    os.unlink(self._name, dir_fd=self._directory_fd)


class MemoryTarget:
    """Bytes in memory; appending never fails."""

    def __init__(self) -> None:
        self._data = bytearray()

    @property
    def size(self) -> int:
        """Return how many bytes there are."""
        return len(self._data)

    def append(self, data: bytes) -> None:
        """Append all of it."""
        self._data += data

    def read_at(self, offset: int, length: int) -> bytes:
        """Return what there is from `offset` on."""
        return bytes(self._data[offset : offset + length])

    def sibling(self) -> MemoryTarget:
        """Return empty memory."""
        return MemoryTarget()

    def replace(self, other: MemoryTarget) -> None:
        """Take over the sibling's bytes."""
        self._data = other._data

    def close(self) -> None:
        """Nothing is held that needs it: the bytes stay readable."""
