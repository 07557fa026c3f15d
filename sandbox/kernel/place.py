"""Where a run's groups are to be made, and in which mode; nothing is written here.

On the unified hierarchy a group with processes in it cannot enable controllers for groups below
(the root is exempt), so the place is our own group only at the root, and otherwise the nearest
group above that enables the controllers, or could. Inside a sandbox the place is the outer run's
group: what runs there stays inside its limits.

Under systemd every group is some unit's, and only a delegated one may be divided by others; where
ours is not, the place is a scope that systemd has to be asked for (see `scope.py`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from sandbox.kernel import v2
from sandbox.kernel.hierarchies import (
    Hierarchies,
    Hierarchy,
    can_make_groups,
    find_hierarchies,
    why_invisible,
)
from sandbox.kernel.outer import OuterLimits, read_outer_v1, read_outer_v2
from sandbox.kernel.roots import Roots
from sandbox.records.host import Mode
from sandbox.records.light import dataclass, field, replace

CORE = ("cpu", "memory", "pids")
"""The controllers of the limits that every run has."""
WANTED = (*CORE, "io", "cpuset")
V1_USED = ("cpu", "cpuacct", "memory", "pids", "cpuset", "blkio", "freezer")

GROUP_PREFIX = "run-"
INNER_GROUP = "main"
# Without a dot, which every unit's name has: systemd calls its transient ones `run-….scope` too.
_RUN_GROUP = rf"{GROUP_PREFIX}[A-Za-z0-9_-]+"
_NEXT_TO_NOTHING = "no controller can be enabled"
_CROWDED = "it holds processes, so the kernel would refuse"


@dataclass(frozen=True, kw_only=True)
class Place:
    """The directories below which a run's groups are made."""

    mode: Mode
    reason: str
    """One line for people: why this mode."""
    v2: Path | None = None
    """In the unified hierarchy; None in mode `NONE`."""
    v2_top: Path | None = None
    """The top of what is seen of the unified hierarchy, from which controllers are enabled."""
    v1: Mapping[str, Path] = field(default_factory=dict)
    """By controller, in mode `HYBRID`; controllers mounted together have the same directory."""
    controllers: tuple[str, ...] = ()
    """What a run's group gets, in the unified hierarchy's names."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Why each other controller is not to be had."""
    outer_run: str | None = None
    """The sandbox around us, if there is one: its group's name, `run-<id>`."""
    outer: OuterLimits = field(default_factory=OuterLimits)
    """The tightest limits of the groups around a run's."""
    own: Path | None = None
    """Our own group in the unified hierarchy; None in mode `NONE`."""
    needs_scope: bool = False
    """Whether systemd has to be asked for `v2`, which is None until then."""
    is_crowded: bool = False
    """Whether processes in `v2` itself have to make room first (see `v2.make_room`)."""


def find_place(roots: Roots) -> Place:
    """Return where and how a run's groups can be made.

    Raises:
        KernelError: a file that says so cannot be understood.
    """
    hierarchies = find_hierarchies(roots)
    blocked = why_invisible(hierarchies)
    if blocked is not None:
        return Place(mode=Mode.NONE, reason=blocked)
    if any(controller in hierarchies.v1 for controller in CORE):
        return _hybrid_place(hierarchies)
    if hierarchies.v2 is None:
        return Place(mode=Mode.NONE, reason="no hierarchy with cpu, memory or pids is mounted")
    return _unified_place(hierarchies.v2, roots)


# --- the unified hierarchy


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    directory: Path
    controllers: frozenset[str]
    refusals: Mapping[str, str]
    is_crowded: bool


