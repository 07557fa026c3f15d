"""From a place that needs a scope to one that has it, or to the degraded one with the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import KernelError
from sandbox.kernel import scope as scope_module
from sandbox.kernel.bus import BusError
from sandbox.kernel.place import Place
from sandbox.kernel.roots import Roots
from sandbox.kernel.scope import Scope, open_scope
from sandbox.kernel.systemd import Manager
from sandbox.records.host import Mode

RUN_ID = "0123456789ab"
UNIT = f"sandbox-{RUN_ID}.scope"
MANAGER = Manager(name="the manager", is_user=True, runtime=Path("/run/user/7"), sockets=())


class FakeGuard:
    """A guard that does as it is told, unless it is deaf."""

    pid = 4711

    def __init__(self) -> None:
        self.is_dismissed = False
        self.is_deaf = False

    def enter(self, group: Path) -> None:
        if not self.is_deaf:
            (group.parent / "cgroup.procs").write_text("")

    def is_at_post(self) -> bool:
        return not self.is_deaf

    def dismiss(self) -> None:
        self.is_dismissed = True


class FakeSpeaker:
    """A way to ask that answers as it was told, and remembers what it was asked."""

    def __init__(self, refusal: str | None = None) -> None:
        self.refusal = refusal
        self.asked: list[tuple[Any, ...]] = []
        self.is_closed = False

    def start_scope(self, *arguments: Any) -> None:
        self.asked.append(("start", *arguments))
        if self.refusal is not None:
            raise BusError(self.refusal)

    def attach(self, *arguments: Any) -> None:
        self.asked.append(("attach", *arguments))

    def close(self) -> None:
        self.is_closed = True


class World:
    """Systemd, as far as `open_scope` sees it."""

    def __init__(self, top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.top = top
        self.manager: Manager | None = MANAGER
        self.guard = FakeGuard()
        self.ways: list[tuple[str, Callable[[], FakeSpeaker]]] = []
        self.group = f"/user.slice/{UNIT}"
        for name in ("", "user.slice", f"user.slice/{UNIT}", "user.slice/session.scope"):
            self.make(name)
        (top / "user.slice" / UNIT / "cgroup.procs").write_text("4711\n")
        monkeypatch.setattr(scope_module, "find_manager", lambda _: self.manager)
        monkeypatch.setattr(scope_module, "find_speakers", lambda _: self.ways)
        monkeypatch.setattr(scope_module.Guard, "start", lambda: self.guard)
        monkeypatch.setattr(scope_module, "own_group", lambda _: self.group)

    def make(self, name: str) -> None:
        directory = self.top / name
        directory.mkdir(exist_ok=True)
        (directory / "cgroup.procs").write_text("")
        (directory / "cgroup.events").write_text("populated 1\n")
        for file in ("cgroup.controllers", "cgroup.subtree_control"):
            (directory / file).write_text("cpu memory pids\n")

    def listen(self, refusal: str | None = None) -> FakeSpeaker:
        speaker = FakeSpeaker(refusal)
        self.ways.append((f"way {len(self.ways)}", lambda: speaker))
        return speaker

    def open(self) -> tuple[Place, Scope | None]:
        asked = Place(
            mode=Mode.UNIFIED,
            reason="why",
            v2_top=self.top,
            own=self.top / "user.slice/session.scope",
            needs_scope=True,
        )
        return open_scope(asked, Roots(top=self.top), RUN_ID)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_a_scope_is_opened_around_the_guard(world: World) -> None:
    speaker = world.listen()

    place, scope = world.open()

    assert scope is not None
    assert speaker.asked[0][:3] == ("start", UNIT, world.guard.pid)
    assert place.v2 == world.top / "user.slice" / UNIT
    assert place.mode is Mode.UNIFIED
    assert not place.needs_scope
    assert set(place.controllers) == {"cpu", "memory", "pids"}
    assert (world.top / "user.slice" / UNIT / "guard").is_dir()
    scope.close()
    assert world.guard.is_dismissed
    assert speaker.is_closed


def test_the_next_way_is_tried_when_one_refuses(world: World) -> None:
    first, second = world.listen("not today"), world.listen()

    _, scope = world.open()

    assert scope is not None
    assert first.is_closed
    assert second.asked


def test_a_way_that_cannot_be_opened_is_passed_over(world: World) -> None:
    def closed() -> FakeSpeaker:
        raise BusError("cannot speak to it: ECONNREFUSED")

    world.ways.append(("closed", closed))
    world.listen()

    assert world.open()[1] is not None


def test_if_all_refuse_the_place_is_degraded_and_says_what_each_said(world: World) -> None:
    world.listen("not today")
    world.listen("nor tomorrow")

    place, scope = world.open()

    assert scope is None
    assert place.mode is Mode.NONE
    assert "the manager gave no scope: way 0: not today; way 1: nor tomorrow" in place.reason
    assert world.guard.is_dismissed


def test_a_manager_that_has_gone_meanwhile_is_none(world: World) -> None:
    world.manager = None

    place, scope = world.open()

    assert scope is None
    assert place.mode is Mode.NONE
    assert not world.guard.is_dismissed  # none was started


def test_a_guard_that_was_not_moved_is_noticed(world: World) -> None:
    speaker = world.listen()
    world.group = "/user.slice/session.scope"

    place, scope = world.open()

    assert scope is None
    assert f"{UNIT} was started, but its process is in `/user.slice/session.scope`" in place.reason
    assert world.guard.is_dismissed
    assert speaker.is_closed


def test_a_guard_that_dies_on_the_way_is_noticed(world: World) -> None:
    world.listen()
    world.guard.is_deaf = True

    place, scope = world.open()

    assert scope is None
    assert "the guard of the run did not enter" in place.reason


def test_a_scope_without_any_controller_is_no_use(world: World) -> None:
    world.listen()
    for name in ("", "user.slice", f"user.slice/{UNIT}"):
        (world.top / name / "cgroup.controllers").write_text("\n")
        (world.top / name / "cgroup.subtree_control").write_text("\n")

    place, scope = world.open()

    assert scope is None
    assert place.mode is Mode.NONE
    assert "controller is not offered" in place.reason
    assert world.guard.is_dismissed


# --- the way in


def test_who_may_write_to_the_common_ancestor_needs_no_doorman(world: World) -> None:
    world.listen()

    _, scope = world.open()

    assert scope is not None
    assert scope.doorman(world.top / "user.slice" / UNIT / f"run-{RUN_ID}") is None


def test_else_systemd_is_asked_to_move_the_child(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaker = world.listen()
    monkeypatch.setattr(scope_module, "_may_enter", lambda own, directory: False)
    _, scope = world.open()
    assert scope is not None
    bring_in = scope.doorman(world.top / "user.slice" / UNIT / f"run-{RUN_ID}")
    assert bring_in is not None

    world.group = f"/user.slice/{UNIT}/run-{RUN_ID}/main"
    bring_in(99)

    assert speaker.asked[-1] == ("attach", UNIT, f"/run-{RUN_ID}/main", 99)


def test_a_child_that_was_not_moved_is_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.listen()
    monkeypatch.setattr(scope_module, "_may_enter", lambda own, directory: False)
    _, scope = world.open()
    assert scope is not None
    bring_in = scope.doorman(world.top / "user.slice" / UNIT / f"run-{RUN_ID}")
    assert bring_in is not None
    world.group = "/user.slice/session.scope"

    with pytest.raises(KernelError, match="systemd was to move process 99, but it is in"):
        bring_in(99)
