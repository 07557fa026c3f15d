"""The start of a run's child; with a root made by copying where its layers cannot be stacked."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.engine.watch import ENDING_SIGNALS
from sandbox.environment.host import Prepared
from sandbox.errors import HostError, OverlayError, SandboxError
from sandbox.kernel.backend import Backend
from sandbox.records.light import replace
from sandbox.records.program import Program
from sandbox.records.result import RootMade
from sandbox.records.security import Protection, ProtectionState

if TYPE_CHECKING:
    from sandbox.engine.order import Surroundings
    from sandbox.kernel.launcher import Child


def start_child(
    backend: Backend,
    prepared: Prepared,
    adapt: Callable[[Program], Program],
    around: Surroundings,
) -> tuple[Child, Prepared]:
    """Return a paused child, and the program as it is then.

    Raises:
        SandboxError: it cannot be started, and nothing of it is left.
    """
    prepared = _filter_devices(backend, prepared)
    enclosure = prepared.program.enclosure
    why = prepared.copies
    if why is None:
        try:
            child = backend.launcher.start(adapt(prepared.program), backend.group)
        except OverlayError as error:
            if enclosure is None or enclosure.writes_to is not None:
                raise  # what the run writes is wanted for itself: a copy would not tell it apart
            why = f"no overlay can be mounted here ({error.why})"
        else:
            if enclosure is not None and enclosure.in_place is None:
                prepared = replace(prepared, root_made=RootMade(how="overlay"))
            return child, prepared
    from sandbox.engine.root_copy import copy_root

    with _guarded(backend, prepared):
        prepared = copy_root(prepared, why, around)
    return backend.launcher.start(adapt(prepared.program), backend.group), prepared


def _filter_devices(backend: Backend, prepared: Prepared) -> Prepared:
    """Let the group use the devices that it may, and return what then protects the run.

    Raises:
        HostError: they cannot be filtered, and that was asked for.
    """
    enclosure, spec = prepared.program.enclosure, prepared.spec
    if enclosure is None or enclosure.device_rules is None or backend.kill_directory is None:
        return prepared
    from sandbox.kernel.device_filter import filter_devices

    try:
        filter_devices(backend.kill_directory, enclosure.device_rules)
    except OSError as exc:
        why = f"BPF cannot filter them ({exc.strerror})"
    else:
        return prepared
    if spec is not None and (spec.strict or (spec.root and spec.root.security.filters_devices)):
        raise HostError(
            f"the devices of the run cannot be held to what was asked for: {why}",
            hint="leave out --strict, the permissions of --device and --device-cgroup-rule",
        )
    off = Protection(name="devices", state=ProtectionState.UNAVAILABLE, detail=why)
    protections = (off if each.name == off.name else each for each in prepared.protections)
    return replace(prepared, protections=tuple(protections))


@contextmanager
def _guarded(backend: Backend, prepared: Prepared) -> Iterator[None]:
    """Have what is copied taken away if we are killed meanwhile: a keeper comes with the child."""
    enclosure = prepared.program.enclosure
    if backend.kill_directory is not None or enclosure is None:
        yield
        return
    from sandbox.kernel.guard import Guard

    guard = Guard.start()
    try:
        guard.take_away(Path(enclosure.scratch))
        yield
    finally:
        guard.dismiss()


def refuse_if_stopped() -> None:
    """End a run that was not let go yet, if a signal waits that means so.

    Raises:
        SandboxError: one does.
    """
    if pending := signal.sigpending() & ENDING_SIGNALS:
        name = signal.Signals(min(pending)).name
        raise SandboxError(f"stopped by {name} before the program was started")


def preload() -> None:
    """Load what a run in a scope will need, while it has to wait for systemd."""
    kernel = ("launch", "unified", "traffic", "stand_in")
    for name in ("engine.conclude", *(f"kernel.{one}" for one in kernel)):
        import_module(f"sandbox.{name}")
