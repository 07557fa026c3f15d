"""One row of live figures: where its readings come from, and those of the last second."""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from sandbox.control.recorded import find_reading
from sandbox.control.running import RunningSandbox
from sandbox.errors import KernelError, StoreError
from sandbox.kernel.live_parts import HostCpu
from sandbox.kernel.roots import Roots
from sandbox.kernel.run_groups import is_stopped
from sandbox.records.light import dataclass, replace
from sandbox.records.result import DeviceIo
from sandbox.records.stats import State, StatsReading, StatsRow
from sandbox.store.locks import is_locked
from sandbox.units import NS_PER_SEC

WINDOW_NS = NS_PER_SEC
"""Rates are taken over this time, as docker's are, or over the interval if that is longer."""
_SLACK_NS = NS_PER_SEC // 20  # what a tick may come early without doubling the window
_STEP_NS = NS_PER_SEC // 100  # however fast it is read, a hundred readings are kept
_LIMITS_NS = NS_PER_SEC


class Source(Protocol):
    """Where one row's readings come from."""

    @property
    def unavailable(self) -> dict[str, str]:
        """Return why fields of the readings cannot be given, or only in part."""
        ...

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
        if found.network is not None:
            self.unavailable.pop("network", None)
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
        self._now: StatsReading | None = None
        self._recent: deque[StatsReading] = deque()
        self._version = 2 if source is None else source.cgroup_version

    @property
    def is_live(self) -> bool:
        """Return whether more is to come of it."""
        return self._source is not None or self.state is State.CREATED

    @property
    def is_primed(self) -> bool:
        """Return whether rates can be told, or never will be."""
        return self._before is not None or not self.is_live

    def refresh(self, roots: Roots) -> None:
        """Read once; what has gone has ended."""
        if self._source is None:
            return
        try:
            reading = self._source.read()
            if self._limits_ns is None or reading.time_ns - self._limits_ns >= _LIMITS_NS:
                self._limits, self._limits_ns = self._source.read_limits(), reading.time_ns
                self._look_at_state(roots)
        except (KernelError, StoreError):
            self.end()
            return
        if self._now is None:
            self._begin(reading)
        elif reading.time_ns > self._now.time_ns:
            self._note(reading)

    def _note(self, reading: StatsReading) -> None:
        """Keep it if it is not too close to another, and what a window ago was the newest one."""
        recent, self._now = self._recent, reading
        if not recent or reading.time_ns - recent[-1].time_ns >= _STEP_NS:
            recent.append(reading)
        while len(recent) > 1 and reading.time_ns - recent[1].time_ns >= self._window_ns:
            recent.popleft()

    @property
    def _before(self) -> StatsReading | None:
        """Return the reading that rates are taken from."""
        return None if not self._recent or self._recent[0] is self._now else self._recent[0]

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
        self._note(now)

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
        about, is_known = self.about, self._source is not None
        return StatsRow(
            asked=about.asked,
            id=about.id,
            name=about.name,
            state=self.state,
            cgroup=about.cgroup,
            cgroup_version=self._version,
            now=self._now if is_known else None,
            before=self._before if is_known else None,
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
