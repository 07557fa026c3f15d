"""The list of sandboxes, live and ended ones: what `sandbox ps` shows."""

from __future__ import annotations

from pathlib import Path

from sandbox.analysis.in_force import (
    cpus_in_force,
    find_limit,
    has_cpu_limit,
    memory_in_force_bytes,
    pids_in_force,
)
from sandbox.control.running import RunningSandbox, name_user, running_sandboxes
from sandbox.kernel.outer import OuterLimits, read_outer_v1, read_outer_v2
from sandbox.kernel.roots import Roots
from sandbox.kernel.run_groups import GroupPaths, count_tasks
from sandbox.records.light import dataclass
from sandbox.records.limits import LimitState
from sandbox.records.ps import PsRow
from sandbox.records.result import Outcome, RunResult
from sandbox.records.stats import State
from sandbox.store.home import find_home
from sandbox.store.locks import LOCK
from sandbox.store.reading import RunEntry, list_runs


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Rows, the newest first, and what could not be read."""

    rows: tuple[PsRow, ...]
    problems: tuple[str, ...] = ()


def list_sandboxes(
    home: Path | None = None, roots: Roots | None = None, *, ended: bool = False
) -> Listing:
    """Return the sandboxes that run, and with `ended` the recorded ones of before.

    Raises:
        StoreError: the run directories cannot be listed.
        KernelError: the mounts cannot be understood.
    """
    place, kernel = home or find_home(), roots or Roots()
    live = {one.id: live_row(one) for one in running_sandboxes(place, kernel)}
    if not ended:
        running = (row for row in live.values() if row.state is not State.CREATED)
        return Listing(rows=tuple(running))
    rows, problems = list(live.values()), []
    for entry in list_runs(place):
        if entry.run_id in live:
            continue
        if entry.result is None:
            problems.append(f"{entry.run_id}: {entry.broken}")
        else:
            rows.append(_ended_row(entry, entry.result))
    rows.sort(key=lambda row: row.created_utc_ns, reverse=True)
    return Listing(rows=tuple(rows), problems=tuple(problems))


def live_row(one: RunningSandbox) -> PsRow:
    """Return the row of a live sandbox; its limits are the kernel's own."""
    limits = limits_now(one)
    return PsRow(
        id=one.id,
        name=one.name,
        command=() if one.result is None else one.result.command,
        state=one.state,
        created_utc_ns=one.created_utc_ns,
        started_utc_ns=one.started_utc_ns,
        cpus_limit=limits.cpus,
        memory_limit_bytes=limits.memory_bytes,
        pids_limit=limits.pids,
        pids=count_tasks(one.groups),
        owner=one.owner,
        cgroup=None if one.v2 is None else str(one.v2),
        ports=() if one.result is None else one.result.ports,
    )


def limits_now(one: RunningSandbox) -> OuterLimits:
    """Return the limits in force: as the kernel has them, or as recorded where it has none."""
    if one.v2 is None:
        return OuterLimits() if one.result is None else recorded_limits(one.result)
    return group_limits(one.groups)


def group_limits(groups: GroupPaths) -> OuterLimits:
    """Return what a run's own groups limit; None is no limit."""
    if groups.v1:
        return read_outer_v1(groups.v1, groups.v1)
    return OuterLimits() if groups.v2 is None else read_outer_v2((groups.v2,))


def recorded_limits(result: RunResult) -> OuterLimits:
    """Return the limits that held at last, as the run's record says."""
    cpuset = find_limit(result, "cpuset_cpus")
    held = cpuset is not None and cpuset.state is not LimitState.UNAVAILABLE
    return OuterLimits(
        cpus=cpus_in_force(result) if has_cpu_limit(result) or held else None,
        memory_bytes=memory_in_force_bytes(result),
        pids=pids_in_force(result),
    )


def _ended_row(entry: RunEntry, result: RunResult) -> PsRow:
    limits = recorded_limits(result)
    finished = None if result.wall_ns is None else result.started_utc_ns + result.wall_ns
    lost = result.outcome in {Outcome.SUPERVISOR_LOST, Outcome.RUNNING}
    return PsRow(
        id=result.run_id,
        name=result.name,
        command=result.command,
        state=State.DEAD if lost else State.EXITED,
        created_utc_ns=created_ns(entry.directory) or result.started_utc_ns,
        started_utc_ns=result.started_utc_ns,
        finished_utc_ns=finished,
        exit_code=result.exit_code,
        cpus_limit=limits.cpus,
        memory_limit_bytes=limits.memory_bytes,
        pids_limit=limits.pids,
        owner=owner_of(entry.directory),
    )


def created_ns(directory: Path) -> int | None:
    """Return when a run directory was made, as its lock file tells; None if it is gone."""
    try:
        return (directory / LOCK).stat().st_mtime_ns
    except OSError:
        return None


def owner_of(directory: Path) -> str | None:
    """Return whose a run directory is; None if it is gone."""
    try:
        return name_user(directory.stat().st_uid)
    except OSError:
        return None
