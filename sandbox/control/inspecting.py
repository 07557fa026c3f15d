"""What `sandbox inspect` tells of a sandbox: by the kernel while it lives, then by its record."""

from __future__ import annotations

from sandbox.analysis.in_force import find_limit
from sandbox.control.listing import created_ns, limits_now, owner_of, recorded_limits
from sandbox.control.naming import Names
from sandbox.control.running import RunningSandbox
from sandbox.kernel import v2
from sandbox.kernel.outer import OuterLimits
from sandbox.kernel.roots import Roots
from sandbox.kernel.run_groups import find_child
from sandbox.records.result import Outcome, RunResult
from sandbox.records.stats import State
from sandbox.report.inspection import Inspected
from sandbox.store.reading import StoredRun
from sandbox.units import UNLIMITED


def inspect(asked: str, names: Names) -> Inspected:
    """Return all that is known of a sandbox that runs or has ended.

    Raises:
        StoreError: there is none, or its record cannot be read.
    """
    found = names.find(asked)
    return _recorded(names.stored(asked)) if found is None else _live(found, names.roots)


def _live(one: RunningSandbox, roots: Roots) -> Inspected:
    limits = limits_now(one)
    cgroups = {name: str(path) for name, path in one.v1.items()}
    if one.v2 is not None:
        cgroups["v2"] = str(one.v2)
    return Inspected(
        id=one.id,
        name=one.name,
        state=one.state,
        owner=one.owner,
        created_utc_ns=one.created_utc_ns,
        pid=_main_pid(one, roots),
        supervisor_pid=one.supervisor_pid,
        cpus_limit=limits.cpus,
        cpuset=_cpuset(one.result),
        memory_limit_bytes=limits.memory_bytes,
        memory_swap_limit_bytes=_memory_swap(limits, one.result),
        pids_limit=limits.pids,
        cgroups=cgroups,
        directory=None if one.directory is None else str(one.directory),
        result=one.result,
    )


def _main_pid(one: RunningSandbox, roots: Roots) -> int | None:
    if one.supervisor_pid is None or one.v2 is None:
        return None
    return find_child(one.supervisor_pid, v2.list_pids(one.v2), roots)


def _recorded(stored: StoredRun) -> Inspected:
    result = stored.result
    limits = recorded_limits(result)
    lost = result.outcome in {Outcome.SUPERVISOR_LOST, Outcome.RUNNING}
    made = None if stored.directory is None else created_ns(stored.directory)
    return Inspected(
        id=result.run_id,
        name=result.name,
        state=State.DEAD if lost else State.EXITED,
        owner=None if stored.directory is None else owner_of(stored.directory),
        created_utc_ns=made or result.started_utc_ns,
        cpus_limit=limits.cpus,
        cpuset=_cpuset(result),
        memory_limit_bytes=limits.memory_bytes,
        memory_swap_limit_bytes=_memory_swap(limits, result),
        pids_limit=limits.pids,
        directory=None if stored.directory is None else str(stored.directory),
        result=result,
    )


def _cpuset(result: RunResult | None) -> str:
    report = None if result is None else find_limit(result, "cpuset_cpus")
    return "" if report is None else report.effective or report.asked


def _memory_swap(limits: OuterLimits, result: RunResult | None) -> int | None:
    """Return memory and swap together; -1 is unlimited swap, as in docker."""
    if limits.memory_swap_bytes is not None:
        return limits.memory_swap_bytes
    if limits.memory_bytes is not None and limits.swap_bytes is not None:
        return limits.memory_bytes + limits.swap_bytes
    asked = None if result is None else result.spec.get("limits", {}).get("memory_swap_bytes")
    if asked is None or limits.memory_bytes is None:
        return limits.memory_bytes  # no swap
    return -1 if asked == UNLIMITED else int(asked)
