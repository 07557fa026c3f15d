"""Taking samples from the sampler: a second in memory, then a block in the run directory."""

from __future__ import annotations

import sys
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence

from sandbox.errors import StoreError
from sandbox.records.result import Event
from sandbox.records.sample import ABSENT, TIME, Block, Table
from sandbox.store.bounded import BoundedLog
from sandbox.store.format import MAX_ROWS, Encoder, Header, encode_header
from sandbox.store.targets import FileTarget, MemoryTarget
from sandbox.units import NS_PER_SEC

BLOCK_NS = NS_PER_SEC
CAP_BYTES = 64 << 20
MEMORY_CAP_BYTES = 8 << 20
_KEPT_ROWS = 1024  # ten seconds: so short a run is summed up without reading its file again
_MOVED_BLOCKS = 256  # from memory to the file at a time: a few milliseconds


class _Rows:
    """The newest rows of one table, those that are not in a block yet."""

    def __init__(self, width: int, flush_all: Callable[[], None]) -> None:
        self._width = width
        self._flush_all = flush_all
        self._values: array[int] = array("q")
        self._due_ns = ABSENT  # the first row is written at once: then the file is complete
        self._stride = 1
        self._passed_over = 0
        self._last: Sequence[int] | None = None

    def add(self, row: Sequence[int]) -> None:
        if len(row) != self._width:
            raise ValueError(f"a row of {len(row)} values for {self._width} columns")
        if self._stride > 1 and self._passes_over(row):
            return
        try:
            self._values.fromlist(row if isinstance(row, list) else list(row))
        except OverflowError:
            self._values.extend(map(_storable, row))
        if row[0] >= self._due_ns or len(self._values) >= MAX_ROWS * self._width:
            self._due_ns = row[0] + BLOCK_NS
            self._flush_all()

    def _passes_over(self, row: Sequence[int]) -> bool:
        self._passed_over += 1
        if self._passed_over < self._stride:
            self._last = tuple(row)
            return True
        self._passed_over = 0
        self._last = None
        return False

    def thin(self, stride: int) -> None:
        """From now on keep one row of `stride`."""
        self._stride = stride

    def take(self) -> list[array[int]]:
        """Return the rows, column by column, and forget them; an empty list if there are none."""
        values, width = self._values, self._width
        if not values:
            return []
        self._values = array("q")
        self._due_ns = max(self._due_ns, values[-width] + BLOCK_NS)
        return [values[place::width] for place in range(width)]

    def end(self) -> None:
        """Take back the last row, if it was passed over: the end of a run is always on record."""
        if self._last is not None:
            self._values.extend(map(_storable, self._last))
            self._last = None


def _storable(value: int) -> int:
    """Return the value, or ABSENT for what 63 bits cannot hold: no counter gets there honestly."""
    return value if -(1 << 63) <= value < 1 << 63 else ABSENT


