"""The row of a stream that lies nearest to a moment which itself may move while rows pass by."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

from sandbox.records.sample import TIME, Block

_REMEMBERED_BLOCKS = 32  # about half a minute: how far the two tables may run apart in a stream


class Nearest:
    """Follows one table; remembers its last blocks, so that the aim may go back to them."""

    def __init__(self) -> None:
        self._recent: deque[Block] = deque(maxlen=_REMEMBERED_BLOCKS)
        self._aim_ns: int | None = None
        self._distance_ns = 0
        self.row: dict[str, int] | None = None

    def add(self, block: Block) -> None:
        """Take the next block of the table, which is later than those before it."""
        if not block.column(TIME):
            return
        self._recent.append(block)
        if self._aim_ns is not None:
            self._look_into(block, self._aim_ns)

    def aim(self, time_ns: int) -> None:
        """Look for the row nearest to `time_ns` from now on, among the remembered rows too."""
        if time_ns == self._aim_ns:
            return
        self._aim_ns = time_ns
        if self.row is not None:  # what was nearest before may still be
            self._distance_ns = abs(self.row[TIME] - time_ns)
        for block in reversed(self._recent):
            self._look_into(block, time_ns)
            if block.data[0][0] <= time_ns and self.row is not None:
                break  # earlier blocks are only further away

    def _look_into(self, block: Block, aim_ns: int) -> None:
        times = block.data[0]
        right = bisect_left(times, aim_ns)
        for index in (right - 1, right):
            if 0 <= index < len(times):
                distance_ns = abs(times[index] - aim_ns)
                if self.row is None or distance_ns < self._distance_ns:
                    values = (column[index] for column in block.data)
                    self.row = dict(zip(block.columns, values, strict=True))
                    self._distance_ns = distance_ns
