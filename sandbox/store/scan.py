"""Reading the `samples` file: also while it is written, cut short, or damaged."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

from sandbox.errors import StoreError
from sandbox.records.light import dataclass
from sandbox.records.sample import Block, Table
from sandbox.store import format as layout

Read = Callable[[int, int], bytes]
"""Returns the bytes from an offset on: as many as asked for, or what there is."""

_CHUNK_BYTES = 1 << 18


@dataclass(frozen=True)
class StoredBlock:
    """An intact block and where it stands."""

    start: int
    end: int
    head: layout.Head
    payload: bytes

    def columns(self) -> tuple[array[int], ...]:
        """Return its rows, column by column; raises `FormatError` or `StoreError`."""
        return layout.decode_payload(self.head, self.payload)


class Scanner:
    """Finds one intact block after the other; reads in large pieces."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._start = 0
        self._chunk = b""

    def next_block(self, offset: int) -> StoredBlock | None:
        """Return the first intact block that starts at `offset` or later, or None.

        None also stands for a block that is not wholly written yet: asking again may find it.
        """
        while True:
            block = self._block_at(offset)
            if block is not None:
                return block
            found = self._find_sync(offset + 1)
            if found is None:
                return None
            offset = found

    def _block_at(self, offset: int) -> StoredBlock | None:
        data = self._bytes(offset, layout.HEAD_BYTES)
        if len(data) < layout.HEAD_BYTES:
            return None
        head = layout.decode_head(data)
        if head is None:
            return None
        start = offset + layout.HEAD_BYTES
        payload = self._bytes(start, head.stored_bytes)
        if len(payload) < head.stored_bytes or not layout.is_intact(head, payload):
            return None
        return StoredBlock(offset, start + head.stored_bytes, head, payload)

    def _find_sync(self, offset: int) -> int | None:
        overlap = len(layout.SYNC) - 1
        while True:
            data = self._bytes(offset, _CHUNK_BYTES)
            found = data.find(layout.SYNC)
            if found >= 0:
                return offset + found
            if len(data) < _CHUNK_BYTES:
                return None
            offset += len(data) - overlap

    def _bytes(self, offset: int, length: int) -> bytes:
        at = offset - self._start
        if at < 0 or at + length > len(self._chunk):
            self._chunk = self._read(offset, max(length, _CHUNK_BYTES))
            self._start, at = offset, 0
        return self._chunk[at : at + length]


class BlockReader(Iterator[Block]):
    """The blocks of one file, in the order in which they were written.

    Each table's rows are ordered by time; the blocks of both alternate, about one each a second.
    A torn end is left out; a damaged block before the end is skipped and counted.
    """

    def __init__(self, read: Read, close: Callable[[], None] = lambda: None) -> None:
        """Read the header.

        Raises:
            StoreError: it is no samples file, it is damaged, or a newer version wrote it.
        """
        self._close = close
        self.columns: dict[Table, tuple[str, ...]] = {}
        """The columns of each table; empty if not even the header was written."""
        self.damaged = 0
        """Places, so far, at which something unreadable was skipped."""
        self.header: layout.Header | None = None
        self._scanner = Scanner(read)
        found = layout.decode_header(read)
        self._offset = -1
        if found is not None:
            self.header, self._offset = found
            self.columns = self.header.columns

    def __next__(self) -> Block:
        """Return the next block.

        Raises:
            StoreError: what it takes to decompress it is not installed.
        """
        while self._offset >= 0:
            stored = self._scanner.next_block(self._offset)
            if stored is None:
                break
            self.damaged += stored.start > self._offset
            self._offset = stored.end
            names = self.columns.get(stored.head.table, ())
            try:
                if len(names) == stored.head.columns:
                    return Block(stored.head.table, names, stored.columns())
            except layout.FormatError:
                pass
            self.damaged += 1
        self.close()
        raise StopIteration

    def close(self) -> None:
        """Close the file; done by itself at its end."""
        self._offset = -1
        close, self._close = self._close, lambda: None
        close()

    def __del__(self) -> None:
        """Close the file of a reader that was left half-way."""
        self.close()


def read_blocks(source: Path | str | bytes | bytearray | memoryview) -> BlockReader:
    """Return the blocks of a file, or of its bytes.

    Raises:
        StoreError: it cannot be opened, is no samples file or its header is damaged.
    """
    if not isinstance(source, (str, Path)):
        view = memoryview(source)
        return BlockReader(lambda offset, length: bytes(view[offset : offset + length]))
    try:
        fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as exc:
        raise StoreError(f"cannot read the samples in {source}: {exc.strerror}") from exc

    def read(offset: int, length: int) -> bytes:
        try:
            return os.pread(fd, length, offset)
        except OSError as exc:
            raise StoreError(f"cannot read the samples in {source}: {exc.strerror}") from exc

    try:
        return BlockReader(read, lambda: os.close(fd))
    except StoreError as exc:
        raise StoreError(f"{source}: {exc}", hint=exc.hint) from exc
