"""Blocks in bounded room: near its end every second row is dropped, a little at each append."""

from __future__ import annotations

import errno
import os
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from sandbox.records.sample import Table
from sandbox.store.format import Encoder, FormatError
from sandbox.store.targets import FileTarget, MemoryTarget

if TYPE_CHECKING:
    from sandbox.store.scan import BlockReader, Scanner, StoredBlock

AnyTarget = TypeVar("AnyTarget", FileTarget, MemoryTarget)

_THIN_FROM = 0.75
"""Share of the room at which thinning begins …"""
_PACE = 8
"""… old rows are thinned for each new one: it ends before another seventh has been added."""
_MERGED_ROWS = 512
_COPY_BYTES = 1 << 20


class _Half:
    """The rows of one table that were kept and are not written yet."""

    def __init__(self) -> None:
        self.columns: list[array[int]] = []
        self.is_odd = 0
        """1 when the next row is one to drop."""

    def add(self, columns: tuple[array[int], ...]) -> None:
        kept = [values[self.is_odd :: 2] for values in columns]
        self.is_odd = (self.is_odd + len(columns[0])) % 2
        if not self.columns:
            self.columns = kept
            return
        for mine, more in zip(self.columns, kept, strict=True):
            mine.extend(more)

    def rows(self) -> int:
        return len(self.columns[0]) if self.columns else 0


class _Thinning(Generic[AnyTarget]):
    """One pass over what is there: half of it, and all that is appended meanwhile, to a sibling.

    In steps, since the whole would take seconds, and the supervisor has deadlines to meet.
    """

    def __init__(self, source: AnyTarget, begin: int, encoder: Encoder) -> None:
        """Make the sibling; raises OSError."""
        self._source: AnyTarget = source
        self._offset = begin
        self._end = source.size
        self._encoder = encoder
        self._scanner = _scan(source)
        self._halves: dict[Table, _Half] = {}
        self.sibling: AnyTarget = source.sibling()
        self.sibling.append(source.read_at(0, begin))

    def step(self, rows: int) -> bool:
        """Thin about so many rows; return whether all is done. Raises OSError."""
        while rows > 0 and self._offset < self._end:
            block = self._scanner.next_block(self._offset)
            if block is None or block.start >= self._end:
                self._offset = self._end if block is None else block.start
                break
            self._offset = block.end
            self._take(block)
            rows -= block.head.rows
        if self._offset < self._end:
            return False
        self._write()
        data = self._source.read_at(self._offset, _COPY_BYTES)
        self.sibling.append(data)
        self._offset += len(data)
        return self._offset >= self._source.size

    def _take(self, block: StoredBlock) -> None:
        try:
            columns = block.columns()
        except FormatError:
            return
        half = self._halves.setdefault(block.head.table, _Half())
        half.add(columns)
        if half.rows() >= _MERGED_ROWS:
            self._write()

    def _write(self) -> None:
        # Both tables at once: a reader that merges them finds rows of one time close together.
        for table, half in self._halves.items():
            if half.rows():
                self.sibling.append(self._encoder.block(table, half.columns))
                half.columns = []


def _scan(target: FileTarget | MemoryTarget) -> Scanner:
    from sandbox.store.scan import Scanner  # what a short run never needs

    return Scanner(target.read_at)


class BoundedLog(Generic[AnyTarget]):
    """Blocks behind a header, never above `cap_bytes`."""

    def __init__(
        self, target: AnyTarget, header: bytes, cap_bytes: int, on_thin: Callable[[], None]
    ) -> None:
        """Write the header; `on_thin` is called whenever every second row begins to be dropped.

        Raises:
            OSError: the header cannot be written.
        """
        self._target: AnyTarget = target
        self._begin = len(header)
        self._cap_bytes = cap_bytes
        self._on_thin = on_thin
        self._encoder = Encoder()
        self._thinning: _Thinning[AnyTarget] | None = None
        self._retry_bytes = 0
        self._is_announced = False
        target.append(header)

    @property
    def is_empty(self) -> bool:
        """Return whether there is no block."""
        return self._target.size <= self._begin

    def append(self, block: bytes, rows: int) -> None:
        """Append a block and thin a little, if it is time; raises OSError and then has not."""
        if not self._has_room(block):
            self._thin(max(rows, _MERGED_ROWS))
            if not self._has_room(block):
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        self._target.append(block)
        self._thin(rows)

    def _has_room(self, block: bytes) -> bool:
        return self._target.size + len(block) <= self._cap_bytes

    def _thin(self, rows: int) -> None:
        size = self._target.size
        if self._thinning is None and size <= max(self._cap_bytes * _THIN_FROM, self._retry_bytes):
            return
        try:
            if self._thinning is None:
                self._thinning = _Thinning(self._target, self._begin, self._encoder)
                self._announce()
            if self._thinning.step(rows * _PACE):
                self._target.replace(self._thinning.sibling)
                self._thinning = None
                self._retry_bytes = 0
                self._is_announced = False
        except OSError:
            # Nothing is lost. The disk may be too full for the sibling: try again later.
            self._abandon()
            self._retry_bytes = min(size + self._cap_bytes // 64, self._cap_bytes - 1)

    def _announce(self) -> None:
        if not self._is_announced:
            self._is_announced = True
            self._on_thin()

    def blocks(self) -> BlockReader:
        """Return a reader of what was appended."""
        from sandbox.store.scan import BlockReader

        return BlockReader(self._target.read_at)

    def move_to(self, other: BoundedLog[FileTarget], most_blocks: int) -> bool:
        """Append blocks to another log and drop them here; return whether all were moved.

        Raises:
            OSError: the other log takes no more; what it took is dropped here.
        """
        if self._thinning is not None:
            return False  # soon done, and by then half as much
        scanner, offset = _scan(self._target), self._begin
        try:
            for _ in range(most_blocks):
                block = scanner.next_block(offset)
                if block is None:
                    offset = self._target.size
                    break
                data = self._target.read_at(block.start, block.end - block.start)
                other.append(data, block.head.rows)
                offset = block.end
        finally:
            if offset > self._begin:
                rest = self._target.sibling()
                rest.append(self._target.read_at(0, self._begin))
                rest.append(self._target.read_at(offset, self._target.size))
                self._target.replace(rest)
        return self.is_empty

    def _abandon(self) -> None:
        if self._thinning is not None:
            self._thinning.sibling.close()
            self._thinning = None

    def finish(self) -> None:
        """Leave a thinning that is under way: what is there is whole, and below the cap."""
        self._abandon()

    def close(self) -> None:
        """Give back what is held."""
        self._abandon()
        self._target.close()
