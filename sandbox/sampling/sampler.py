"""When to read what: the fast table at each tick, the slow one about ten times a second."""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sandbox.errors import SandboxError
from sandbox.records.light import dataclass
from sandbox.records.result import Overhead
from sandbox.records.sample import ABSENT, COLUMNS, Kind, SampleSink
from sandbox.sampling.clock import Clock, monotonic
from sandbox.spec import DEFAULT_INTERVAL_NS
from sandbox.units import format_duration

if TYPE_CHECKING:
    from sandbox.kernel.group import Reader

SLOW_INTERVAL_NS = 100_000_000
_GROWTH_SHARE = 20  # a slow row at once when memory grew by more than 1/20
_MOST_WAITING = 10  # rows, where no slow table asks for them earlier
_NEVER = sys.maxsize
_NS_PER_USEC = 1_000
_MEMORY = "memory_current_bytes"
_CPU = "cpu_usage_usec"


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

    __slots__ = (
        "_clock",
        "_columns",
        "_cpu",
        "_cpu_clock",
        "_cpu_ended_ns",
        "_cpu_started_ns",
        "_earlier_peaks",
        "_gauges",
        "_has_memory",
        "_interval_ns",
        "_max_late_ns",
        "_memory",
        "_missed",
        "_peak_times_ns",
        "_peaks",
        "_read_fast",
        "_read_slow",
        "_sink_fast",
        "_sink_slow",
        "_slow_above",
        "_slow_every",
        "_slow_left",
        "_slow_width",
        "_ticks",
        "_waiting",
        "problem",
        "start_ns",
    )

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

        self._columns = reader.fast_columns
        self._slow_width = len(reader.slow_columns)
        self._has_memory = _MEMORY in reader.fast_columns
        self._memory = reader.fast_columns.index(_MEMORY) if self._has_memory else 0
        self._cpu = reader.fast_columns.index(_CPU) if _CPU in reader.fast_columns else None
        self._gauges = tuple(
            place for place, name in enumerate(self._columns) if COLUMNS[name].kind is Kind.GAUGE
        )
        self._peaks = [ABSENT] * len(self._columns)
        self._peak_times_ns = [0] * len(self._columns)
        self._earlier_peaks: dict[str, Peak] = {}

        self._slow_every = max(SLOW_INTERVAL_NS // interval_ns, 1)
        if not reader.slow_columns:  # then nothing but what can wait is done there
            self._slow_every = max(self._slow_every, _MOST_WAITING)
        self._slow_left = self._slow_every
        self._slow_above = _NEVER

        self._waiting: list[tuple[int, list[int]]] = []
        self._ticks = 0
        self._missed = 0
        self._max_late_ns = 0
        self._cpu_started_ns = cpu_clock()
        self._cpu_ended_ns: int | None = None

    def first(self) -> int:
        """Read both tables right before the program is let go; return where the grid starts."""
        self._cpu_started_ns = self._cpu_clock()
        self.start_ns = self._clock()
        self._read_off_grid()
        return self.start_ns

    def last(self) -> None:
        """Read both tables once more at the end."""
        self._read_off_grid()
        self._cpu_ended_ns = self._cpu_clock()

    def tick(self, expirations: int) -> None:
        """Read what is due; `expirations` counts the points of the grid since the last tick.

        Only what cannot wait is done here: after 10 ms of sleep the caches hold nothing of ours,
        and the rest costs a fraction when ten rows are done one after the other.
        """
        now_ns = self._clock()
        try:
            values = self._read_fast()
        except (OSError, SandboxError) as exc:
            self._settle()
            self._reading_failed(exc, self._sink_fast, len(self._columns))
            return
        self._waiting.append((now_ns, values))
        self._slow_left -= expirations
        if expirations > 1:
            self._missed_ticks(now_ns, expirations - 1)
        if self._slow_left <= 0 or values[self._memory] > self._slow_above:
            self._settle()
            self._read_slow_table(now_ns, values)

    def cpu_usage_usec(self) -> int | None:
        """Read the CPU time of the group now, off the record; None if it cannot be read."""
        if self._cpu is None:
            return None
        try:
            used_usec = self._read_fast()[self._cpu]
        except (OSError, SandboxError):
            return None
        return None if used_usec == ABSENT else used_usec

    def read_now(self) -> None:
        """Read both tables at once, off the grid."""
        self._read_off_grid()

    def peaks(self) -> dict[str, Peak]:
        """Return the largest row of each gauge of the fast table, by column."""
        return _largest(self._earlier_peaks, self._peaks_since_split())

    def split_peaks(self) -> dict[str, Peak]:
        """Return the peaks since the last split, or the first row, and begin new ones."""
        since = self._peaks_since_split()
        self._earlier_peaks = _largest(self._earlier_peaks, since)
        self._peaks = [ABSENT] * len(self._columns)
        return since

    def _peaks_since_split(self) -> dict[str, Peak]:
        self._settle()
        return {
            self._columns[place]: Peak(self._peaks[place], self._peak_times_ns[place])
            for place in self._gauges
            if self._peaks[place] != ABSENT
        }

    def overhead(self) -> Overhead:
        """Return what sampling cost from `first` to `last`, or until now."""
        self._settle()
        ended_ns = self._cpu_clock() if self._cpu_ended_ns is None else self._cpu_ended_ns
        return Overhead(
            cpu_usec=(ended_ns - self._cpu_started_ns) // _NS_PER_USEC,
            ticks=self._ticks,
            missed_ticks=self._missed,
            max_late_ns=self._max_late_ns,
        )

    def _read_off_grid(self) -> None:
        self._settle()
        now_ns = self._clock()
        try:
            values = self._read_fast()
        except (OSError, SandboxError) as exc:
            self._reading_failed(exc, self._sink_fast, len(self._columns))
            return
        self._take(now_ns, values)
        self._read_slow_table(now_ns, values)

    def _missed_ticks(self, now_ns: int, missed: int) -> None:
        self._missed += missed
        late_ns = (now_ns - self.start_ns) % self._interval_ns + missed * self._interval_ns
        self._max_late_ns = max(self._max_late_ns, late_ns)

    def _settle(self) -> None:
        """Do what could wait, for the rows of all ticks since the last time."""
        waiting = self._waiting
        self._ticks += len(waiting)
        for now_ns, values in waiting:
            late_ns = (now_ns - self.start_ns) % self._interval_ns
            if late_ns > self._max_late_ns:  # noqa: PLR1730 - not a call for each row
                self._max_late_ns = late_ns
            self._take(now_ns, values)
        waiting.clear()

    def _take(self, now_ns: int, values: list[int]) -> None:
        peaks = self._peaks
        for place in self._gauges:
            if values[place] > peaks[place]:
                peaks[place] = values[place]
                self._peak_times_ns[place] = now_ns
        try:
            self._sink_fast([now_ns, *values])
        except (OSError, SandboxError) as exc:
            self._writing_failed(now_ns, exc)

    def _read_slow_table(self, now_ns: int, values: list[int]) -> None:
        """Read the slow table too; its row bears the time of the fast one beside it."""
        self._slow_left = self._slow_every
        if self._has_memory and values[self._memory] != ABSENT:
            self._slow_above = values[self._memory] * (_GROWTH_SHARE + 1) // _GROWTH_SHARE
        try:
            row = [now_ns, *self._read_slow()]
        except (OSError, SandboxError) as exc:
            self._reading_failed(exc, self._sink_slow, self._slow_width)
            return
        try:
            self._sink_slow(row)
        except (OSError, SandboxError) as exc:
            self._writing_failed(row[0], exc)

    def _reading_failed(
        self, exc: OSError | SandboxError, put: Callable[[Sequence[int]], None], width: int
    ) -> None:
        """Note the first failure and mark it by a row without values; later ones are the same."""
        if self.problem is not None:
            return
        now_ns = self._clock()
        why = str(exc)
        if isinstance(exc, OSError):
            why = errno.errorcode.get(exc.errno or 0, why)
            if exc.errno == errno.ENODEV:
                why += ", its group was removed"
        self.problem = f"the run's counters could not be read {self._since_start(now_ns)}: {why}"
        try:
            put([now_ns, *[ABSENT] * width])
        except (OSError, SandboxError) as put_exc:
            self._writing_failed(now_ns, put_exc)

    def _writing_failed(self, now_ns: int, exc: OSError | SandboxError) -> None:
        """Go on without a record: the run and its totals matter more."""
        self._sink_fast = self._sink_slow = _discard
        self.problem = f"the samples are lost {self._since_start(now_ns)}: {exc}"

    def _since_start(self, now_ns: int) -> str:
        return f"from {format_duration(max(now_ns - self.start_ns, 0))} on"


def _largest(earlier: dict[str, Peak], later: dict[str, Peak]) -> dict[str, Peak]:
    larger = {
        column: peak
        for column, peak in later.items()
        if column not in earlier or peak.value > earlier[column].value
    }
    return earlier | larger


def _discard(_row: Sequence[int]) -> None:
    pass
