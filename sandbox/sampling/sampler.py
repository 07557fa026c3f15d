"""When to read what: the fast table at each tick, the slow one about ten times a second."""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Callable, Sequence

from sandbox.errors import SandboxError
from sandbox.kernel.group import Reader
from sandbox.records.light import dataclass
from sandbox.records.result import Overhead
from sandbox.records.sample import ABSENT, COLUMNS, TIME, Kind, SampleSink
from sandbox.sampling.clock import Clock, monotonic
from sandbox.spec import DEFAULT_INTERVAL_NS
from sandbox.units import format_duration

SLOW_INTERVAL_NS = 100_000_000
_GROWTH_SHARE = 20  # a slow row at once when memory grew by more than 1/20
_NEVER = sys.maxsize
_NS_PER_USEC = 1_000


@dataclass(frozen=True)
class Peak:
    """The largest value of a gauge that was sampled, and the CLOCK_MONOTONIC of its row."""

    value: int
    time_ns: int


class Sampler:
    """Reads one group and passes the rows on; remembers only what a bounded record could lose.

    `first`, then `tick` on the grid that starts at `start_ns`, then `last`. None of them raises
    because a counter cannot be read or a row cannot be written: `problem` then says so.
    """

    def __init__(
        self,
        reader: Reader,
        sink: SampleSink,
        clock: Clock = monotonic,
        interval_ns: int = DEFAULT_INTERVAL_NS,
        *,
        cpu_clock: Clock = time.process_time_ns,
    ) -> None:
        """`cpu_clock` counts the CPU time of the whole supervisor, for `overhead`."""
        self.problem: str | None = None
        """What the record lacks and why; None as long as it is whole."""
        self.start_ns = 0
        """The time of the first row, from which the grid of ticks is counted."""
        self._read_fast = reader.read_fast
        self._read_slow = reader.read_slow
        self._sink_fast: Callable[[Sequence[int]], None] = sink.fast
        self._sink_slow: Callable[[Sequence[int]], None] = sink.slow
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._interval_ns = interval_ns

        self._columns = (TIME, *reader.fast_columns)
        self._slow_width = len(reader.slow_columns)
        self._memory = _place(self._columns, "memory_current_bytes")
        self._cpu = _place(self._columns, "cpu_usage_usec")
        self._gauges = tuple(
            place for place, name in enumerate(self._columns) if COLUMNS[name].kind is Kind.GAUGE
        )
        self._peaks = [ABSENT] * len(self._columns)
        self._peak_times_ns = [0] * len(self._columns)

        self._slow_every = max(SLOW_INTERVAL_NS // interval_ns, 1)
        self._slow_left = 0
        self._slow_above = _NEVER

        self._ticks = 0
        self._missed = 0
        self._max_late_ns = 0
        self._cpu_started_ns = cpu_clock()
        self._cpu_ended_ns: int | None = None

    def first(self) -> int:
        """Read both tables right before the program is let go; return where the grid starts."""
        self._cpu_started_ns = self._cpu_clock()
        self.start_ns = self._clock()
        self._slow_left = 0
        self.tick(0)
        return self.start_ns

    def last(self) -> None:
        """Read both tables once more at the end."""
        self._slow_left = 0
        self.tick(0)
        self._cpu_ended_ns = self._cpu_clock()

    def tick(self, expirations: int) -> None:
        """Read what is due.

        `expirations` counts the points of the grid since the last tick; 0 is a row off the grid.
        One function and no calls that could be spared: after 10 ms of sleep nothing of this is
        left in the CPU's caches, and each piece of code has to be fetched anew.
        """
        now_ns = self._clock()
        try:
            row = [now_ns, *self._read_fast()]
        except (OSError, SandboxError) as exc:
            self._reading_failed(now_ns, exc, self._sink_fast, len(self._columns))
            return
        try:
            self._sink_fast(row)
        except (OSError, SandboxError) as exc:
            self._writing_failed(now_ns, exc)
        peaks = self._peaks
        for place in self._gauges:
            if row[place] > peaks[place]:
                peaks[place] = row[place]
                self._peak_times_ns[place] = now_ns
        if expirations:
            self._ticks += 1
            late_ns = (now_ns - self.start_ns) % self._interval_ns
            if expirations > 1:
                self._missed += expirations - 1
                late_ns += (expirations - 1) * self._interval_ns
            if late_ns > self._max_late_ns:  # noqa: PLR1730 - max() would be one more call
                self._max_late_ns = late_ns
            self._slow_left -= expirations
        if self._slow_left <= 0 or row[self._memory] > self._slow_above:
            self._record_slow(now_ns, row[self._memory])

    def cpu_usage_usec(self) -> int | None:
        """Read the CPU time of the group now, off the record; None if it cannot be read."""
        if not self._cpu:
            return None
        try:
            used_usec = self._read_fast()[self._cpu - 1]
        except (OSError, SandboxError):
            return None
        return None if used_usec == ABSENT else used_usec

    def peaks(self) -> dict[str, Peak]:
        """Return the largest row of each gauge of the fast table, by column."""
        return {
            self._columns[place]: Peak(self._peaks[place], self._peak_times_ns[place])
            for place in self._gauges
            if self._peaks[place] != ABSENT
        }

    def overhead(self) -> Overhead:
        """Return what sampling cost from `first` to `last`, or until now."""
        ended_ns = self._cpu_clock() if self._cpu_ended_ns is None else self._cpu_ended_ns
        return Overhead(
            cpu_usec=(ended_ns - self._cpu_started_ns) // _NS_PER_USEC,
            ticks=self._ticks,
            missed_ticks=self._missed,
            max_late_ns=self._max_late_ns,
        )

    def _record_slow(self, now_ns: int, memory_bytes: int) -> None:
        self._slow_left = self._slow_every
        if self._memory and memory_bytes != ABSENT:
            self._slow_above = memory_bytes + memory_bytes // _GROWTH_SHARE
        try:
            row = [now_ns, *self._read_slow()]
        except (OSError, SandboxError) as exc:
            self._reading_failed(now_ns, exc, self._sink_slow, 1 + self._slow_width)
            return
        try:
            self._sink_slow(row)
        except (OSError, SandboxError) as exc:
            self._writing_failed(now_ns, exc)

    def _reading_failed(
        self,
        now_ns: int,
        exc: OSError | SandboxError,
        put: Callable[[Sequence[int]], None],
        width: int,
    ) -> None:
        """Note the first failure and mark it by a row without values; later ones are the same."""
        if self.problem is not None:
            return
        why = str(exc)
        if isinstance(exc, OSError):
            why = errno.errorcode.get(exc.errno or 0, why)
            if exc.errno == errno.ENODEV:
                why += ", its group was removed"
        self.problem = f"the run's counters could not be read {self._since_start(now_ns)}: {why}"
        try:
            put([now_ns, *[ABSENT] * (width - 1)])
        except (OSError, SandboxError) as put_exc:
            self._writing_failed(now_ns, put_exc)

    def _writing_failed(self, now_ns: int, exc: OSError | SandboxError) -> None:
        """Go on without a record: the run and its totals matter more."""
        self._sink_fast = self._sink_slow = _discard
        self.problem = f"the samples are lost {self._since_start(now_ns)}: {exc}"

    def _since_start(self, now_ns: int) -> str:
        return f"from {format_duration(max(now_ns - self.start_ns, 0))} on"


def _place(columns: tuple[str, ...], name: str) -> int:
    """Return where a column is; 0, the place of the time, stands for "not here"."""
    return columns.index(name) if name in columns else 0


def _discard(_row: Sequence[int]) -> None:
    pass
