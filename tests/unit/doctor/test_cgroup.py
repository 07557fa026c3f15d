"""What the doctor says of limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sandbox.doctor.diagnosis import diagnose
from sandbox.kernel.outer import OuterLimits
from sandbox.records.host import Mode
from sandbox.records.light import replace

Judge = Callable[..., None]
CORE = ["cpu", "memory", "pids"]
MORE = ["io", "cpuset"]


def test_a_whole_v2_host_is_usable(host: Any, judge: Judge) -> None:
    judge(host.find("mode"), "ok", "v2: cgroup v2 at")
    judge(host.find("hierarchies"), "ok", "cgroup v2 alone")
    for name in CORE + MORE:
        assert host.find(name).state == "ok"
    assert "memory.max" in host.find("memory").why
    assert diagnose(host.facts(), ("cgroup",)).is_usable


def test_a_hybrid_host_is_usable_by_root_with_a_warning(hybrid: Any, judge: Judge) -> None:
    judge(hybrid.find("mode"), "ok", "hybrid: cgroup v1 for limits")
    judge(hybrid.find("hierarchies"), "warn", "v2 beside it")
    judge(hybrid.find("memory"), "ok", "memory.limit_in_bytes")
    judge(hybrid.find("cpu"), "ok", "cpu.cfs_quota_us")
    judge(hybrid.find("io"), "ok", "counted by device: blkio")
    assert diagnose(hybrid.facts(), ("cgroup",)).is_usable


def test_a_hybrid_host_can_be_booted_unified(hybrid: Any, judge: Judge) -> None:
    hybrid.boot_systemd()
    hybrid.write("etc/default/grub", "")

    judge(hybrid.find("hierarchies"), "warn", "v2", "systemd.unified_cgroup_hierarchy=1")


def test_wsl_has_a_way_of_its_own(hybrid: Any, judge: Judge) -> None:
    hybrid.calls = replace(hybrid.calls, release="5.15.167.4-microsoft-standard-WSL2")

    judge(hybrid.find("hierarchies"), "warn", "v2", "cgroup_no_v1=all")


@pytest.mark.parametrize("name", CORE)
def test_a_core_controller_that_is_not_there_fails(host: Any, judge: Judge, name: str) -> None:
    host.edit("sys/fs/cgroup/cgroup.controllers", f"{name} ", "")

    judge(host.find(name), "fail", f"the {name} controller is not offered")
    assert not diagnose(host.facts()).is_usable


@pytest.mark.parametrize("name", MORE)
def test_others_have_stand_ins(host: Any, judge: Judge, name: str) -> None:
    host.edit("sys/fs/cgroup/cgroup.controllers", f"{name} ", "")

    judge(host.find(name), "warn", f"the {name} controller is not offered")
    assert diagnose(host.facts(), ("cgroup",)).is_usable


def test_a_user_is_told_how_an_admin_hands_a_controller_on(host: Any, judge: Judge) -> None:
    host.become(1000)
    host.boot_systemd()
    host.edit("sys/fs/cgroup/cgroup.controllers", "io ", "")

    judge(host.find("io"), "warn", "not offered", "50-sandbox-delegate.conf")


def test_a_v1_controller_that_is_not_mounted_is_named(hybrid: Any, judge: Judge) -> None:
    for controller, state in (("blkio", "warn"), ("pids", "fail")):
        mounts = hybrid.base / "proc/self/mountinfo"
        lines = mounts.read_text().splitlines(keepends=True)
        mounts.write_text("".join(line for line in lines if f"cgroup/{controller} " not in line))
        name = "io" if controller == "blkio" else controller

        judge(hybrid.find(name), state, f"the v1 {controller} controller is not mounted")


# --- no group at all


def test_a_read_only_mount_fails_and_names_the_way_out(host: Any, judge: Judge) -> None:
    host.shut()

    judge(host.find("mode"), "fail", "none: ")
    for name in CORE:
        assert host.find(name).state == "fail"
    for name in MORE:
        assert host.find(name).state == "warn"


@pytest.mark.parametrize(
    ("file", "text", "kind", "fix"),
    [
        (".dockerenv", "", "docker", "docker run --security-opt writable-cgroups=true"),
        ("run/.containerenv", "", "podman", "unmask=/sys/fs/cgroup --cgroups=split"),
        ("run/systemd/container", "lxc", "lxc", "lxc container"),
        ("var/run/secrets/kubernetes.io/token", "", "kubernetes", "cgroup_writable"),
    ],
)
def test_a_container_without_a_cgroup_of_its_own(
    host: Any, judge: Judge, file: str, text: str, kind: str, fix: str
) -> None:
    host.write(file, text)
    judge(host.find("container"), "ok", f"inside a {kind} container that may")

    host.shut()

    judge(host.find("container"), "fail", "mounted read-only", fix)
    judge(host.find("mode"), "fail", "mounted read-only", fix)
    judge(host.find("cpu"), "fail", "affinity", fix)


def test_a_user_in_a_container_with_v1_is_told_to_be_root(hybrid: Any, judge: Judge) -> None:
    hybrid.write(".dockerenv", "")
    hybrid.become(1000)
    hybrid.forbid()

    judge(hybrid.find("cpu"), "fail", "affinity", "# start sandbox as root")
    judge(hybrid.find("container"), "fail", "inside a docker", "# start sandbox as root")

    mounts = hybrid.base / "proc/self/mountinfo"
    mounts.write_text(mounts.read_text().replace(" rw,", " ro,"))
    judge(hybrid.find("cpu"), "fail", "affinity", "docker run --security-opt writable-cgroups")


def test_outside_of_containers(host: Any, judge: Judge) -> None:
    judge(host.find("container"), "ok", "not inside")


def test_v1_without_a_v2_mount_wants_one(hybrid: Any, judge: Judge) -> None:
    mounts = hybrid.base / "proc/self/mountinfo"
    lines = mounts.read_text().splitlines(keepends=True)
    mounts.write_text("".join(line for line in lines if "cgroup2" not in line))

    judge(hybrid.find("mode"), "fail", "without a v2 mount", "mount -t cgroup2")
    judge(hybrid.find("hierarchies"), "warn", "without v2")


def test_no_cgroup_mount_at_all(host: Any, judge: Judge) -> None:
    host.write("proc/self/mountinfo", "22 23 0:20 / /proc rw - proc proc rw")

    judge(host.find("hierarchies"), "fail", "no cgroup", "mount -t cgroup2")
    judge(host.find("mode"), "fail", "no cgroup hierarchy")


def test_a_user_without_a_manager_needs_an_admin_once(host: Any, judge: Judge) -> None:
    host.become(1000)
    host.shut()
    judge(host.find("mode"), "fail", "none")

    host.boot_systemd()
    judge(host.find("mode"), "fail", "none", "sudo loginctl enable-linger")


def test_a_user_with_a_manager_asks_it(host: Any, judge: Judge) -> None:
    host.become(1000)
    host.shut()
    host.boot_systemd()
    host.log_in(owner=1000)

    judge(host.find("mode"), "fail", "none", "systemd-run --user --scope")


def test_a_user_on_a_hybrid_host_needs_another_boot(hybrid: Any, judge: Judge) -> None:
    facts = hybrid.facts()
    facts = replace(
        facts,
        place=replace(facts.place, mode=Mode.NONE, controllers=()),
        sessions=replace(facts.sessions, uid=1000, is_booted=True),
        features=replace(facts.features, boot_tool="grubby"),
    )

    judge(
        hybrid.find("cpu", facts),
        "fail",
        "no group can be made",
        "systemd.unified_cgroup_hierarchy=1",
    )


# --- around us


def test_swap_is_limited_where_the_host_has_any(host: Any, judge: Judge) -> None:
    judge(host.find("swap-limit"), "ok", "no swap")

    host.edit("proc/meminfo", "SwapTotal:             0 kB", "SwapTotal:       1048576 kB")
    judge(host.find("swap-limit"), "ok", "no swap unless asked")

    host.remove("sys/fs/cgroup/capture/memory.swap.max")
    host.write("etc/default/grub", "")
    judge(host.find("swap-limit"), "warn", "not limited", "swapaccount=1")

    host.remove("sys/fs/cgroup/capture")
    judge(host.find("swap-limit"), "skip", "no group")

    host.edit("sys/fs/cgroup/cgroup.controllers", "memory ", "")
    judge(host.find("swap-limit"), "skip", "no memory group")


def test_v1_has_a_file_for_swap_or_has_not(hybrid: Any, judge: Judge) -> None:
    meminfo = hybrid.base / "proc/meminfo"
    lines = [line for line in meminfo.read_text().splitlines() if not line.startswith("SwapT")]
    meminfo.write_text("\n".join([*lines, "SwapTotal: 1048576 kB", ""]))
    judge(hybrid.find("swap-limit"), "warn", "swapaccount=1")

    hybrid.write("sys/fs/cgroup/memory/jobs/job-7/memory.memsw.limit_in_bytes", "9")
    judge(hybrid.find("swap-limit"), "ok", "no swap unless asked")


def test_nsdelegate(host: Any, hybrid: Any, judge: Judge) -> None:
    judge(hybrid.find("nsdelegate"), "skip", "v2 alone")


def test_nsdelegate_on_v2(host: Any, judge: Judge) -> None:
    judge(host.find("nsdelegate"), "warn", "lift", "remount,nsdelegate")

    host.edit("proc/self/mountinfo", "cgroup2 cgroup2 rw", "cgroup2 cgroup2 rw,nsdelegate")
    judge(host.find("nsdelegate"), "ok", "cannot lift")


def test_a_sandbox_around_us_is_named(host: Any, judge: Judge) -> None:
    judge(host.find("nested"), "ok", "not inside")

    host.write("proc/self/cgroup", "0::/run-0123456789ab/main")
    for group in ("run-0123456789ab", "run-0123456789ab/main"):
        host.write(f"sys/fs/cgroup/{group}/cgroup.procs", "")
        host.write(f"sys/fs/cgroup/{group}/cgroup.events", "populated 1")
        host.write(f"sys/fs/cgroup/{group}/cgroup.controllers", "cpu memory pids")
        host.write(f"sys/fs/cgroup/{group}/cgroup.subtree_control", "cpu memory pids")
    judge(host.find("nested"), "ok", "inside run-0123456789ab")


def test_limits_of_groups_around_are_told(host: Any, judge: Judge) -> None:
    judge(host.find("outer-limits"), "ok", "no group around")

    facts = host.facts()
    outer = OuterLimits(
        cpus=0.5,
        cpuset_cpus=(1,),
        memory_bytes=1 << 30,
        swap_bytes=0,
        memory_swap_bytes=2 << 30,
        pids=99,
    )
    facts = replace(facts, place=replace(facts.place, outer=outer))
    judge(
        host.find("outer-limits", facts),
        "warn",
        "0.5 CPUs, CPU 1, 1 GiB of memory, 2 GiB of memory",
    )
    assert "99 processes" in host.find("outer-limits", facts).why
    assert "of swap" not in host.find("outer-limits", facts).why


# --- under systemd


def log_in_as_alice(host: Any, controllers: str) -> str:
    """Put us into a login session: a scope that systemd has not handed over."""
    host.become(1000)
    host.boot_systemd()
    host.log_in(owner=1000, controllers=controllers)
    session = "user.slice/user-1000.slice/session-7.scope"
    host.write("proc/self/cgroup", f"0::/{session}")
    group = f"sys/fs/cgroup/{session}"
    for file, text in (
        ("cgroup.procs", "7"),
        ("cgroup.events", "populated 1"),
        ("cgroup.controllers", "cpu memory pids"),
        ("cgroup.subtree_control", ""),
        ("memory.peak", "0"),
        ("memory.swap.max", "max"),
        ("cgroup.kill", ""),
    ):
        host.write(f"{group}/{file}", text)
    return group


@pytest.fixture
def _of_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let groups belong to nobody that we are, as a session's scope does."""
    from sandbox.kernel import place

    monkeypatch.setattr(place, "_is_delegated", lambda _unit: False)


