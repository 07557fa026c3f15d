"""Which manager is asked, with what words; nobody is spoken to."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.kernel import systemd
from sandbox.kernel.bus import BusError
from sandbox.kernel.outer import OuterLimits
from sandbox.kernel.roots import Roots
from sandbox.kernel.scope import find_slice
from sandbox.kernel.systemd import (
    ByTools,
    Manager,
    find_manager,
    find_speakers,
    is_booted,
    own_group,
    scope_properties,
    why_no_manager,
)

UID = 4242


class FakeMachine:
    """A directory with the sockets that systemd would have."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.roots = Roots(top=top)
        self._sockets: list[socket.socket] = []

    def listen(self, path: str) -> Path:
        (self.top / path).parent.mkdir(parents=True, exist_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.top / path))
        self._sockets.append(listener)
        return self.top / path

    def close(self) -> None:
        for listener in self._sockets:
            listener.close()


@pytest.fixture
def machine() -> Iterator[FakeMachine]:
    directory = tempfile.mkdtemp(prefix="sd-")  # pytest's own are too long for a socket
    machine = FakeMachine(Path(directory))
    yield machine
    machine.close()
    shutil.rmtree(directory)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> int:
    """Be a user who owns what the test makes, and is not root."""
    monkeypatch.setattr(os, "geteuid", lambda: UID)
    monkeypatch.setattr(systemd, "_owner", lambda path: UID if path.exists() else None)
    return UID


def test_a_user_asks_the_manager_of_the_runtime_directory(machine: FakeMachine, plain: int) -> None:
    private = machine.listen("elsewhere/systemd/private")
    bus = machine.listen("elsewhere/bus")

    manager = find_manager(machine.roots, {"XDG_RUNTIME_DIR": str(machine.top / "elsewhere")})

    assert manager is not None
    assert manager.is_user
    assert manager.sockets == ((private, False), (bus, True))


def test_without_one_the_usual_directory_is_looked_at(machine: FakeMachine, plain: int) -> None:
    private = machine.listen(f"run/user/{UID}/systemd/private")

    manager = find_manager(machine.roots, {})

    assert manager is not None
    assert manager.runtime == machine.top / f"run/user/{UID}"
    assert manager.sockets == ((private, False),)


