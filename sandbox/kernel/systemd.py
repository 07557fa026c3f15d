"""Systemd's managers of units: which one is ours to ask, and the two things that we ask for.

A scope is a unit around processes that exist already; with `Delegate` its group is ours to divide.
The user's own manager answers on a socket of its own, on the user's bus, and to systemd's tools;
root asks PID 1.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from sandbox.kernel.bus import BusError, Connection
from sandbox.kernel.outer import OuterLimits
from sandbox.kernel.roots import Roots
from sandbox.records.light import dataclass

PATIENCE_SEC = 20.0
"""For one answer: a host that boots or swaps may need seconds."""

_MANAGER = (
    "org.freedesktop.systemd1",
    "/org/freedesktop/systemd1",
    "org.freedesktop.systemd1.Manager",
)
_NO_LIMIT = (1 << 64) - 1
_DONE = "done"
_BUSCTL = "/usr/bin/busctl"

Properties = Sequence[tuple[str, tuple[str, Any]]]
"""A unit's settings: name, type and value."""


@dataclass(frozen=True, kw_only=True)
class Manager:
    """A manager of units that runs."""

    name: str
    """For people."""
    is_user: bool
    runtime: Path
    """Its XDG_RUNTIME_DIR; `/run` for PID 1."""
    sockets: tuple[tuple[Path, bool], ...]
    """Where it can be spoken to, the best first, and whether that is a bus."""


class Speaker(Protocol):
    """One way to ask a manager."""

    def start_scope(
        self, unit: str, pid: int, properties: Properties, meanwhile: Callable[[], None]
    ) -> None:
        """Put a process into a new scope; return when it is there.

        `meanwhile` is done while systemd works, which takes some milliseconds.

        Raises:
            BusError: it is not.
        """

    def attach(self, unit: str, group: str, pid: int) -> None:
        """Move a process into a group below a scope's own.

        Raises:
            BusError: it was not moved.
        """

    def close(self) -> None:
        """End the conversation."""


def is_booted(roots: Roots) -> bool:
    """Return whether systemd is PID 1 here, as its own `sd_booted` asks."""
    return (roots.top / "run/systemd/system").is_dir()


def find_manager(roots: Roots, environ: Mapping[str, str] | None = None) -> Manager | None:
    """Return the manager that this user can ask, or None if none runs.

    A runtime directory that is not ours is ignored: `su` and `sudo` leave those of others behind.
    """
    uid = os.geteuid()
    if uid == 0:
        run = roots.top / "run"
        candidates = [(run, run / "dbus/system_bus_socket")]
    else:
        named = (os.environ if environ is None else environ).get("XDG_RUNTIME_DIR")
        directories = [Path(named)] if named else []
        directories.append(roots.top / "run/user" / str(uid))
        candidates = [(directory, directory / "bus") for directory in directories]
    for directory, bus in candidates:
        if _owner(directory) != uid:
            continue
        sockets = [(directory / "systemd/private", False), (bus, True)]
        found = tuple((path, is_bus) for path, is_bus in sockets if _is_socket(path))
        if found:
            return Manager(
                name="systemd" if uid == 0 else "systemd's user manager",
                is_user=uid != 0,
                runtime=directory,
                sockets=found,
            )
    return None


def why_no_manager() -> str:
    """Return what is missing, and the one command by which an admin changes it."""
    uid = os.geteuid()
    if uid == 0:
        return "systemd does not answer at /run/systemd/private"
    return (
        f"no systemd user manager runs for {_user_name(uid)}: an admin can start one for good "
        f"with `sudo loginctl enable-linger {_user_name(uid)}`"
    )


def _user_name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False


class ByMessage:
    """Asks by D-Bus, with or without a bus between."""

    def __init__(self, path: Path, *, is_bus: bool, patience_sec: float = PATIENCE_SEC) -> None:
        """Connect.

        Raises:
            BusError: nobody listens, or we are not let in.
        """
        self._patience_sec = patience_sec
        self._connection = Connection.open(path, is_bus=is_bus, patience_sec=patience_sec)
        if is_bus:
            try:
                self._listen()
            except BusError:
                self.close()
                raise

    def _listen(self) -> None:
        """Have a bus send us the manager's signals; its own socket sends them unasked."""
        name, path, interface = _MANAGER
        rule = f"type='signal',sender='{name}',path='{path}',interface='{interface}',"
        self._connection.call_bus("AddMatch", "s", (rule + "member='JobRemoved'",))
        self._connection.call(_MANAGER, "Subscribe")

    def start_scope(
        self, unit: str, pid: int, properties: Properties, meanwhile: Callable[[], None]
    ) -> None:
        """Put a process into a new scope; return when the job is done."""
        self._connection.renew(self._patience_sec)
        everything = [("PIDs", ("au", [pid])), *properties]
        (job,) = self._connection.call(
            _MANAGER, "StartTransientUnit", "ssa(sv)a(sa(sv))", (unit, "fail", everything, [])
        )
        meanwhile()
        _, _, _, result = self._connection.wait_for("JobRemoved", lambda body: body[1] == job)
        if result != _DONE:
            raise BusError(f"the scope {unit} could not be started: {result}")

    def attach(self, unit: str, group: str, pid: int) -> None:
        """Move a process into a group below a scope's own; systemd may do what we may not."""
        self._connection.renew(self._patience_sec)
        self._connection.call(_MANAGER, "AttachProcessesToUnit", "ssau", (unit, group, [pid]))

    def close(self) -> None:
        """End the conversation."""
        self._connection.close()


