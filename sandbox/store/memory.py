"""The stand-in for a run directory that cannot be made: the result is still computed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sandbox.records.result import Event
from sandbox.records.sample import Block, Table
from sandbox.store.problems import Problems
from sandbox.store.samples import CAP_BYTES, MEMORY_CAP_BYTES, SampleWriter, thinned_event

_MOST_EVENTS = 4096

_latest: list[MemoryDirectory] = []


class MemoryDirectory:
    """A record in memory alone, in bounds; it ends with this process."""

    path: Path | None = None

    def __init__(self, run_id: str, name: str, *, problem: str) -> None:
        """`problem` says why there is no run directory."""
        self.run_id = run_id
        self.name = name
        self.run: dict[str, Any] = {}
        """What `write_run` was given last."""
        self._events: deque[Event] = deque(maxlen=_MOST_EVENTS)
        self._sink: SampleWriter | None = None
        self._problems = Problems()
        self._problems.note("directory", problem)
        _latest[:] = [self]

    def write_run(self, plain: Mapping[str, Any]) -> None:
        """Keep it."""
        self.run = dict(plain)

    def append_event(self, event: Event) -> None:
        """Keep it; of very many only the newest."""
        self._events.append(event)

    def write_groups(self, paths: Iterable[Path]) -> None:
        """Nothing is left behind that could read it."""

    def open_sink(
        self,
        fast_columns: Sequence[str],
        slow_columns: Sequence[str],
        *,
        cap_bytes: int = CAP_BYTES,
    ) -> SampleWriter:
        """Return a sink that keeps at most 8 MiB."""
        self._sink = SampleWriter(
            None,
            {Table.FAST: fast_columns, Table.SLOW: slow_columns},
            memory_cap_bytes=min(cap_bytes, MEMORY_CAP_BYTES),
            on_thinned=self._thinned,
        )
        return self._sink

    def _thinned(self, stride: int) -> None:
        self._problems.thinned(stride)
        self.append_event(thinned_event(stride))

    def blocks(self) -> Iterator[Block]:
        """Return what the sink has taken; close it first."""
        return iter(()) if self._sink is None else self._sink.blocks()

    def events(self) -> Iterator[Event]:
        """Return what was appended."""
        return iter(tuple(self._events))

    def output_paths(self) -> tuple[Path, Path] | None:
        """Return None: output is not kept in memory."""
        return None

    def problems(self) -> tuple[str, ...]:
        """Return what could not be recorded, and why."""
        return self._problems.texts()

    def discard(self) -> None:
        """Forget everything."""
        self._events.clear()
        self._sink = None

    def close(self) -> None:
        """Keep the samples until the next run without a directory: an export may follow."""


def blocks_in_memory(run_id: str) -> Iterator[Block]:
    """Return the samples of the newest run of this process that had no directory, if it is it."""
    for directory in _latest:
        if directory.run_id == run_id:
            return directory.blocks()
    return iter(())
