"""Live figures of running sandboxes and of any other group, by one reader for each.

Nobody is asked and nothing is written: groups are read, and what came before the first look is in
each sandbox's own record.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from sandbox.control.running import RunningSandbox, find_running, running_sandboxes
from sandbox.control.watched import WINDOW_NS, About, RecordSource, Source, Watched
from sandbox.errors import StoreError
from sandbox.kernel.find_group import find_group
from sandbox.kernel.live_parts import HostCpu
from sandbox.kernel.live_reader import LiveReader, read_host_memory
from sandbox.kernel.roots import Roots
from sandbox.records.light import dataclass
from sandbox.records.result import Outcome, RunResult
from sandbox.records.stats import State, StatsRow
from sandbox.store.home import find_home
from sandbox.store.reading import list_ids, list_runs, load
from sandbox.units import NS_PER_SEC

_LOOK_NS = NS_PER_SEC
_SETTLE_NS = NS_PER_SEC // 10
_LOOK_AT_OTHERS = 5  # looks; those recorded elsewhere are found by a walk over all groups


@dataclass(frozen=True, kw_only=True)
class WatchSpec:
    """What to watch; with neither names nor groups, all sandboxes that run."""

    names: Sequence[str] = ()
    """Sandboxes by id, its beginning, or name; else the last run that was called so."""
    cgroups: Sequence[str] = ()
    """Paths of groups."""
    with_ended: bool = False
    """Beside all that run, those that have ended."""
    is_whole: bool = False
    """Read every counter, not only those of docker's columns."""
    interval_ns: int = WINDOW_NS
    """How far apart `Watch.read` will be called."""


class Watch:
    """The rows of `sandbox stats`: those asked for, or all that run, as they come and go."""

    def __init__(
        self, spec: WatchSpec, *, home: Path | None = None, roots: Roots | None = None
    ) -> None:
        """Find what to watch.

        Args:
            spec: What that is.
            home: Where runs are; found as the command line does unless given.
            roots: The kernel's file systems.

        Raises:
            StoreError: there is no such sandbox, or the runs cannot be listed.
            KernelError: there is no such group.
        """
        self._spec, self._home, self._roots = spec, home or find_home(), roots or Roots()
        self._window_ns = max(WINDOW_NS, spec.interval_ns)
        self._host_memory_bytes = read_host_memory(self._roots)
        self._host = HostCpu(self._roots.proc)
        self._is_all = not spec.names and not spec.cgroups
        self._seen: set[str] = set()
        self._looked_ns = self._settled_ns = time.monotonic_ns()
        self._looks = 0
        self._rows: list[Watched] = []
        try:
            self._rows += [self._group(path) for path in spec.cgroups]
            if spec.names:
                running = running_sandboxes(self._home, self._roots)
                self._rows += [self._named(name, running) for name in spec.names]
            if self._is_all:
                self._look()
            if self._is_all and spec.with_ended:
                self._add(self._ended())
        except BaseException:
            self.close()
            raise

    @property
    def is_over(self) -> bool:
        """Return whether nothing that is watched is alive."""
        return not any(row.is_live for row in self._rows)

    @property
    def is_primed(self) -> bool:
        """Return whether every row has its rates."""
        return all(row.is_primed for row in self._rows)

    def read(self) -> list[StatsRow]:
        """Read everything once and return the rows, in docker's order."""
        now_ns = time.monotonic_ns()
        if self._is_all and now_ns - self._looked_ns >= _LOOK_NS:
            self._looked_ns = now_ns
            self._look()
        if now_ns - self._settled_ns >= _SETTLE_NS:
            self._settled_ns = now_ns
            self._settle()
        for row in self._rows:
            row.refresh(self._roots)
        if self._is_all and not self._spec.with_ended:
            self._rows = [row for row in self._rows if row.is_live]
        return [row.row() for row in self._rows]

    def close(self) -> None:
        """Let all files go."""
        for row in self._rows:
            row.close()
        self._host.close()

    def _look(self) -> None:
        """Find sandboxes that have started since the last look."""
        ids = set(list_ids(self._home))
        if ids - self._seen or self._looks % _LOOK_AT_OTHERS == 0:
            known = self._seen | {row.about.id for row in self._rows}
            found = running_sandboxes(self._home, self._roots, known=known)
            self._add(self._sandbox(one.id, one) for one in found)
            self._seen = ids
        self._looks += 1

    def _add(self, rows: Iterable[Watched]) -> None:
        """Put the newest first, as docker does."""
        self._rows += rows
        self._rows.sort(key=lambda row: row.about.created_utc_ns, reverse=True)

    def _settle(self) -> None:
        """Look again at those that had not started at the last look."""
        for index, row in enumerate(self._rows):
            if row.state is State.CREATED:
                others = set(list_ids(self._home)) - {row.about.id}
                found = running_sandboxes(self._home, self._roots, others=False, known=others)
                if found:
                    self._rows[index] = self._sandbox(row.about.asked, found[0])
                else:
                    row.end()

    def _ended(self) -> Iterator[Watched]:
        known = {row.about.id for row in self._rows}
        for entry in list_runs(self._home):
            if entry.result is not None and not entry.is_live and entry.run_id not in known:
                yield self._past(entry.run_id, entry.result)

    def _named(self, name: str, running: Sequence[RunningSandbox]) -> Watched:
        try:
            return self._sandbox(name, find_running(name, running))
        except StoreError as error:
            try:
                stored = load(name, self._home)
            except StoreError:
                raise error from None
            return self._past(name, stored.result)

    def _past(self, asked: str, result: RunResult) -> Watched:
        about = About(
            asked=asked,
            id=result.run_id,
            name=result.name,
            created_utc_ns=result.started_utc_ns,
        )
        is_lost = result.outcome in {Outcome.SUPERVISOR_LOST, Outcome.RUNNING}
        return self._watched(about, None, State.DEAD if is_lost else State.EXITED)

    def _sandbox(self, asked: str, one: RunningSandbox) -> Watched:
        about = About(
            asked=asked,
            id=one.id,
            name=one.name,
            created_utc_ns=one.created_utc_ns,
            cgroup=None if one.v2 is None else str(one.v2),
            sandbox=one,
        )
        source: Source | None = None
        if one.state is not State.CREATED:
            if one.v2 is not None or one.v1:
                source = LiveReader(
                    one.groups, self._host, self._roots, is_whole=self._spec.is_whole
                )
            elif one.directory is not None:
                source = RecordSource(one.directory, self._host)
        return self._watched(about, source, one.state)

    def _group(self, path: str) -> Watched:
        found = find_group(path, self._roots)
        directory = found.groups.v2 or next(iter(found.groups.v1.values()))
        about = About(asked=path, id=found.id, name=found.name, cgroup=str(directory))
        source = LiveReader(found.groups, self._host, self._roots, is_whole=self._spec.is_whole)
        return self._watched(about, source, State.RUNNING)

    def _watched(self, about: About, source: Source | None, state: State) -> Watched:
        return Watched(
            about,
            source,
            state=state,
            host_memory_bytes=self._host_memory_bytes,
            window_ns=self._window_ns,
        )
