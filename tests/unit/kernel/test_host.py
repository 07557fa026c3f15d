"""The machine, from captured files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sandbox.errors import HostError, KernelError
from sandbox.kernel.check import check
from sandbox.kernel.host import read_host, read_load
from sandbox.kernel.outer import OuterLimits
from sandbox.kernel.place import Place
from sandbox.kernel.roots import Roots
from sandbox.records.host import Host, Mode
from sandbox.spec import Limits
from sandbox.units import UNLIMITED

FIXTURES = Path(__file__).parents[2] / "fixtures" / "kernel"
GIB = 1 << 30


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    """The captured v2 machine: two CPUs, 4 GiB, no swap."""
    shutil.copytree(FIXTURES / "v2" / "proc", tmp_path / "proc")
    (tmp_path / "sys/devices/system/cpu").mkdir(parents=True)
    (tmp_path / "sys/devices/system/cpu/online").write_text("0-1\n")
    return Roots(proc=tmp_path / "proc", sys=tmp_path / "sys", cgroup=tmp_path / "cgroup")


def place(cpuset: tuple[int, ...] | None = None) -> Place:
    outer = OuterLimits(cpuset_cpus=cpuset)
    return Place(mode=Mode.UNIFIED, reason="why", controllers=("cpu",), outer=outer)


def test_the_host_is_what_its_files_say(roots: Roots) -> None:
    host = read_host(roots, place())

    assert (host.mode, host.mode_reason, host.controllers) == (Mode.UNIFIED, "why", ("cpu",))
    assert host.cpus_online == host.cpus_allowed == (0, 1)
    assert host.memory_total_bytes == 4_007_132 * 1024
    assert host.swap_total_bytes == 0
    assert host.cpu_model == "QEMU TCG CPU version 2.5+"


def test_cpus_are_those_of_affinity_and_of_the_groups_around(roots: Roots) -> None:
    assert read_host(roots, place((1, 5))).cpus_allowed == (1,)

    status = roots.proc / "self" / "status"
    status.write_text(
        status.read_text().replace("Cpus_allowed_list:\t0-1", "Cpus_allowed_list:\t0")
    )

    assert read_host(roots, place()).cpus_allowed == (0,)


def test_without_sys_the_cpus_are_counted_in_proc(roots: Roots) -> None:
    (roots.sys / "devices/system/cpu/online").unlink()

    assert read_host(roots, place()).cpus_online == (0, 1)


def test_of_a_large_host_only_the_head_of_cpuinfo_is_read(roots: Roots) -> None:
    text = (roots.proc / "cpuinfo").read_text()
    (roots.proc / "cpuinfo").write_text(text * 256)

    assert read_host(roots, place()).cpu_model == "QEMU TCG CPU version 2.5+"


def test_a_host_whose_cpu_has_no_name_is_no_error(roots: Roots) -> None:
    (roots.proc / "cpuinfo").unlink()

    assert read_host(roots, place()).cpu_model is None


def test_without_proc_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match="meminfo") as caught:
        read_host(Roots(proc=tmp_path), place())

    assert caught.value.hint == "is /proc mounted?"


def test_load_is_cpu_time_in_microseconds_and_what_else_went_on(roots: Roots) -> None:
    ticks = [int(word) for word in (roots.proc / "stat").read_text().split()[1:9]]
    throttle = roots.sys / "devices/system/cpu/cpu0/thermal_throttle"
    throttle.mkdir(parents=True)
    (throttle / "core_throttle_count").write_text("7\n")

    load = read_load(roots)

    assert load.total_usec == sum(ticks) * 10_000
    assert load.idle_usec == (ticks[3] + ticks[4]) * 10_000
    assert load.steal_usec == ticks[7] * 10_000
    assert load.swap_in_pages == load.swap_out_pages == load.oom_kills == 0
    assert load.thermal_throttles == 7
    assert load.load_average == float((roots.proc / "loadavg").read_text().split()[0])


def test_what_the_host_does_not_tell_is_none(tmp_path: Path) -> None:
    load = read_load(Roots(proc=tmp_path, sys=tmp_path))

    assert load.time_ns > 0
    assert load.total_usec is load.steal_usec is load.swap_in_pages is load.oom_kills is None
    assert load.thermal_throttles is load.load_average is None


# --- check


def host(allowed: tuple[int, ...] = (0, 1), swap: int = 0) -> Host:
    return Host(
        mode=Mode.UNIFIED,
        mode_reason="",
        cpus_online=(0, 1, 2, 3),
        cpus_allowed=allowed,
        memory_total_bytes=4 * GIB,
        swap_total_bytes=swap,
        kernel="6.1",
        machine="x86_64",
    )


@pytest.mark.parametrize("limits", [Limits(), Limits(cpus=2, cpuset_cpus=(0, 1))])
def test_what_the_host_can_give_is_accepted(limits: Limits) -> None:
    assert check(limits.with_defaults(), host()) == ()


def test_more_cpus_than_may_be_used_are_refused_with_the_number() -> None:
    with pytest.raises(
        HostError, match=r"2\.5 CPUs .* of this host's 4 CPUs only 2 \(0-1\)"
    ) as caught:
        check(Limits(cpus=2.5), host())

    assert caught.value.hint == "ask for at most 2, as in `--cpus 2`"


def test_more_cpus_than_there_are_are_refused() -> None:
    with pytest.raises(HostError, match=r"this host has 4 \(0-3\)"):
        check(Limits(cpus=5), host((0, 1, 2, 3)))


def test_cpus_that_are_not_ours_are_refused_by_name() -> None:
    with pytest.raises(HostError, match=r"CPU 2-3,9 was asked for") as caught:
        check(Limits(cpuset_cpus=(0, 2, 3, 9)), host())

    assert caught.value.hint == "choose among them, as in `--cpuset-cpus 0-1`"


def test_memory_above_the_hosts_is_allowed_with_a_warning() -> None:
    (warning,) = check(Limits(memory_bytes=8 * GIB).with_defaults(), host())

    assert warning.code == "memory_above_host"
    assert "8 GiB is above the host's 4 GiB" in warning.text


def test_swap_that_is_not_there_is_allowed_with_a_warning() -> None:
    limits = Limits(memory_bytes=GIB, memory_swap_bytes=2 * GIB)

    assert [warning.code for warning in check(limits, host())] == ["no_swap_on_host"]
    assert check(limits, host(swap=GIB)) == ()


def test_no_limit_by_name_needs_no_warning() -> None:
    limits = Limits(memory_bytes=UNLIMITED, memory_swap_bytes=UNLIMITED, pids=UNLIMITED)

    assert check(limits.with_defaults(), host()) == ()


def test_a_quota_that_the_cpuset_cannot_give_is_told() -> None:
    (warning,) = check(Limits(cpus=2, cpuset_cpus=(1,)), host())

    assert warning.code == "cpus_above_cpuset"