def _unified_place(hierarchy: Hierarchy, roots: Roots) -> Place:
    own, top = hierarchy.own, hierarchy.mount
    if own is None:
        return Place(mode=Mode.NONE, reason=hierarchy.reason or "our own group is not seen")
    outer_run = _outer_run(own)
    chain = _upwards(outer_run or own, top)
    unit = None if re.fullmatch(_RUN_GROUP, chain[-1].name) else _find_unit(own, top)
    is_systemds = unit is not None and (roots.top / "run/systemd/system").is_dir()
    if unit is not None:
        # What is above a unit is systemd's, or the container engine's that speaks to it.
        chain = tuple(step for step in chain if step == unit or unit in step.parents)
        if is_systemds and not _is_delegated(unit):
            return _ask_systemd(own, top, roots, f"{unit} was not delegated to us")
    # In a container everything that is seen is ours to arrange; under systemd a unit's other
    # processes are left where they are as long as a scope can be had.
    best = _best(chain, top, None if is_systemds else (unit or top))
    if is_systemds and (best is None or not best.controllers):
        asked = _ask_systemd(own, top, roots, "our unit's group holds other processes")
        if asked.needs_scope:
            return asked
        best = _best(chain, top, unit)
    if best is None:
        return Place(mode=Mode.NONE, reason=hierarchy.reason or f"{own} cannot be written")
    if not best.controllers:
        why = next(iter(best.refusals.values()), _NEXT_TO_NOTHING)
        return Place(mode=Mode.NONE, reason=f"cgroup v2 at {top}, but {why}")
    return replace(
        _place_in(best, top, f"groups below {best.directory}, {_who()}"),
        own=own,
        outer_run=None if outer_run is None else outer_run.name,
    )


def _best(chain: Iterable[Path], top: Path, home: Path | None) -> _Candidate | None:
    candidates = [_weigh(step, top, home) for step in chain if can_make_groups(step)]
    return max(candidates, key=_merit, default=None)  # the first of equals: the nearest


def _place_in(candidate: _Candidate, top: Path, where: str) -> Place:
    return Place(
        mode=Mode.UNIFIED,
        reason=f"cgroup v2 at {top}, {where}",
        v2=candidate.directory,
        v2_top=top,
        controllers=tuple(name for name in WANTED if name in candidate.controllers),
        missing=candidate.refusals,
        outer=read_outer_v2(v2.path_down(top, candidate.directory)),
        is_crowded=candidate.is_crowded,
    )


def _merit(candidate: _Candidate) -> tuple[int, bool]:
    """Rank by the limits that every run has; I/O and cpuset never lead further away."""
    return len(candidate.controllers & set(CORE)), not candidate.is_crowded


def _weigh(directory: Path, top: Path, home: Path | None) -> _Candidate:
    """Tell which controllers groups below `directory` have, or can be given by us."""
    available = v2.read_controllers(top)
    refusals = {
        name: f"the {name} controller is not offered by {top}"
        for name in WANTED
        if name not in available
    }
    obtainable = set(WANTED) & available
    is_crowded = False
    for step in v2.path_down(top, directory):
        closed = obtainable - v2.read_enabled(step)
        why = _why_closed(step) if closed else None
        if why == _CROWDED and step == directory and _may_make_room(directory, home):
            is_crowded, why = True, None
        if why is not None:
            refusals.update(
                (name, f"{step} does not enable the {name} controller, and {why}")
                for name in closed
            )
            obtainable -= closed
    return _Candidate(
        directory=directory,
        controllers=frozenset(obtainable),
        refusals=refusals,
        is_crowded=is_crowded,
    )


def _why_closed(directory: Path) -> str | None:
    """Return why we cannot enable controllers in a group, or None if we can."""
    if not os.access(directory / "cgroup.subtree_control", os.W_OK):
        return "it is not ours to change"
    if not v2.is_real_root(directory) and v2.has_processes(directory):
        return _CROWDED
    return None


def _may_make_room(directory: Path, home: Path | None) -> bool:
    """Return whether the processes in a group are ours to move into a leaf below it.

    We alone, or all that our container or delegated unit has in its topmost group, `home`; a pid
    of 0 is a process outside of the container.
    """
    pids = v2.list_own_pids(directory)
    if pids == (os.getpid(),):
        return True
    return directory == home and bool(pids) and 0 not in pids


# --- under systemd


def _find_unit(own: Path, top: Path) -> Path | None:
    """Return the group of the unit that we are in: the nearest scope or service."""
    for step in reversed(v2.path_down(top, own)):
        if step.suffix in {".scope", ".service"}:
            return step
    return None


def _is_delegated(unit: Path) -> bool:
    """Return whether systemd has given a unit's group away: it says so by an attribute.

    Older ones only gave the group to the unit's user; below a user's manager all is that user's.
    """
    for name in ("user.delegate", "trusted.delegate"):
        with suppress(OSError):
            return os.getxattr(unit, name) == b"1"
    if any(step.name.startswith("user@") for step in unit.parents):
        return False
    return os.geteuid() != 0 and unit.stat().st_uid == os.geteuid()


