"""The sandboxes that run now: found by run directories and groups, asked of nobody.

A run of this user's is live as long as its supervisor holds the lock of its run directory; what
else is told of it was written by that supervisor or is read from the kernel. Groups of runs that
are recorded elsewhere, such as another user's, are found in the kernel and have no name here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from sandbox.errors import StoreError
from sandbox.kernel import v2
from sandbox.kernel.roots import Roots
from sandbox.kernel.run_groups import (
    Finder,
    GroupPaths,
    first_start_ns,
    is_stopped,
)
from sandbox.records.host import Mode
from sandbox.records.light import dataclass, field
from sandbox.records.result import Outcome, RunResult
from sandbox.records.stats import State
from sandbox.store.home import find_home
from sandbox.store.locks import LOCK, is_locked
from sandbox.store.reading import list_ids, load, read_groups


@dataclass(frozen=True, kw_only=True)
class RunningSandbox:
    """One sandbox that is live, as far as this user can see."""

    id: str
    name: str
    """Empty for a run that is recorded elsewhere."""
    state: State
    """`created`, `running` or `paused`."""
    owner: str
    """The user whose supervisor it is."""
    mode: Mode
    v2: Path | None = None
    """`run-<id>` in the unified hierarchy; None for a run without groups."""
    v1: Mapping[str, Path] = field(default_factory=dict)
    """`run-<id>` by v1 controller (`cpu`, `memory` …); empty on v2 hosts."""
    directory: Path | None = None
    """The run directory; None for a run that is recorded elsewhere."""
    supervisor_pid: int | None = None
    """None where the kernel does not tell us."""
    created_utc_ns: int
    started_utc_ns: int | None = None
    """When the program was let go; None before that, and for a run that is recorded elsewhere."""
    started_ns: int | None = None
    """The same on CLOCK_MONOTONIC."""
    result: RunResult | None = None
    """The run's record so far; None before it is written, and for one that is kept elsewhere."""

    @property
    def groups(self) -> GroupPaths:
        """Return its groups by hierarchy."""
        return GroupPaths(v2=self.v2, v1=self.v1)

    @property
    def called(self) -> str:
        """Return what to call it: its name, or else its id."""
        return self.name or self.id


def running_sandboxes(
    home: Path | None = None,
    roots: Roots | None = None,
    *,
    others: bool = True,
    known: Collection[str] = (),
) -> list[RunningSandbox]:
    """Return the live sandboxes, the newest first.

    Args:
        home: Where this user's runs are; found as the command line does unless given.
        roots: The kernel's file systems.
        others: Add runs that are recorded elsewhere: to root every user's, else one's own.
        known: Ids to leave out: who asks again and again need not look at each every time.

    Raises:
        StoreError: the run directories cannot be listed.
        KernelError: the mounts cannot be understood.
    """
    place, kernel = home or find_home(), roots or Roots()
    finder = Finder(kernel)
    found = [
        one
        for run_id in list_ids(place)
        if run_id not in known
        if (one := _recorded(place / "runs" / run_id, finder, kernel)) is not None
    ]
    if others:
        # A lost run of ours may have groups yet; only a lock tells that one is live.
        found += (
            one
            for run_id, group in finder.find_runs()
            if run_id not in known and not (place / "runs" / run_id).is_dir()
            if (one := _other(run_id, group, finder, kernel)) is not None
        )
    return sorted(found, key=lambda one: one.created_utc_ns, reverse=True)


def find_running(asked: str, sandboxes: Sequence[RunningSandbox]) -> RunningSandbox:
    """Return the sandbox of a whole id, a name, or an unambiguous beginning of an id.

    Raises:
        StoreError: there is none, or more than one.
    """
    for same in (
        [one for one in sandboxes if one.id == asked],
        [one for one in sandboxes if one.name and one.name == asked],
        [one for one in sandboxes if asked and one.id.startswith(asked)],
    ):
        if len(same) == 1:
            return same[0]
        if same:
            ids = ", ".join(sorted(one.id for one in same)[:4])
            raise StoreError(
                f"`{asked}` is the beginning of {len(same)} sandboxes: {ids}",
                hint="write one more digit of the id",
            )
    raise StoreError(
        f"no such running sandbox: {asked}",
        hint="`sandbox ps` lists those that run, `sandbox ps -a` all",
    )


def is_live(sandbox: RunningSandbox) -> bool:
    """Return whether a sandbox that was found is still there.

    Raises:
        StoreError: its run directory cannot be looked at any more.
    """
    if sandbox.directory is None:
        return sandbox.v2 is not None and v2.is_populated(sandbox.v2)
    if not sandbox.directory.is_dir():
        return False
    try:
        return is_locked(sandbox.directory)
    except StoreError:
        if sandbox.directory.is_dir():
            raise
        return False


def _recorded(directory: Path, finder: Finder, roots: Roots) -> RunningSandbox | None:
    with suppress(StoreError, FileNotFoundError):  # removed or ended meanwhile
        # The lock comes first: of a large store only what is live is read.
        if is_locked(directory):
            return _look(directory, finder, roots)
    return None


def _look(directory: Path, finder: Finder, roots: Roots) -> RunningSandbox | None:
    lock = (directory / LOCK).stat()
    result = _read(directory)
    if result is not None and result.outcome is not Outcome.RUNNING:
        return None  # its supervisor is about to leave
    groups = finder.sort(directory.name, read_groups(directory))
    supervisor_pid = finder.find_locker(lock)
    if result is None:
        state = State.CREATED
    elif is_stopped(groups, supervisor_pid, roots):
        state = State.PAUSED
    else:
        state = State.RUNNING
    return RunningSandbox(
        id=directory.name,
        name="" if result is None else result.name,
        state=state,
        owner=name_user(lock.st_uid),
        mode=_mode(groups) if result is None else result.host.mode,
        v2=groups.v2,
        v1=groups.v1,
        directory=directory,
        supervisor_pid=supervisor_pid,
        created_utc_ns=lock.st_mtime_ns,
        started_utc_ns=None if result is None else result.started_utc_ns,
        started_ns=None if result is None else result.started_ns,
        result=result,
    )


def _read(directory: Path) -> RunResult | None:
    try:
        return load(directory).result
    except StoreError:
        return None  # not written yet


def _mode(groups: GroupPaths) -> Mode:
    if groups.v1:
        return Mode.HYBRID
    return Mode.NONE if groups.v2 is None else Mode.UNIFIED


def _other(run_id: str, group: Path, finder: Finder, roots: Roots) -> RunningSandbox | None:
    try:
        uid = group.stat().st_uid
    except OSError:
        return None  # it has ended
    if os.geteuid() not in {0, uid} or not v2.is_populated(group):
        return None
    pids = v2.list_pids(group)
    groups = GroupPaths(v2=group, v1=finder.find_v1(run_id, pids))
    return RunningSandbox(
        id=run_id,
        name="",
        state=State.PAUSED if is_stopped(groups, None, roots) else State.RUNNING,
        owner=name_user(uid),
        mode=_mode(groups),
        v2=groups.v2,
        v1=groups.v1,
        created_utc_ns=_boot_utc_ns() + (first_start_ns(pids, roots) or 0),
    )


def _boot_utc_ns() -> int:
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def name_user(uid: int) -> str:
    """Return a user's name, or the number of one who has none."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
