"""Bytes that come in pieces, read in the lengths that a parser wants."""

from __future__ import annotations

import os
from collections.abc import Iterator

from sandbox.errors import ImageError

_LARGEST_READ = 64 << 20


class ByteStream:
    """A stream of bytes made of pieces; every read is whole or an error."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        """Read `pieces`, none of which is needed again."""
        self._pieces = pieces
        self._piece = memoryview(b"")
        self._start = 0
        self.position = 0
        """How many bytes were read or skipped."""

    def _next(self) -> bool:
        for piece in self._pieces:
            if piece:
                self._piece, self._start = memoryview(piece), 0
                return True
        return False

    def at_end(self) -> bool:
        """Return whether nothing is left."""
        return self._start == len(self._piece) and not self._next()

    def read(self, size: int) -> bytes:
        """Return exactly `size` bytes, which are few.

        Raises:
            ImageError: the stream ends before.
        """
        end = self._start + size
        if end <= len(self._piece):
            data = self._piece[self._start : end].tobytes()
            self._start = end
            self.position += size
            return data
        if size > _LARGEST_READ:
            raise ImageError(f"the archive wants {size} bytes in memory at once")
        return b"".join(bytes(part) for part in self.parts(size))

    def parts(self, size: int) -> Iterator[memoryview]:
        """Yield the next `size` bytes in whatever parts they come.

        Raises:
            ImageError: the stream ends before.
        """
        while size:
            if self.at_end():
                raise ImageError(f"the archive ends after {self.position} bytes, amid an entry")
            part = self._piece[self._start : self._start + size]
            self._start += len(part)
            self.position += len(part)
            size -= len(part)
            yield part

    def skip(self, size: int) -> None:
        """Pass over `size` bytes.

        Raises:
            ImageError: the stream ends before.
        """
        for _ in self.parts(size):
            pass

    def copy(self, size: int, fd: int) -> None:
        """Write the next `size` bytes to a descriptor.

        Raises:
            ImageError: the stream ends before.
            OSError: they cannot be written.
        """
        for part in self.parts(size):
            write_all(fd, part)

    def drain(self) -> int:
        """Read to the end and return how many bytes that were."""
        before = self.position
        while not self.at_end():
            self.position += len(self._piece) - self._start
            self._start = len(self._piece)
        return self.position - before


def write_all(fd: int, data: memoryview | bytes) -> None:
    """Write all of `data`, however often the kernel takes only a part.

    Raises:
        OSError: it cannot be written.
    """
    written = os.write(fd, data)
    while written < len(data):
        data = data[written:]
        written = os.write(fd, data)