def _ask_systemd(own: Path, top: Path, roots: Roots, why: str) -> Place:
    from sandbox.kernel.systemd import find_manager, why_no_manager

    if os.statvfs(top).f_flag & os.ST_RDONLY:
        return Place(
            mode=Mode.NONE, reason=f"{top} is mounted read-only, so no scope would be of use"
        )
    manager = find_manager(roots)
    if manager is None:
        return Place(mode=Mode.NONE, reason=f"cgroup v2 at {top}, but {why_no_manager()}")
    giver = top
    if manager.is_user:
        uid = os.geteuid()
        giver = top / "user.slice" / f"user-{uid}.slice" / f"user@{uid}.service"
    offered = v2.read_controllers(giver)
    return Place(
        mode=Mode.UNIFIED,
        reason=f"cgroup v2 at {top}, groups in a scope from {manager.name}, because {why}",
        v2_top=top,
        controllers=tuple(name for name in WANTED if name in offered),
        outer=read_outer_v2(v2.path_down(top, own)),
        own=own,
        needs_scope=True,
    )


def place_in_scope(asked: Place, scope: Path, manager_name: str) -> Place:
    """Return the place that systemd has made; nothing may sit in the scope's own group any more.

    Controllers that systemd does not hand on are missing, each with its reason.
    """
    if asked.v2_top is None:
        return asked
    found = _weigh(scope, asked.v2_top, None)
    offered = v2.read_controllers(asked.v2_top)
    refusals = {
        name: f"{manager_name} was not given the {name} controller to hand on"
        if name in offered
        else why
        for name, why in found.refusals.items()
    }
    where = f"groups in {scope} from {manager_name}"
    place = _place_in(replace(found, refusals=refusals), asked.v2_top, where)
    return replace(place, own=asked.own)


# --- v1 with a v2 mount beside it


def _hybrid_place(hierarchies: Hierarchies) -> Place:
    side = hierarchies.v2
    if side is None:
        return Place(
            mode=Mode.NONE,
            reason="cgroup v1 without a v2 mount: what a run leaves cannot be killed safely",
        )
    if side.own is None or not side.writable:
        return Place(mode=Mode.NONE, reason=side.reason or f"{side.mount} cannot be written")
    v1: dict[str, Path] = {}
    missing: dict[str, str] = {}
    for name in V1_USED:
        hierarchy = hierarchies.v1.get(name)
        if hierarchy is None:
            missing[name] = f"the v1 {name} controller is not mounted"
        elif hierarchy.own is None or not hierarchy.writable:
            missing[name] = hierarchy.reason or f"{hierarchy.mount} cannot be written"
        else:
            v1[name] = _outer_run(hierarchy.own) or hierarchy.own
    if not any(name in v1 for name in CORE):
        why = next(missing[name] for name in CORE if name in missing)
        return Place(mode=Mode.NONE, reason=f"cgroup v1 and v2 side by side, but {why}")
    outer_run = _outer_run(side.own)
    directory = outer_run or side.own
    return Place(
        own=side.own,
        mode=Mode.HYBRID,
        reason=f"cgroup v1 for limits, v2 at {side.mount} beside it, {_who()}",
        v2=directory,
        v2_top=side.mount,
        v1=v1,
        controllers=tuple(name for name in WANTED if _v1_name(name) in v1),
        missing=missing,
        outer_run=None if outer_run is None else outer_run.name,
        outer=read_outer_v1(v1, {name: hierarchies.v1[name].mount for name in v1}),
    )


def _v1_name(controller: str) -> str:
    return "blkio" if controller == "io" else controller


# --- both


def _outer_run(own: Path) -> Path | None:
    """Return the outer run's group if we are in its inner one, `run-<id>/main`."""
    if own.name == INNER_GROUP and re.fullmatch(_RUN_GROUP, own.parent.name):
        return own.parent
    return None


def _upwards(directory: Path, top: Path) -> tuple[Path, ...]:
    """Return a group and those above it, up to what is seen; inside a run, up to the run."""
    chain: list[Path] = []
    for step in reversed(v2.path_down(top, directory)):
        chain.append(step)
        if re.fullmatch(_RUN_GROUP, step.name):
            break  # never leave a sandbox
    return tuple(chain)


def _who() -> str:
    return "as root" if os.geteuid() == 0 else "delegated to us"