class SampleWriter:
    """A `SampleSink` that never fails: what cannot be written stays in memory, in bounds.

    What waits in memory is written as soon as that succeeds again. Both the file and the memory
    are thinned when they are nearly full, and from then on fewer rows are accepted.
    """

    def __init__(
        self,
        file: FileTarget | None,
        columns: Mapping[Table, Sequence[str]],
        *,
        cap_bytes: int = CAP_BYTES,
        memory_cap_bytes: int = MEMORY_CAP_BYTES,
        on_thinned: Callable[[int], None] | None = None,
    ) -> None:
        """Begin to record; without a file, in memory alone.

        Args:
            file: Where to write; it is closed by `release`.
            columns: Names in the order of a row, with or without the leading `time_ns`.
            cap_bytes: The file never gets larger.
            memory_cap_bytes: Nor does what waits in memory, encoded.
            on_thinned: Called with n when from now on only every n-th row is kept.
        """
        self.columns = {table: _with_time(columns[table]) for table in Table}
        self.error: OSError | None = None
        """The first failure to write; None as long as there was none."""
        self._encoder = Encoder()
        self._stride = 1
        self._kept: list[Block] | None = []
        self._kept_rows = 0
        self._on_thinned = on_thinned
        self._cap_bytes = cap_bytes
        self._header = encode_header(
            Header(columns=self.columns, clock_ns=time.monotonic_ns(), clock_utc_ns=time.time_ns())
        )
        self._memory = BoundedLog(MemoryTarget(), self._header, memory_cap_bytes, self._thin)
        self._unopened = file
        self._file: BoundedLog[FileTarget] | None = None
        self._open_file()
        self._tables = {
            table: _Rows(len(names), self._flush) for table, names in self.columns.items()
        }
        self.fast = self._tables[Table.FAST].add
        self.slow = self._tables[Table.SLOW].add

    @property
    def is_waiting(self) -> bool:
        """Return whether rows are in memory because they could not be written."""
        return not self._memory.is_empty

    def _flush(self) -> None:
        # Always both tables: a reader that merges them finds rows of one time close together.
        for table, rows in self._tables.items():
            if columns := rows.take():
                self._write(table, columns)

    def _write(self, table: Table, columns: list[array[int]]) -> None:
        block, rows = self._encoder.block(table, columns), len(columns[0])
        self._keep(Block(table, self.columns[table], tuple(columns)), rows)
        file = self._open_file()
        if file is not None and self._catch_up(file, _MOVED_BLOCKS):
            try:
                file.append(block, rows)
            except OSError as exc:
                self._failed(exc)
            else:
                return
        try:
            self._memory.append(block, rows)
        except OSError as exc:  # at its bounds: even thinned there is no room for more
            self._failed(exc)

    def _keep(self, block: Block, rows: int) -> None:
        self._kept_rows += rows
        if self._kept is not None and self._kept_rows <= _KEPT_ROWS:
            self._kept.append(block)
        else:
            self._kept = None

    def _open_file(self) -> BoundedLog[FileTarget] | None:
        """Write the header, if that could not be done before; return what takes blocks."""
        if self._unopened is not None:
            try:
                self._file = BoundedLog(self._unopened, self._header, self._cap_bytes, self._thin)
                self._unopened = None
            except OSError as exc:
                self._failed(exc)
        return self._file

    def _catch_up(self, file: BoundedLog[FileTarget], most_blocks: int) -> bool:
        """Write what waits in memory; return whether nothing waits any more."""
        if self._memory.is_empty:
            return True
        try:
            return self._memory.move_to(file, most_blocks)
        except OSError as exc:
            self._failed(exc)
            return False

    def _failed(self, exc: OSError) -> None:
        if self.error is None:
            self.error = exc

    def _thin(self) -> None:
        self._stride *= 2
        self._kept = None  # more than what is on record from now on
        for rows in self._tables.values():
            rows.thin(self._stride)
        if self._on_thinned is not None:
            self._on_thinned(self._stride)

    def close(self) -> None:
        """Write what is left; `blocks` stays usable."""
        for rows in self._tables.values():
            rows.end()
        self._flush()
        self._memory.finish()
        file = self._open_file()
        if file is not None:
            self._catch_up(file, sys.maxsize)
            file.finish()

    def blocks(self) -> Iterator[Block]:
        """Return all blocks: those of the file, then those that still wait in memory."""
        if self._kept is not None:
            yield from self._kept
            return
        if self._file is not None:
            try:
                yield from self._file.blocks()
            except (OSError, StoreError) as exc:  # a disk that fails must not take the run along
                self._failed(exc if isinstance(exc, OSError) else OSError(str(exc)))
        yield from self._memory.blocks()

    def release(self) -> None:
        """Close the file; what waits in memory stays there."""
        for held in (self._file, self._unopened):
            if held is not None:
                held.close()
        self._file = self._unopened = None


def _with_time(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(names) if names and names[0] == TIME else (TIME, *names)


def thinned_event(stride: int) -> Event:
    """Return what to write down when from now on only every `stride`-th row is kept."""
    return Event(
        time_ns=time.monotonic_ns(),
        utc_ns=time.time_ns(),
        kind="thinned",
        detail={"stride": stride},
    )
