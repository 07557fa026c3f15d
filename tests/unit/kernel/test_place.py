"""Where runs are placed, against directories that stand in for hosts."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from sandbox.kernel import systemd
from sandbox.kernel.outer import OuterLimits
from sandbox.kernel.place import Place, find_place, place_in_scope
from sandbox.kernel.roots import Roots
from sandbox.kernel.systemd import Manager
from sandbox.records.host import Mode

ALL = ("cpuset", "cpu", "io", "memory", "pids")
V2_MOUNT = "30 24 0:24 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
MIB = 1 << 20


class FakeHost:
    """A host made of directories."""

    def __init__(self, base: Path) -> None:
        self.roots = Roots(cgroup=base / "cgroup", proc=base / "proc", sys=base / "sys", top=base)
        (self.roots.proc / "self").mkdir(parents=True)
        self.roots.cgroup.mkdir()
        self.mounts = ""
        self.groups = ""

    def say(self) -> None:
        (self.roots.proc / "self" / "cgroup").write_text(self.groups)
        (self.roots.proc / "self" / "mountinfo").write_text(self.mounts)

    def unified(self, own: str, available: Iterable[str] = ALL) -> None:
        self.mounts, self.groups = V2_MOUNT, f"0::/{own}\n"
        self.v2_group("", available=available, enabled=(), root=True)
        self.say()

    def v2_group(
        self,
        name: str,
        *,
        available: Iterable[str] = (),
        enabled: Iterable[str] = (),
        procs: str = "",
        root: bool = False,
        **files: str,
    ) -> Path:
        directory = self.roots.cgroup / name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "cgroup.procs").write_text(procs)
        (directory / "cgroup.controllers").write_text(" ".join(available) + "\n")
        (directory / "cgroup.subtree_control").write_text(" ".join(enabled) + "\n")
        if not root:
            (directory / "cgroup.events").write_text("populated 1\nfrozen 0\n")
        for file, text in files.items():
            (directory / file.replace("__", ".")).write_text(f"{text}\n")
        return directory

    def v1_group(self, controllers: str, name: str, **files: str) -> Path:
        point = self.roots.cgroup / controllers
        self.mounts += (
            f"32 31 0:29 / /sys/fs/cgroup/{controllers} rw - cgroup cgroup rw,{controllers}\n"
        )
        self.groups += f"3:{controllers}:/{name}\n"
        for directory in (point, point / name):
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "cgroup.procs").touch()
        for file, text in files.items():
            (point / name / file.replace("__", ".")).write_text(f"{text}\n")
        return point / name

    def v2_side(self, name: str = "") -> Path:
        self.mounts += "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
        self.groups += f"0::/{name}\n"
        self.v2_group("unified", root=True)
        return self.v2_group(f"unified/{name}") if name else self.roots.cgroup / "unified"


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


# --- unified


def test_in_the_root_group_runs_are_made_right_there(host: FakeHost) -> None:
    host.unified("")

    place = find_place(host.roots)

    assert place.mode is Mode.UNIFIED
    assert place.v2 == place.v2_top == host.roots.cgroup
    assert place.controllers == ("cpu", "memory", "pids", "io", "cpuset")
    assert place.missing == {}
    assert place.outer_run is None


def test_beside_our_own_group_where_it_holds_processes(host: FakeHost) -> None:
    host.unified("jobs/ours")
    host.v2_group("jobs", available=ALL, enabled=("memory", "pids"))
    host.v2_group("jobs/ours", available=("memory", "pids"), procs="17\n")

    place = find_place(host.roots)

    assert place.v2 == host.roots.cgroup / "jobs"
    assert set(place.controllers) == set(ALL)
    assert "jobs" in place.reason


def test_an_empty_group_of_our_own_is_not_left(host: FakeHost) -> None:
    # A process can be in a group without showing in its list: of another PID namespace, or we
    # have just been moved. What counts is that the kernel would let us.
    host.unified("scope")
    own = host.v2_group("scope", available=ALL)

    assert find_place(host.roots).v2 == own


def test_a_container_makes_room_in_its_own_topmost_group(host: FakeHost) -> None:
    host.unified("")
    host.v2_group("", available=ALL, procs="1\n17\n")  # has cgroup.events: not the real root

    place = find_place(host.roots)

    assert place.mode is Mode.UNIFIED
    assert place.v2 == host.roots.cgroup
    assert place.is_crowded


def test_processes_from_outside_of_a_container_are_not_moved(host: FakeHost) -> None:
    host.unified("")
    host.v2_group("", available=ALL, procs="0\n17\n")  # 0: not of our PID namespace

    place = find_place(host.roots)

    assert place.mode is Mode.NONE
    assert place.v2 is None
    assert "it holds processes" in place.reason


def test_a_group_without_processes_is_better_than_one_to_make_room_in(host: FakeHost) -> None:
    host.unified("init")
    host.v2_group("", available=ALL, enabled=ALL)
    host.v2_group("init", available=ALL, procs=f"{os.getpid()}\n")

    place = find_place(host.roots)

    assert place.v2 == host.roots.cgroup
    assert not place.is_crowded


def test_a_controller_that_nobody_offers_is_missing_with_its_reason(host: FakeHost) -> None:
    host.unified("", available=("cpu", "memory", "pids"))

    place = find_place(host.roots)

    assert place.controllers == ("cpu", "memory", "pids")
    assert set(place.missing) == {"io", "cpuset"}
    assert "the io controller is not offered by" in place.missing["io"]


def test_a_populated_group_on_the_way_keeps_what_it_does_not_enable(host: FakeHost) -> None:
    host.unified("slice/inner/scope")
    host.v2_group("slice", available=ALL, enabled=("cpu", "memory", "pids"), procs="5\n")
    host.v2_group("slice/inner", available=("cpu", "memory", "pids"))
    host.v2_group("slice/inner/scope", procs="6\n")

    place = find_place(host.roots)

    assert place.v2 == host.roots.cgroup / "slice" / "inner"
    assert place.controllers == ("cpu", "memory", "pids")
    assert "slice does not enable the io controller" in place.missing["io"]


def test_inside_a_sandbox_the_place_is_the_outer_run(host: FakeHost) -> None:
    host.unified("jobs/run-abc/main")
    host.v2_group("jobs", available=ALL, enabled=ALL, memory__max=str(512 * MIB))
    host.v2_group(
        "jobs/run-abc",
        available=ALL,
        cpu__max="50000 100000",
        memory__max=str(256 * MIB),
        memory__swap__max="0",
        pids__max="100",
        cpuset__cpus__effective="0-1",
    )
    host.v2_group("jobs/run-abc/main", procs="17\n")

    place = find_place(host.roots)

    assert place.v2 == host.roots.cgroup / "jobs/run-abc"
    assert place.outer_run == "run-abc"
    assert place.outer == OuterLimits(
        cpus=0.5, cpuset_cpus=(0, 1), memory_bytes=256 * MIB, swap_bytes=0, pids=100
    )


def test_a_sandbox_is_never_left_upwards(host: FakeHost) -> None:
    host.unified("jobs/run-abc/main/own")
    host.v2_group("jobs", available=ALL, enabled=ALL)
    host.v2_group("jobs/run-abc", available=ALL)
    host.v2_group("jobs/run-abc/main", procs="17\n")
    host.v2_group("jobs/run-abc/main/own", procs="18\n")

    assert find_place(host.roots).v2 == host.roots.cgroup / "jobs/run-abc"


def test_a_group_called_main_elsewhere_is_an_ordinary_one(host: FakeHost) -> None:
    host.unified("jobs/main")
    host.v2_group("jobs", available=ALL, enabled=ALL)
    host.v2_group("jobs/main", procs="17\n")

    place = find_place(host.roots)

    assert place.v2 == host.roots.cgroup / "jobs"
    assert place.outer_run is None


def test_a_limit_that_is_max_everywhere_is_none(host: FakeHost) -> None:
    host.unified("scope")
    host.v2_group("scope", available=ALL, cpu__max="max 100000", memory__max="max")

    assert find_place(host.roots).outer == OuterLimits()


# --- under systemd


def booted(host: FakeHost) -> None:
    (host.roots.top / "run/systemd/system").mkdir(parents=True)


def answering(monkeypatch: pytest.MonkeyPatch, manager: Manager | None) -> None:
    monkeypatch.setattr(systemd, "find_manager", lambda _: manager)


USER = Manager(name="the user's manager", is_user=True, runtime=Path("/run/user/1"), sockets=())


def in_a_session(host: FakeHost, *, procs: str = "17\n18\n") -> Path:
    host.unified("user.slice/user-1.slice/session-1.scope")
    host.v2_group("user.slice", available=ALL, enabled=ALL)
    host.v2_group("user.slice/user-1.slice", available=ALL, enabled=ALL, memory__max=str(MIB))
    return host.v2_group("user.slice/user-1.slice/session-1.scope", available=ALL, procs=procs)


def test_in_a_units_group_systemd_has_to_be_asked(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    booted(host)
    own = in_a_session(host)
    answering(monkeypatch, USER)
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    giver = "user.slice/user-1.slice/user@1.service"
    host.v2_group(giver, available=("cpu", "memory", "pids"))

    place = find_place(host.roots)

    assert place.needs_scope
    assert place.mode is Mode.UNIFIED
    assert place.v2 is None
    assert place.own == own
    assert place.controllers == ("cpu", "memory", "pids")
    assert place.outer.memory_bytes == MIB


def test_on_a_read_only_mount_nobody_is_asked(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    booted(host)
    in_a_session(host)
    answering(monkeypatch, USER)
    real = os.statvfs(host.roots.cgroup)
    fields = [*real[:8], os.ST_RDONLY, *real[9:]]
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(fields))

    place = find_place(host.roots)

    assert place.mode is Mode.NONE
    assert "read-only" in place.reason


def test_without_a_manager_there_is_no_place_but_a_way_to_one(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    booted(host)
    in_a_session(host)
    answering(monkeypatch, None)
    monkeypatch.setattr(os, "geteuid", lambda: 65534)

    place = find_place(host.roots)

    assert place.mode is Mode.NONE
    assert "sudo loginctl enable-linger nobody" in place.reason


def test_where_systemd_is_not_a_units_name_is_only_a_name(host: FakeHost) -> None:
    own = in_a_session(host)

    place = find_place(host.roots)  # as in a container that shares the host's cgroup namespace

    assert not place.needs_scope
    assert place.v2 == own
    assert place.is_crowded


def test_a_delegated_unit_is_used_if_we_are_alone_in_it(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    booted(host)
    own = in_a_session(host, procs=f"{os.getpid()}\n")
    monkeypatch.setattr(os, "getxattr", lambda path, name: b"1")

    place = find_place(host.roots)

    assert place.v2 == own
    assert place.is_crowded
    assert not place.needs_scope


def test_in_a_delegated_unit_with_others_a_scope_is_asked_for(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    booted(host)
    in_a_session(host)
    monkeypatch.setattr(os, "getxattr", lambda path, name: b"1")
    answering(monkeypatch, USER)

    assert find_place(host.roots).needs_scope


def test_in_a_delegated_unit_others_make_room_if_nobody_answers(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    booted(host)
    own = in_a_session(host)
    monkeypatch.setattr(os, "getxattr", lambda path, name: b"1")
    answering(monkeypatch, None)

    place = find_place(host.roots)

    assert place.v2 == own
    assert place.is_crowded


def test_a_delegated_units_empty_group_is_used_from_a_leaf_of_it(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    booted(host)
    host.unified("system.slice/runner.service/runner")  # as DelegateSubgroup= has it
    host.v2_group("system.slice", available=ALL, enabled=ALL)
    unit = host.v2_group("system.slice/runner.service", available=ALL)
    host.v2_group("system.slice/runner.service/runner", procs="17\n")
    monkeypatch.setattr(os, "getxattr", lambda path, name: b"1")

    place = find_place(host.roots)

    assert place.v2 == unit
    assert not place.is_crowded


def test_inside_a_sandbox_systemd_is_never_asked(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    booted(host)
    answering(monkeypatch, USER)
    scope = "user.slice/sandbox-abc.scope"
    host.unified(f"{scope}/run-abc/main")
    host.v2_group("user.slice", available=ALL, enabled=ALL)
    host.v2_group(scope, available=ALL, enabled=ALL)
    host.v2_group(f"{scope}/run-abc", available=ALL)
    host.v2_group(f"{scope}/run-abc/main", procs="17\n")

    place = find_place(host.roots)

    assert not place.needs_scope
    assert place.v2 == host.roots.cgroup / scope / "run-abc"


@pytest.mark.parametrize("unit", ["run-u9.service", "run-r0123456789abcdef.scope"])
def test_systemds_transient_units_are_no_runs_of_ours(
    unit: str, host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    booted(host)
    answering(monkeypatch, USER)
    host.unified(f"system.slice/{unit}")
    host.v2_group("system.slice", available=ALL, enabled=ALL)
    host.v2_group(f"system.slice/{unit}", available=ALL, procs="17\n")

    assert find_place(host.roots).needs_scope


def test_a_place_in_a_scope_names_what_was_not_handed_on(host: FakeHost) -> None:
    host.unified("user.slice/x.scope")
    core = ("cpu", "memory", "pids")
    host.v2_group("", available=ALL, enabled=core, procs="1\n")  # ours to change for nobody
    host.v2_group("user.slice", available=core, enabled=core)
    scope = host.v2_group("user.slice/x.scope", available=core, pids__max="99")
    asked = Place(mode=Mode.UNIFIED, reason="", v2_top=host.roots.cgroup, needs_scope=True)

    place = place_in_scope(asked, scope, "systemd's user manager")

    assert place.v2 == scope
    assert not place.needs_scope
    assert place.controllers == core
    assert place.outer.pids == 99
    assert place.missing == {
        name: f"systemd's user manager was not given the {name} controller to hand on"
        for name in ("io", "cpuset")
    }


# --- hybrid


def hybrid(host: FakeHost) -> None:
    host.v1_group("cpu", "jobs")
    host.v1_group("memory", "jobs/job-7")
    host.v1_group("pids", "")
    host.v1_group("blkio", "")


def test_with_v1_beside_v2_each_hierarchy_has_its_own_parent(host: FakeHost) -> None:
    hybrid(host)
    host.v2_side("other")
    host.say()

    place = find_place(host.roots)

    assert place.mode is Mode.HYBRID
    assert place.v2 == host.roots.cgroup / "unified/other"
    assert place.v1 == {
        "cpu": host.roots.cgroup / "cpu/jobs",
        "memory": host.roots.cgroup / "memory/jobs/job-7",
        "pids": host.roots.cgroup / "pids",
        "blkio": host.roots.cgroup / "blkio",
    }
    assert place.controllers == ("cpu", "memory", "pids", "io")
    assert place.missing["cpuset"] == "the v1 cpuset controller is not mounted"


def test_inside_a_sandbox_each_hierarchy_is_looked_at_alone(host: FakeHost) -> None:
    host.v1_group("cpu", "jobs/run-abc/main")
    host.v1_group("memory", "run-abc/main")
    host.v1_group("pids", "jobs")
    host.v2_side("run-abc/main")
    host.say()

    place = find_place(host.roots)

    assert place.v1 == {
        "cpu": host.roots.cgroup / "cpu/jobs/run-abc",
        "memory": host.roots.cgroup / "memory/run-abc",
        "pids": host.roots.cgroup / "pids/jobs",
    }
    assert place.v2 == host.roots.cgroup / "unified/run-abc"
    assert place.outer_run == "run-abc"


def test_v1_limits_around_are_found(host: FakeHost) -> None:
    host.v1_group("cpu", "", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    outer = host.roots.cgroup / "cpu/jobs"
    host.groups = ""
    host.mounts = ""
    host.v1_group("cpu", "jobs/inner", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    (outer / "cpu.cfs_quota_us").write_text("150000\n")
    (outer / "cpu.cfs_period_us").write_text("100000\n")
    host.v1_group(
        "memory",
        "jobs",
        memory__stat=f"cache 0\nhierarchical_memory_limit {64 * MIB}\n"
        "hierarchical_memsw_limit 9223372036854771712",
    )
    host.v1_group("pids", "", pids__max="max")
    host.v1_group("cpuset", "", cpuset__effective_cpus="0,2")
    host.v2_side()
    host.say()

    assert find_place(host.roots).outer == OuterLimits(
        cpus=1.5, memory_bytes=64 * MIB, cpuset_cpus=(0, 2)
    )


def test_v1_without_a_v2_mount_is_no_place(host: FakeHost) -> None:
    hybrid(host)
    host.say()

    place = find_place(host.roots)

    assert place.mode is Mode.NONE
    assert place.reason.startswith("cgroup v1 without a v2 mount")


def test_v1_hierarchies_that_limit_nothing_leave_v2_to_itself(host: FakeHost) -> None:
    host.unified("")
    host.v1_group("devices", "")
    host.say()

    assert find_place(host.roots).mode is Mode.UNIFIED


def test_without_a_hierarchy_that_limits_there_is_no_place(host: FakeHost) -> None:
    host.v1_group("devices", "")
    host.say()

    place = find_place(host.roots)

    assert place.mode is Mode.NONE
    assert place.reason == "no hierarchy with cpu, memory or pids is mounted"


def test_without_any_hierarchy_there_is_no_place(host: FakeHost) -> None:
    host.say()

    assert find_place(host.roots).reason == "no cgroup hierarchy is mounted"