class ByTools:
    """Asks through `busctl`, which knows kinds of buses that we do not."""

    def __init__(self, manager: Manager, patience_sec: float = PATIENCE_SEC) -> None:
        self._whose = ["--user"] if manager.is_user else ["--system"]
        self._environment = {**os.environ, "LC_ALL": "C"}
        if manager.is_user:
            self._environment["XDG_RUNTIME_DIR"] = str(manager.runtime)
        self._patience_sec = patience_sec

    def start_scope(
        self, unit: str, pid: int, properties: Properties, meanwhile: Callable[[], None]
    ) -> None:
        """Put a process into a new scope; return when it is there."""
        everything: Properties = [("PIDs", ("au", [pid])), *properties]
        words = [word for name, value in everything for word in (name, *_in_words(value))]
        self._call(
            "StartTransientUnit", "ssa(sv)a(sa(sv))", unit, "fail", len(everything), *words, 0
        )
        meanwhile()
        deadline = time.monotonic() + self._patience_sec
        while unit not in own_group(pid):
            if time.monotonic() >= deadline:
                raise BusError(f"the scope {unit} did not take process {pid} in time")
            time.sleep(0.002)

    def attach(self, unit: str, group: str, pid: int) -> None:
        """Move a process into a group below a scope's own."""
        self._call("AttachProcessesToUnit", "ssau", unit, group, 1, pid)

    def _call(self, method: str, signature: str, *arguments: object) -> None:
        import subprocess

        words = [str(argument) for argument in (*_MANAGER, method, signature, *arguments)]
        try:
            done = subprocess.run(
                [_BUSCTL, *self._whose, "--quiet", "call", *words],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self._patience_sec,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as exc:
            raise BusError(f"busctl could not ask for {method}: {exc}") from exc
        if done.returncode != 0:
            raise BusError(f"{method} was refused: {done.stderr.strip()}")

    def close(self) -> None:
        """Nothing stays open."""


def _in_words(value: tuple[str, Any]) -> list[str]:
    """Return a typed value as `busctl` takes it."""
    kind, content = value
    if kind.startswith("a"):
        return [kind, str(len(content)), *map(str, content)]
    return [kind, str(content).lower() if kind == "b" else str(content)]


def own_group(pid: int, proc: Path = Path("/proc")) -> str:
    """Return a process's group in the unified hierarchy; nothing if it is gone."""
    with suppress(OSError):
        for line in (proc / str(pid) / "cgroup").read_text().splitlines():
            if line.startswith("0::"):
                return line[3:]
    return ""


def find_speakers(manager: Manager) -> Sequence[tuple[str, Any]]:
    """Return the ways to ask, the best first: what to call it, and what opens it."""
    ways: list[tuple[str, Any]] = [
        (str(path), lambda path=path, is_bus=is_bus: ByMessage(path, is_bus=is_bus))
        for path, is_bus in manager.sockets
    ]
    ways.append(("busctl", lambda: ByTools(manager)))
    return ways


def scope_properties(
    description: str, *, slice_name: str | None, around: OuterLimits
) -> Properties:
    """Return the settings of a scope for one run.

    The limits are those `around` us: a scope beside our own unit would escape them. Systemd's own
    default for tasks is lifted, because ours, or what was asked for, holds inside.
    """
    properties: list[tuple[str, tuple[str, Any]]] = [
        ("Delegate", ("b", True)),
        ("CollectMode", ("s", "inactive-or-failed")),
        ("Description", ("s", description)),
        ("TasksMax", ("t", _NO_LIMIT if around.pids is None else around.pids)),
    ]
    if slice_name is not None:
        properties.append(("Slice", ("s", slice_name)))
    if around.cpus is not None:
        properties.append(("CPUQuotaPerSecUSec", ("t", round(around.cpus * 1_000_000))))
    if around.memory_bytes is not None:
        properties.append(("MemoryMax", ("t", around.memory_bytes)))
    if around.swap_bytes is not None:
        properties.append(("MemorySwapMax", ("t", around.swap_bytes)))
    return properties
