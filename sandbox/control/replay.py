"""A recorded run played again: its samples at the pace at which they were taken, or another."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from time import monotonic_ns

from sandbox.analysis.in_force import (
    cpus_in_force,
    has_cpu_limit,
    memory_in_force_bytes,
    pids_in_force,
)
from sandbox.control.recorded import reading_of
from sandbox.errors import StoreError
from sandbox.records.light import replace
from sandbox.records.sample import TIME, Block, Table
from sandbox.records.stats import State, StatsReading, StatsRow
from sandbox.store.reading import StoredRun
from sandbox.units import NS_PER_SEC

PERIOD_USEC = 100_000
_STEP_NS = 5 * NS_PER_SEC
_FASTEST, _SLOWEST = 64.0, 1 / 64
KEYS = "q quit  space hold  left/right 5 s  +/- speed"


class Replay:
    """One run's rows at a moment that moves along with the clock."""

    def __init__(self, stored: StoredRun, clock: Callable[[], int] = monotonic_ns) -> None:
        """Read the samples of a run.

        Raises:
            StoreError: it has none, or they cannot be read.
        """
        self._result = stored.result
        self._clock = clock
        self._blocks: dict[Table, list[Block]] = {Table.FAST: [], Table.SLOW: []}
        self._starts: dict[Table, list[int]] = {Table.FAST: [], Table.SLOW: []}
        for block in stored.blocks():
            if block.columns[:1] == (TIME,) and block.data[0]:
                self._blocks[block.table].append(block)
                self._starts[block.table].append(block.data[0][0])
        if not self._blocks[Table.FAST]:
            raise StoreError(f"the run {stored.result.name} has no samples to play")
        self._first_ns = self._starts[Table.FAST][0]
        self._last_ns = self._blocks[Table.FAST][-1].data[0][-1]
        self._speed = 1.0
        self._is_held = False
        self._at_ns = self._first_ns
        self._moved_ns = clock()

    def read(self) -> list[StatsRow]:
        """Return the run as it was at this moment of the replay."""
        self._advance()
        result, host = self._result, self._result.host
        limited = has_cpu_limit(result)
        is_over = self._at_ns >= self._last_ns
        return [
            StatsRow(
                asked=result.name,
                id=result.run_id,
                name=result.name,
                state=State.EXITED if is_over else State.RUNNING,
                cgroup_version=2,
                now=self._reading(self._at_ns),
                before=self._reading(self._at_ns - NS_PER_SEC),
                host_memory_bytes=host.memory_total_bytes,
                memory_limit_bytes=memory_in_force_bytes(result),
                pids_limit=pids_in_force(result),
                cpu_quota_usec=round(cpus_in_force(result) * PERIOD_USEC) if limited else None,
                cpu_period_usec=PERIOD_USEC if limited else None,
                cpus_allowed=len(host.cpus_allowed) or None,
            )
        ]

    def press(self, key: str) -> str | None:
        """Do what a key asks for; return what to say of it, or None for a key without meaning."""
        self._advance()
        if key == " ":
            self._is_held = not self._is_held
        elif key in {"left", "right"}:
            self._move(_STEP_NS if key == "right" else -_STEP_NS)
        elif key in {"+", "-"}:
            factor = 2.0 if key == "+" else 0.5
            self._speed = max(_SLOWEST, min(self._speed * factor, _FASTEST))
        else:
            return None
        return self.describe()

    def describe(self) -> str:
        """Return where the replay is, and how fast it goes."""
        at, end = (
            (moment - self._first_ns) / NS_PER_SEC for moment in (self._at_ns, self._last_ns)
        )
        pace = "held" if self._is_held else f"speed {self._speed:g}"
        return f"{at:.1f} of {end:.1f} s, {pace}"

    def _advance(self) -> None:
        now_ns = self._clock()
        if not self._is_held:
            self._move(int((now_ns - self._moved_ns) * self._speed))
        self._moved_ns = now_ns

    def _move(self, by_ns: int) -> None:
        self._at_ns = max(self._first_ns, min(self._at_ns + by_ns, self._last_ns))

    def _reading(self, at_ns: int) -> StatsReading:
        """Return the newest sample up to a moment, else the first one."""
        row = {**self._row(Table.SLOW, at_ns), **self._row(Table.FAST, at_ns)}
        cpus = len(self._result.host.cpus_online)
        inactive = row.get("memory_inactive_file_bytes")
        return replace(
            reading_of(row, with_io=True),
            cpus_online=cpus,
            host_cpu_ns=row[TIME] * cpus,  # nobody has noted it: it grows with the clock
            memory_stat=None if inactive is None else {"inactive_file": max(inactive, 0)},
        )

    def _row(self, table: Table, at_ns: int) -> dict[str, int]:
        blocks = self._blocks[table]
        if not blocks:
            return {}
        block = blocks[max(bisect_right(self._starts[table], at_ns) - 1, 0)]
        at = max(bisect_right(block.data[0], at_ns) - 1, 0)
        return {name: values[at] for name, values in zip(block.columns, block.data, strict=True)}
