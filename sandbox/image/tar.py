"""The grammar of tar archives: ustar, PAX and GNU, read strictly and once from front to end.

The standard library's reader ends in silence where a header in the middle is damaged, so that the
tree is shorter than it should be. Here whatever is not understood is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sandbox.errors import ImageError
from sandbox.image.stream import ByteStream
from sandbox.image.tar_headers import (
    BLOCK,
    Pax,
    apply_attributes,
    field_number,
    field_text,
    parse_pax,
    verify_checksum,
)
from sandbox.image.tar_sparse import Segments, read_old_map, read_pax_map

FILE, HARD_LINK, LINK, CHARACTER, BLOCK_DEVICE, DIRECTORY, FIFO = "0123456"
_KINDS = {
    b"\0": FILE, b"0": FILE, b"7": FILE, b"1": HARD_LINK, b"2": LINK, b"3": CHARACTER,
    b"4": BLOCK_DEVICE, b"5": DIRECTORY, b"6": FIFO, b"S": FILE,
}  # fmt: skip
_ZERO = bytes(BLOCK)
_LARGEST_NAME = 1 << 16
_LARGEST_PAX = 4 << 20
_LARGEST_SIZE = 1 << 60


class Entry(NamedTuple):
    """One member of an archive."""

    kind: str
    name: bytes
    link: bytes
    """What a link points to; empty for others."""
    mode: int
    """Permissions with the set-id and sticky bits."""
    uid: int
    gid: int
    mtime_ns: int
    size: int
    """As the file will have, holes included."""
    stored: int
    """Bytes of data that follow in the archive."""
    segments: Segments | None
    """Of a sparse file: offset and length of each part that is no hole."""
    device: tuple[int, int]
    """Major and minor number of a device node."""
    xattrs: dict[bytes, bytes]


class TarReader:
    """Iterate over the entries; between two, `copy` takes the data of the first."""

    def __init__(self, stream: ByteStream, *, must_end: bool) -> None:
        """Read `stream`.

        Args:
            stream: The archive.
            must_end: Whether its end has to be marked. A layer's digest says as much.
        """
        self._stream = stream
        self._must_end = must_end
        self._global: Pax = {}
        self._left = 0
        self._padding = 0

    def __iter__(self) -> Iterator[Entry]:
        """Yield each entry; data that nobody took is skipped.

        Raises:
            ImageError: the archive is cut short, damaged or not understood.
        """
        while (header := self._next_header()) is not None:
            yield self._member(header)
            self._finish_data()

    def copy(self, entry: Entry, fd: int) -> None:
        """Write the data of the entry that was just yielded to a file; holes stay holes.

        Raises:
            ImageError: the archive is cut short.
            OSError: the file cannot be written.
        """
        if entry.segments is None:
            self._take(entry.stored)
            self._stream.copy(entry.stored, fd)
            return
        import os

        os.ftruncate(fd, entry.size)
        for offset, length in entry.segments:
            os.lseek(fd, offset, os.SEEK_SET)
            self._take(length)
            self._stream.copy(length, fd)

    def read(self, entry: Entry) -> bytes:
        """Return the data of the entry that was just yielded, which is small."""
        self._take(entry.stored)
        return self._stream.read(entry.stored)

    def _take(self, size: int) -> None:
        self._left -= size

    def _finish_data(self) -> None:
        self._stream.skip(self._left)
        if not (self._stream.at_end() and not self._must_end):  # what forgets the end, forgets this
            self._stream.skip(self._padding)
        self._left = self._padding = 0

    def _begin_data(self, size: int) -> None:
        self._left, self._padding = size, -size % BLOCK

    def _next_header(self) -> bytes | None:
        """Return the next header, or None after the end, which is then read to its last byte."""
        stream = self._stream
        if stream.at_end() and not self._must_end:
            return None
        if stream.at_end():
            raise ImageError(
                "the archive is cut short: its end is not marked", hint="write or fetch it anew"
            )
        header = stream.read(BLOCK)
        if header != _ZERO:
            verify_checksum(header, stream.position - BLOCK)
            return header
        # One block of zeros would do for GNU tar; its second may be the start of other data.
        if not stream.at_end() and stream.read(BLOCK) != _ZERO:
            raise ImageError(f"the archive has data after its end, at {stream.position - BLOCK}")
        stream.drain()
        return None

    def _member(self, header: bytes) -> Entry:
        """Return the entry that begins with `header`, which may be one about the next header."""
        pax: Pax = {}
        name = link = None
        while (kind := header[156:157]) in b"xgLK" and kind:
            size = self._metadata_size(header, kind)
            data = self._stream.read(size)
            self._stream.skip(-size % BLOCK)
            if kind == b"x":
                pax.update(parse_pax(data))
            elif kind == b"g":
                self._global.update(parse_pax(data))
            elif kind == b"L":
                name = data.rstrip(b"\0")
            else:
                link = data.rstrip(b"\0")
            following = self._next_header()
            if following is None:
                raise ImageError("the archive ends with a header for an entry that is not there")
            header = following
        return self._entry(header, {**self._global, **pax}, name, link)

    def _metadata_size(self, header: bytes, kind: bytes) -> int:
        # Its own field: a size in an earlier PAX header is that of the entry to come.
        size = field_number(header, 124, 12, "size")
        if not 0 <= size <= (_LARGEST_PAX if kind in b"xg" else _LARGEST_NAME):
            raise ImageError(f"the archive has a header of {size} bytes before an entry")
        return size

    def _entry(self, header: bytes, pax: Pax, name: bytes | None, link: bytes | None) -> Entry:
        attributes = apply_attributes(header, pax, name, link)
        flag = header[156:157]
        kind = _KINDS.get(flag)
        if kind is None:
            raise ImageError(f"`{attributes.shown}` has the unknown type {flag!r} in the archive")
        if kind == FILE and attributes.name.endswith(b"/"):
            kind = DIRECTORY  # as before POSIX
        size = attributes.size
        if not 0 <= size < _LARGEST_SIZE or (kind != FILE and size):
            # Readers disagree on whether data follows, and then on where the next entry begins.
            raise ImageError(f"`{attributes.shown}` has a size of {size} in the archive")
        self._begin_data(size)
        segments: Segments | None = None
        stored = size
        if kind == FILE:
            size, stored, segments = self._sparse(header, pax, size)
        return Entry(
            kind=kind,
            name=attributes.name,
            link=attributes.link if kind in {LINK, HARD_LINK} else b"",
            mode=field_number(header, 100, 8, "mode") & 0o7777,
            uid=attributes.uid,
            gid=attributes.gid,
            mtime_ns=attributes.mtime_ns,
            size=size,
            stored=stored,
            segments=segments,
            device=self._device(header, kind),
            xattrs=attributes.xattrs,
        )

    def _sparse(self, header: bytes, pax: Pax, size: int) -> tuple[int, int, Segments | None]:
        """Return the size with holes, the bytes of data that follow, and where they belong."""
        if header[156:157] == b"S":
            real, segments = read_old_map(header, self._stream)
        elif b"GNU.sparse.major" in pax or b"GNU.sparse.map" in pax:
            before = self._stream.position
            real, segments = read_pax_map(pax, self._stream, size)
            used = self._stream.position - before  # version 1.0 has its map within the data
            self._take(used)
            size -= used
        else:
            return size, size, None
        if sum(length for _, length in segments) != size:
            raise ImageError(f"a sparse file's map does not fit its {size} bytes of data")
        return real, size, segments

    @staticmethod
    def _device(header: bytes, kind: str) -> tuple[int, int]:
        if kind not in {CHARACTER, BLOCK_DEVICE}:
            return 0, 0
        return (
            field_number(header, 329, 8, "major number"),
            field_number(header, 337, 8, "minor number"),
        )


def is_tar(block: bytes) -> bool:
    """Return whether an archive can begin with this block; one of zeros alone is empty."""
    if len(block) < BLOCK:
        return False
    if block[:BLOCK] == _ZERO:
        return True
    try:
        verify_checksum(block[:BLOCK], 0)
    except ImageError:
        return False
    return bool(field_text(block, 0, 100))