def test_another_users_runtime_directory_is_ignored(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, ours = "run/user/0", f"run/user/{UID}"
    machine.listen(f"{theirs}/systemd/private")
    private = machine.listen(f"{ours}/systemd/private")
    monkeypatch.setattr(os, "geteuid", lambda: UID)
    monkeypatch.setattr(systemd, "_owner", lambda path: UID if path == machine.top / ours else 0)

    manager = find_manager(machine.roots, {"XDG_RUNTIME_DIR": str(machine.top / theirs)})

    assert manager is not None
    assert manager.sockets == ((private, False),)


def test_a_file_in_the_sockets_place_is_none(machine: FakeMachine, plain: int) -> None:
    (machine.top / f"run/user/{UID}/systemd").mkdir(parents=True)
    (machine.top / f"run/user/{UID}/systemd/private").touch()

    assert find_manager(machine.roots, {}) is None


def test_a_login_without_a_manager_has_none(machine: FakeMachine, plain: int) -> None:
    (machine.top / f"run/user/{UID}").mkdir(parents=True)

    assert find_manager(machine.roots, {"XDG_RUNTIME_DIR": str(machine.top / "gone")}) is None


def test_root_asks_the_first_process(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    private = machine.listen("run/systemd/private")
    bus = machine.listen("run/dbus/system_bus_socket")
    machine.listen("run/user/0/systemd/private")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(systemd, "_owner", lambda path: 0)

    manager = find_manager(machine.roots, {"XDG_RUNTIME_DIR": str(machine.top / "run/user/0")})

    assert manager is not None
    assert not manager.is_user
    assert manager.sockets == ((private, False), (bus, True))


def test_the_tools_are_the_last_way_to_ask(machine: FakeMachine, plain: int) -> None:
    private = machine.listen(f"run/user/{UID}/systemd/private")
    manager = find_manager(machine.roots, {})
    assert manager is not None

    assert [name for name, _ in find_speakers(manager)] == [str(private), "busctl"]


def test_the_one_command_that_helps_names_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    assert "`sudo loginctl enable-linger nobody`" in why_no_manager()

    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000_001)  # in no database
    assert "`sudo loginctl enable-linger 4000000001`" in why_no_manager()


def test_systemd_is_told_by_its_directory(machine: FakeMachine) -> None:
    assert not is_booted(machine.roots)

    (machine.top / "run/systemd/system").mkdir(parents=True)

    assert is_booted(machine.roots)


# --- what is asked for


def test_a_scope_is_delegated_and_without_systemds_own_limit_of_tasks() -> None:
    properties = dict(scope_properties("run 1", slice_name=None, around=OuterLimits()))

    assert properties == {
        "Delegate": ("b", True),
        "CollectMode": ("s", "inactive-or-failed"),
        "Description": ("s", "run 1"),
        "TasksMax": ("t", (1 << 64) - 1),
    }


def test_a_scope_takes_the_limits_around_us_along() -> None:
    around = OuterLimits(cpus=0.25, memory_bytes=1 << 30, swap_bytes=0, pids=77)

    properties = dict(scope_properties("run 1", slice_name="app.slice", around=around))

    assert properties["CPUQuotaPerSecUSec"] == ("t", 250_000)
    assert properties["MemoryMax"] == ("t", 1 << 30)
    assert properties["MemorySwapMax"] == ("t", 0)
    assert properties["TasksMax"] == ("t", 77)
    assert properties["Slice"] == ("s", "app.slice")


@pytest.mark.parametrize(
    ("group", "uid", "slice_name"),
    [
        ("user.slice/user-1000.slice/session-3.scope", 1000, None),
        ("user.slice/user-0.slice/session-3.scope", 0, "user-0.slice"),
        ("system.slice/cron.service", 1000, None),
        ("system.slice/cron.service", 0, "system.slice"),
        ("system.slice/system-getty.slice/getty@tty1.service", 0, "system-getty.slice"),
        ("init.scope", 0, "-.slice"),
        ("user.slice/user-1000.slice/user@1000.service/app.slice/x.scope", 1000, "app.slice"),
        ("user.slice/user-1000.slice/user@1000.service/a.slice/a-b.slice/x", 1000, "a-b.slice"),
        ("user.slice/user-1000.slice/user@1000.service/init.scope", 1000, None),
        ("user.slice/user-1000.slice/user@1000.service/app.slice/x.scope", 1001, None),
        ("user.slice/user-0.slice/user@0.service/app.slice/x.scope", 0, "user-0.slice"),
    ],
)
def test_a_scope_stays_in_our_slice_of_the_manager_that_is_asked(
    group: str, uid: int, slice_name: str | None
) -> None:
    assert find_slice(group.split("/"), uid) == slice_name


# --- through busctl


def nothing() -> None:
    """Stand for what is done while systemd works."""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `busctl` that writes down how it was called."""
    busctl = tmp_path / "busctl"
    busctl.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" "dir=$XDG_RUNTIME_DIR" >{tmp_path}/called\n'
        f'[ ! -e {tmp_path}/refuse ] || {{ echo "Access denied" >&2; exit 1; }}\n'
    )
    busctl.chmod(0o755)
    monkeypatch.setattr(systemd, "_BUSCTL", str(busctl))
    return tmp_path


MANAGER = Manager(name="one", is_user=True, runtime=Path("/run/user/7"), sockets=())
CALL = [
    *("--user", "--quiet", "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1"),
    "org.freedesktop.systemd1.Manager",
]


def test_busctl_is_given_every_property_in_words(
    tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systemd, "own_group", lambda _: "/app.slice/x.scope")
    properties = scope_properties("a run", slice_name=None, around=OuterLimits(pids=5))

    ByTools(MANAGER).start_scope("x.scope", 17, properties, nothing)

    assert (tools / "called").read_text().splitlines() == [
        *CALL,
        *("StartTransientUnit", "ssa(sv)a(sa(sv))", "x.scope", "fail", "5"),
        *("PIDs", "au", "1", "17"),
        *("Delegate", "b", "true"),
        *("CollectMode", "s", "inactive-or-failed"),
        *("Description", "s", "a run"),
        *("TasksMax", "t", "5"),
        *("0", "dir=/run/user/7"),
    ]


def test_busctl_moves_a_process(tools: Path) -> None:
    speaker = ByTools(MANAGER)
    speaker.attach("x.scope", "/run-1/main", 17)
    speaker.close()

    called = (tools / "called").read_text().splitlines()
    assert called[len(CALL) : -1] == [
        *("AttachProcessesToUnit", "ssau", "x.scope", "/run-1/main", "1", "17")
    ]


def test_what_busctl_is_refused_is_told(tools: Path) -> None:
    (tools / "refuse").touch()

    with pytest.raises(BusError, match="AttachProcessesToUnit was refused: Access denied"):
        ByTools(MANAGER).attach("x.scope", "/a", 17)


def test_a_machine_without_busctl_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd, "_BUSCTL", "/no/such/busctl")

    with pytest.raises(BusError, match="busctl could not ask"):
        ByTools(MANAGER).attach("x.scope", "/a", 17)


def test_a_scope_that_never_takes_the_process_is_not_waited_for_for_ever(
    tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systemd, "own_group", lambda _: "/session.scope")

    with pytest.raises(BusError, match="did not take process 17"):
        ByTools(MANAGER, patience_sec=0.05).start_scope("x.scope", 17, [], nothing)


# --- where a process is


def test_a_processs_group_is_that_of_the_unified_hierarchy(tmp_path: Path) -> None:
    (tmp_path / "17").mkdir()
    (tmp_path / "17/cgroup").write_text("3:cpu:/a\n0::/user.slice/a b.scope\n")

    assert own_group(17, tmp_path) == "/user.slice/a b.scope"
    assert own_group(18, tmp_path) == ""
