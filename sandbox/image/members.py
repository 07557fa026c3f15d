"""The files of an image that lies in a directory or in one archive; nothing is extracted."""

from __future__ import annotations

import io
import os
import posixpath
from pathlib import Path
from typing import BinaryIO, Protocol

from sandbox.errors import ImageError
from sandbox.image import tar
from sandbox.image.manifest import LARGEST_DOCUMENT
from sandbox.image.stream import ByteStream
from sandbox.image.tar_headers import show

_PIECE = 1 << 20
_MOST_LINKS = 8
_MOST_MEMBERS = 100_000


class Members(Protocol):
    """Files by name."""

    def has(self, name: str) -> bool:
        """Return whether there is such a file."""

    def open(self, name: str) -> BinaryIO:
        """Return it from its start; anybody may open it again.

        Raises:
            ImageError: it is not there.
        """


def read_document(members: Members, name: str) -> bytes:
    """Return a small file.

    Raises:
        ImageError: it is not there, or not small.
    """
    with members.open(name) as file:
        data = file.read(LARGEST_DOCUMENT + 1)
    if len(data) > LARGEST_DOCUMENT:
        raise ImageError(f"{name} is larger than {LARGEST_DOCUMENT} bytes")
    return data


class DirectoryMembers:
    """The files of a directory."""

    def __init__(self, root: Path) -> None:
        """Use the directory `root`."""
        self._root = root

    def has(self, name: str) -> bool:
        """Return whether there is such a file."""
        return (self._root / name).is_file()

    def open(self, name: str) -> BinaryIO:
        """Return it from its start.

        Raises:
            ImageError: it cannot be read.
        """
        if posixpath.normpath(name).startswith(("..", "/")):
            raise ImageError(f"`{name}` is outside of the image")
        try:
            return (self._root / name).open("rb")
        except OSError as exc:
            raise ImageError(f"cannot read {self._root / name}: {exc.strerror}") from exc


class _SeekingStream(ByteStream):
    """A stream over a file that passes over data without reading it."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(iter(lambda: file.read(_PIECE), b""))
        self._file = file
        self._size = os.fstat(file.fileno()).st_size

    def skip(self, size: int) -> None:
        waiting = len(self._piece) - self._start
        if size <= waiting:
            super().skip(size)
            return
        if self.position + size > self._size:
            raise ImageError(f"the archive ends after {self._size} bytes, amid an entry")
        self.position += size
        self._piece, self._start = memoryview(b""), 0
        self._file.seek(self.position)


class ArchiveMembers:
    """The files of an uncompressed archive, links among them followed within it."""

    def __init__(self, path: Path) -> None:
        """List the archive at `path`.

        Raises:
            ImageError: it is damaged or cut short.
            OSError: it cannot be read.
        """
        self._path = path
        self._places: dict[str, tuple[int, int]] = {}
        self._links: dict[str, str] = {}
        with path.open("rb", buffering=0) as file:
            stream = _SeekingStream(file)
            for count, entry in enumerate(tar.TarReader(stream, must_end=True)):
                if count > _MOST_MEMBERS:
                    break  # nobody saves an image in so many files: it is a tree
                self._note(entry, stream.position)

    def _note(self, entry: tar.Entry, position: int) -> None:
        name = _normal(os.fsdecode(entry.name))
        if entry.kind == tar.FILE and entry.segments is None:
            self._places[name] = (position, entry.size)
            self._links.pop(name, None)
        elif entry.kind in {tar.LINK, tar.HARD_LINK}:
            target = os.fsdecode(entry.link)
            if entry.kind == tar.LINK:
                target = posixpath.join(posixpath.dirname(name), target)
            self._links[name] = _normal(target)
            self._places.pop(name, None)

    def _find(self, name: str) -> tuple[int, int] | None:
        name = _normal(name)
        for _ in range(_MOST_LINKS):
            if name in self._places:
                return self._places[name]
            if name not in self._links:
                return None
            name = self._links[name]
        return None

    def has(self, name: str) -> bool:
        """Return whether there is such a file."""
        return self._find(name) is not None

    def open(self, name: str) -> BinaryIO:
        """Return it from its start.

        Raises:
            ImageError: it is not there.
        """
        place = self._find(name)
        if place is None:
            raise ImageError(f"{self._path} has no `{show(os.fsencode(name))}`")
        return io.BufferedReader(_Part(self._path, *place), _PIECE)


class _Part(io.RawIOBase):
    """A part of a file, as a file."""

    def __init__(self, path: Path, start: int, size: int) -> None:
        super().__init__()
        self._file = path.open("rb", buffering=0)
        self._file.seek(start)
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override] # any of them
        view = memoryview(buffer)[: self._left]
        count = self._file.readinto(view)
        if not count and self._left:
            raise ImageError(f"{self._file.name} became shorter while it was read")
        self._left -= count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _normal(name: str) -> str:
    return posixpath.normpath(name.lstrip("/"))