@pytest.mark.usefixtures("_of_root")
def test_a_login_session_asks_for_a_scope(host: Any, judge: Judge) -> None:
    log_in_as_alice(host, "cpu memory pids")

    judge(host.find("mode"), "ok", "groups in a scope from systemd's user manager")
    for name in CORE:
        judge(host.find(name), "ok", "enforced by the kernel")
    judge(host.find("io"), "warn", "not given the io controller to hand on", "Delegate=cpu cpuset")
    judge(host.find("cpuset"), "warn", "becomes an affinity", "Delegate=cpu cpuset")
    assert diagnose(host.facts(), ("cgroup",)).is_usable


@pytest.mark.usefixtures("_of_root")
def test_our_own_group_shows_what_a_scope_will_have(host: Any, judge: Judge) -> None:
    group = log_in_as_alice(host, "cpu memory pids")
    judge(host.find("memory-peak"), "ok", "memory.peak")
    judge(host.find("cgroup-kill"), "ok", "at once")

    host.remove(f"{group}/memory.peak")
    host.remove(f"{group}/cgroup.kill")
    judge(host.find("memory-peak"), "warn", "5.19")
    judge(host.find("cgroup-kill"), "warn", "5.14")


@pytest.mark.usefixtures("_of_root")
def test_a_systemd_that_hands_on_no_cpu_fails_with_the_drop_in(host: Any, judge: Judge) -> None:
    log_in_as_alice(host, "memory pids")

    judge(host.find("cpu"), "fail", "not given the cpu controller", "50-sandbox-delegate.conf")
    assert not diagnose(host.facts()).is_usable
