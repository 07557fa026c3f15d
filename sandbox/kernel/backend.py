"""From the host's mode to what a run is made with: a group, a launcher and a guard."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sandbox.kernel.group import Group
from sandbox.kernel.launcher import Launcher
from sandbox.kernel.place import Place
from sandbox.kernel.roots import Roots
from sandbox.kernel.signals import SignalState
from sandbox.records.host import Mode
from sandbox.records.light import dataclass


@dataclass(frozen=True, kw_only=True)
class Backend:
    """What one run is made with."""

    group: Group
    launcher: Launcher
    kill_directory: Path | None
    """The v2 directory whose death ends the run; None where a keeper does the guarding."""

    def start_guard(self) -> Callable[[], None]:
        """Start what ends the run when the supervisor is killed; return how to send it home."""
        if self.kill_directory is None:
            return lambda: None
        from sandbox.kernel.guard import Guard

        return Guard.start(
            kill_directory=self.kill_directory, directories=self.group.directories
        ).dismiss


def open_backend(  # noqa: PLR0913 - all that the modes differ by
    place: Place,
    roots: Roots,
    run_id: str,
    *,
    oom_group: bool,
    signals: SignalState,
    keep_descriptors: bool,
) -> Backend:
    """Return the backend of this host's mode; nothing is created yet."""
    if place.mode is Mode.NONE:
        from sandbox.kernel.bare import BareGroup
        from sandbox.kernel.keeper import KeeperLauncher

        bare = BareGroup(run_id, roots)
        keeper = KeeperLauncher(signals=signals, keep_descriptors=keep_descriptors)
        return Backend(group=bare, launcher=keeper, kill_directory=None)
    from sandbox.kernel.launch import ProcessLauncher

    launcher = ProcessLauncher(signals=signals, keep_descriptors=keep_descriptors)
    if place.mode is Mode.UNIFIED:
        from sandbox.kernel.unified import UnifiedGroup

        unified = UnifiedGroup(place, run_id, roots, oom_group=oom_group)
        return Backend(group=unified, launcher=launcher, kill_directory=unified.kill_directory)
    from sandbox.kernel.hybrid import HybridGroup

    hybrid = HybridGroup(place, run_id, roots, oom_group=oom_group)
    return Backend(group=hybrid, launcher=launcher, kill_directory=hybrid.kill_directory)
