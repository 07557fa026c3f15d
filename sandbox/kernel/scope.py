"""A scope for one run, where only systemd can give us a group.

The guard is started first and is what the scope is made around: it lives as long as the guard, so
the counters of a run stay readable after its last process, and systemd removes what is left once
the guard has gone. The supervisor stays where the user is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sandbox.errors import KernelError
from sandbox.kernel import v2
from sandbox.kernel.bus import BusError
from sandbox.kernel.files import make_directory
from sandbox.kernel.guard import Guard
from sandbox.kernel.outer import read_outer_v2
from sandbox.kernel.place import INNER_GROUP, Place, place_in_scope
from sandbox.kernel.roots import Roots
from sandbox.kernel.systemd import (
    PATIENCE_SEC,
    Manager,
    Properties,
    Speaker,
    find_manager,
    find_speakers,
    own_group,
    scope_properties,
    why_no_manager,
)
from sandbox.records.host import Mode

GUARD_GROUP = "guard"
_PAUSE_SEC = 0.000_2


class Scope:
    """A delegated scope with a guard in it."""

    def __init__(self, unit: str, guard: Guard, speaker: Speaker) -> None:
        """Take over what `open_scope` has made; `close` gives it all back."""
        self.unit = unit
        self.guard = guard
        self._speaker = speaker
        self._may_enter = False

    def settle(self, asked: Place, manager: Manager) -> tuple[Path, Place]:
        """Move the guard out of the scope's own group, and return what the scope offers.

        Raises:
            KernelError: the guard is not in the scope, or cannot leave its topmost group.
        """
        group = own_group(self.guard.pid)
        if asked.v2_top is None or asked.own is None or not group.endswith(f"/{self.unit}"):
            raise KernelError(f"{self.unit} was started, but its process is in `{group}`")
        directory = asked.v2_top / group.lstrip("/")
        leaf = directory / GUARD_GROUP
        make_directory(leaf)
        self.guard.enter(leaf)
        deadline = time.monotonic() + PATIENCE_SEC
        while v2.has_processes(directory):
            if time.monotonic() >= deadline or not self.guard.is_at_post():
                raise KernelError(f"the guard of the run did not enter {leaf}")
            time.sleep(_PAUSE_SEC)
        self._may_enter = _may_enter(asked.own, directory)
        return directory, place_in_scope(asked, directory, manager.name)

    def doorman(self, run_directory: Path) -> Callable[[int], None] | None:
        """Return what moves a process into the run's inner group, or None if it can go itself.

        Who moves a process needs the right to write to both ends' common ancestor, which between
        a login session and the user's units is root's.
        """
        if self._may_enter:
            return None

        def bring_in(pid: int) -> None:
            inner = f"{run_directory.name}/{INNER_GROUP}"
            self._speaker.attach(self.unit, f"/{inner}", pid)
            group = own_group(pid)
            if not group.endswith(f"/{self.unit}/{inner}"):
                raise KernelError(f"systemd was to move process {pid}, but it is in `{group}`")

        return bring_in

    def close(self) -> None:
        """Send the guard home, with which the scope ends; again is harmless."""
        self.guard.dismiss()
        self._speaker.close()


def open_scope(
    place: Place, roots: Roots, run_id: str, meanwhile: Callable[[], None] = lambda: None
) -> tuple[Place, Scope | None]:
    """Ask systemd for a scope; return the place in it, or the degraded place if it gives none.

    `meanwhile` is done while systemd works, on another CPU, for some ten milliseconds.

    Raises:
        KernelError: not even the guard can be started.
    """
    manager = find_manager(roots)
    if manager is None:
        return _no_place(place, why_no_manager()), None
    guard = Guard.start()
    try:
        scope = _ask(place, manager, guard, run_id, meanwhile)
    except KernelError as error:
        guard.dismiss()
        return _no_place(place, f"{manager.name} gave no scope: {error}"), None
    try:
        directory, found = scope.settle(place, manager)
    except KernelError as error:
        scope.close()
        return _no_place(place, str(error)), None
    if not found.controllers:
        scope.close()
        why = next(iter(found.missing.values()), "it offers no controller")
        return _no_place(place, f"in {directory}, {why}"), None
    return found, scope


def _no_place(place: Place, why: str) -> Place:
    return Place(mode=Mode.NONE, reason=f"cgroup v2 at {place.v2_top}, but {why}")


def _ask(
    place: Place, manager: Manager, guard: Guard, run_id: str, meanwhile: Callable[[], None]
) -> Scope:
    """Try every way to ask; return what the first gave that knows an answer.

    Raises:
        KernelError: none did.
    """
    unit = f"sandbox-{run_id}.scope"
    properties = _properties(place, run_id)
    reasons = []
    deadline = time.monotonic() + PATIENCE_SEC
    for name, open_speaker in find_speakers(manager):
        try:
            speaker = open_speaker()
        except BusError as error:
            reasons.append(str(error))
            continue
        try:
            speaker.start_scope(unit, guard.pid, properties, meanwhile)
        except BusError as error:
            speaker.close()
            reasons.append(f"{name}: {error}")
            if time.monotonic() >= deadline:  # who does not answer here does not elsewhere
                break
        else:
            return Scope(unit, guard, speaker)
    raise KernelError("; ".join(reasons))


def _properties(place: Place, run_id: str) -> Properties:
    """Return the scope's settings: it takes our slice and the limits around us along."""
    slice_name = None
    outer = place.outer
    if place.own is not None and place.v2_top is not None:
        parts = place.own.relative_to(place.v2_top).parts
        slice_name = find_slice(parts, os.geteuid())
        outer = read_outer_v2(v2.path_down(place.v2_top, place.own))
    return scope_properties(f"sandbox run {run_id}", slice_name=slice_name, around=outer)


def find_slice(parts: Sequence[str], uid: int) -> str | None:
    """Return the slice that a group is in, among those of the manager of `uid`; None if in none.

    `parts` is the group's path from the top. PID 1's units end where a user's manager begins.
    """
    managers = [index for index, part in enumerate(parts) if part.startswith("user@")]
    if uid == 0:
        parts = parts[: managers[0]] if managers else parts
    else:
        inside = [index for index in managers if parts[index] == f"user@{uid}.service"]
        parts = parts[inside[-1] + 1 :] if inside else ()
    slices = [part for part in parts if part.endswith(".slice")]
    if slices:
        return slices[-1]
    return "-.slice" if uid == 0 else None


def _may_enter(own: Path, directory: Path) -> bool:
    """Return whether we may move processes of ours from our group into another one."""
    ancestor = Path(os.path.commonpath((own, directory)))
    return os.access(ancestor / "cgroup.procs", os.W_OK)
