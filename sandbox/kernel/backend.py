"""From the host's mode to what a run is made with: a group, a launcher and a guard."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.kernel.place import Place
from sandbox.kernel.roots import Roots
from sandbox.kernel.signals import SignalState
from sandbox.records.host import Mode
from sandbox.records.light import dataclass

if TYPE_CHECKING:
    from sandbox.kernel.group import Group
    from sandbox.kernel.launch import Connect
    from sandbox.kernel.launcher import Launcher
    from sandbox.kernel.scope import Scope  # costs milliseconds; most hosts need none

MODULES = {
    Mode.UNIFIED: ("kernel.launch", "kernel.guard", "kernel.unified"),
    Mode.HYBRID: ("kernel.launch", "kernel.guard", "kernel.hybrid"),
    Mode.NONE: ("kernel.keeper", "kernel.bare"),
}
"""What `open_backend` imports in each mode, for those who would rather wait beforehand."""


@dataclass(frozen=True, kw_only=True)
class Backend:
    """What one run is made with."""

    group: Group
    launcher: Launcher
    kill_directory: Path | None
    """The v2 directory whose death ends the run; None where a keeper does the guarding."""
    scope: Scope | None = None
    """Where systemd gave one: it has a guard in it from the first."""

    def start_guard(self, scratch: Path | None = None, lease: str = "") -> Callable[[], None]:
        """Start what ends the run when the supervisor is killed; return how to send it home.

        `scratch` is a directory of the run's own that is to go with it, `lease` what lets
        interfaces forward for it. A keeper knows both from the program.
        """
        if self.kill_directory is None:
            return lambda: None
        if self.scope is not None:
            guard = self.scope.guard
            guard.take_charge(self.kill_directory, self.group.directories)
        else:
            from sandbox.kernel.guard import Guard

            guard = Guard.start(
                kill_directory=self.kill_directory, directories=self.group.directories
            )
        if scratch is not None:
            guard.take_away(scratch)
        if lease:
            guard.release(lease)
        return guard.dismiss


def open_backend(  # noqa: PLR0913 - all that the modes differ by
    place: Place,
    roots: Roots,
    run_id: str,
    *,
    oom_group: bool,
    signals: SignalState,
    keep_descriptors: bool,
    scope: Scope | None = None,
    connect: Connect | None = None,
) -> Backend:
    """Return the backend of this host's mode; nothing is created yet.

    `scope` is what `open_scope` has returned with the place, if systemd had to be asked for it.
    `connect` gives a program's own network its interfaces.
    """
    if place.mode is Mode.NONE:
        from sandbox.kernel.bare import BareGroup
        from sandbox.kernel.keeper import KeeperLauncher

        bare = BareGroup(run_id, roots)
        keeper = KeeperLauncher(signals=signals, keep_descriptors=keep_descriptors, connect=connect)
        return Backend(group=bare, launcher=keeper, kill_directory=None)
    from sandbox.kernel.launch import ProcessLauncher

    if place.mode is Mode.UNIFIED:
        from sandbox.kernel.unified import UnifiedGroup

        unified = UnifiedGroup(place, run_id, roots, oom_group=oom_group)
        launcher = ProcessLauncher(
            signals=signals,
            keep_descriptors=keep_descriptors,
            bring_in=None if scope is None else scope.doorman(unified.directories[0]),
            adapt=unified.adapt,
            connect=connect,
        )
        return Backend(
            group=unified,
            launcher=launcher,
            kill_directory=unified.kill_directory,
            scope=scope,
        )
    from sandbox.kernel.hybrid import HybridGroup

    launcher = ProcessLauncher(signals=signals, keep_descriptors=keep_descriptors, connect=connect)
    hybrid = HybridGroup(place, run_id, roots, oom_group=oom_group)
    return Backend(group=hybrid, launcher=launcher, kill_directory=hybrid.kill_directory)
