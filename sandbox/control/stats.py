"""Live figures of running sandboxes and of any other group, by one reader for each.

Nobody is asked and nothing is written: groups are read, and what came before the first look is in
each sandbox's own record.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from sandbox.control.recorded import find_reading
from sandbox.control.running import RunningSandbox, find_running, running_sandboxes
from sandbox.errors import KernelError, StoreError
from sandbox.kernel.find_group import find_group
from sandbox.kernel.live_parts import HostCpu
from sandbox.kernel.live_reader import LiveReader, read_host_memory
from sandbox.kernel.roots import Roots
from sandbox.kernel.run_groups import is_stopped
from sandbox.records.light import dataclass, replace
from sandbox.records.result import DeviceIo, Outcome, RunResult
from sandbox.records.stats import State, StatsReading, StatsRow
from sandbox.store.home import find_home
from sandbox.store.locks import is_locked
from sandbox.store.reading import list_ids, list_runs, load
from sandbox.units import NS_PER_SEC

WINDOW_NS = NS_PER_SEC
"""Rates are taken over this time, as docker's are, or over the interval if that is longer."""
_SLACK_NS = NS_PER_SEC // 20  # what a tick may come early without doubling the window
_LOOK_NS = NS_PER_SEC
_SETTLE_NS = NS_PER_SEC // 10
_LOOK_AT_OTHERS = 5  # looks; those recorded elsewhere are found by a walk over all groups


class Source(Protocol):
    """Where one row's readings come from."""

    unavailable: dict[str, str]

    @property
    def cgroup_version(self) -> int:
        """Return where memory is counted: 1 or 2."""
        ...

    def read(self) -> StatsReading:
        """Return the counters as they are now; KernelError or StoreError once it has gone."""
        ...

    def read_limits(self) -> dict[str, int | None]:
        """Return its limits, by the fields of `StatsRow`."""
        ...

    def close(self) -> None:
        """Let its files go."""
        ...


class RecordSource:
    """A sandbox without groups: its own record, about a second old at most, is all there is."""

    cgroup_version = 2

    def __init__(self, directory: Path, host: HostCpu) -> None:
        self.unavailable = {"memory_stat": "no group counts it", "network": "no group counts it"}
        self._directory = directory
        self._host = host

    def read(self) -> StatsReading:
        """Return the newest sample.

        Raises:
            StoreError: the sandbox has ended, or its samples cannot be read.
        """
        if not is_locked(self._directory):
            raise StoreError(f"the run {self._directory.name} has ended")
        found = find_reading(self._directory, time.monotonic_ns(), with_io=True)
        if found is None:
            now_ns, utc_ns = time.monotonic_ns(), time.time_ns()
            found = StatsReading(time_ns=now_ns, utc_ns=utc_ns)
        return replace(found, **self._host.read())

    def read_limits(self) -> dict[str, int | None]:
        """Return nothing: processes have limits of their own, the whole has none."""
        return {}

    def close(self) -> None:
        """Do nothing: no file is kept."""


@dataclass(frozen=True, kw_only=True)
class About:
    """What a row says besides its figures."""

    asked: str
    id: str
    name: str
    created_utc_ns: int = 0
    cgroup: str | None = None
    sandbox: RunningSandbox | None = None


class Watched:
    """One row: its readings of the last second, and what they are of."""

    def __init__(
        self,
        about: About,
        source: Source | None,
        *,
        state: State,
        host_memory_bytes: int,
        window_ns: int = WINDOW_NS,
    ) -> None:
        """Watch a source; without one there is nothing to read yet, or any more."""
        self.about = about
        self.state = state
        self._source = source
        self._host_memory_bytes = host_memory_bytes
        self._window_ns = window_ns - _SLACK_NS
        self._limits: dict[str, Any] = {}
        self._limits_ns: int | None = None
        self._recent: deque[StatsReading] = deque()
        self._version = 2 if source is None else source.cgroup_version

    @property
    def is_live(self) -> bool:
        """Return whether more is to come of it."""
        return self._source is not None or self.state is State.CREATED

    @property
    def is_primed(self) -> bool:
        """Return whether rates can be told, or never will be."""
        return len(self._recent) > 1 or not self.is_live

    def refresh(self, roots: Roots) -> None:
        """Read once; what has gone has ended."""
        if self._source is None:
            return
        try:
            reading = self._source.read()
            if self._limits_ns is None or reading.time_ns - self._limits_ns >= _LOOK_NS:
                self._limits, self._limits_ns = self._source.read_limits(), reading.time_ns
                self._look_at_state(roots)
        except (KernelError, StoreError):
            self.end()
            return
        if not self._recent:
            self._begin(reading)
        elif reading.time_ns > self._recent[-1].time_ns:
            self._recent.append(reading)
        while len(self._recent) > 2 and (  # noqa: PLR2004 - what a rate needs
            reading.time_ns - self._recent[1].time_ns >= self._window_ns
        ):
            self._recent.popleft()

    def _begin(self, now: StatsReading) -> None:
        """Take the sample of a window ago from the sandbox's own record, if there is one."""
        one = self.about.sandbox
        if one is not None and one.directory is not None and now.cpus_online is not None:
            before = None
            with suppress(StoreError):
                before = find_reading(one.directory, now.time_ns - WINDOW_NS, with_io=True)
            if before is not None and before.time_ns < now.time_ns:
                # Nobody has noted the host's CPU time then: it grows with the clock.
                passed_ns = (now.time_ns - before.time_ns) * now.cpus_online
                host_cpu_ns = None if now.host_cpu_ns is None else now.host_cpu_ns - passed_ns
                self._recent.append(
                    replace(
                        before,
                        host_cpu_ns=host_cpu_ns,
                        cpus_online=now.cpus_online,
                        io=_same_device(before, now),
                    )
                )
        self._recent.append(now)

    def _look_at_state(self, roots: Roots) -> None:
        one = self.about.sandbox
        if one is not None and one.groups.v2 is not None:
            is_paused = is_stopped(one.groups, one.supervisor_pid, roots)
            self.state = State.PAUSED if is_paused else State.RUNNING

    def end(self) -> None:
        """Keep the row, with nothing to read any more."""
        self.close()
        self.state = State.EXITED

    def row(self) -> StatsRow:
        """Return what was read last; nothing of what has ended."""
        about, recent = self.about, self._recent
        is_known = self._source is not None and bool(recent)
        return StatsRow(
            asked=about.asked,
            id=about.id,
            name=about.name,
            state=self.state,
            cgroup=about.cgroup,
            cgroup_version=self._version,
            now=recent[-1] if is_known else None,
            before=recent[0] if is_known and len(recent) > 1 else None,
            host_memory_bytes=self._host_memory_bytes,
            unavailable={} if self._source is None else self._source.unavailable,
            **self._limits,
        )

    def close(self) -> None:
        """Let its files go."""
        if self._source is not None:
            self._source.close()
            self._source = None


def _same_device(before: StatsReading, now: StatsReading) -> tuple[DeviceIo, ...] | None:
    """Return what a record has of all devices together as that of the only one, if there is one."""
    if not before.io or now.io is None or len(now.io) != 1:
        return None
    return (replace(before.io[0], device=now.io[0].device),)


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
