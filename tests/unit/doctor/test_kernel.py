"""What the doctor says of kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sandbox.kernel.features import parse_release
from sandbox.records.light import replace

Judge = Callable[..., None]


def kernel(host: Any, **calls: Any) -> None:
    host.calls = replace(host.calls, **calls)


def inside_a_group(host: Any) -> str:
    """Put us into a group that is not the root, with the captured group's files."""
    host.write("proc/self/cgroup", "0::/capture")
    host.remove("sys/fs/cgroup/capture/cgroup.procs")
    host.write("sys/fs/cgroup/capture/cgroup.procs", "")
    host.write("sys/fs/cgroup/capture/cgroup.subtree_control", "cpu memory pids")
    return "sys/fs/cgroup/capture"


def test_a_new_kernel_is_fine(host: Any, judge: Judge) -> None:
    judge(host.find("version"), "ok", "Linux 6.12.9-amd64")


def test_an_old_kernel_is_told_what_newer_ones_do(host: Any, judge: Judge) -> None:
    kernel(host, release="5.10.0-30-amd64")

    judge(host.find("version"), "warn", "5.14")


def test_a_kernel_without_a_number_is_not_judged(host: Any, judge: Judge) -> None:
    kernel(host, release="unknown")

    judge(host.find("version"), "skip", "says no version")


def test_releases_are_ordered_by_two_numbers() -> None:
    assert parse_release("6.1.0-13-amd64") == (6, 1)
    assert parse_release("5.15.167.4-microsoft-standard-WSL2") == (5, 15)
    assert parse_release("6.18") == (6, 18)
    assert parse_release("custom") is None


def test_the_memory_peak_is_exact_where_groups_have_it(host: Any, judge: Judge) -> None:
    judge(host.find("memory-peak"), "ok", "memory.peak")

    inside_a_group(host)

    judge(host.find("memory-peak"), "ok", "memory.peak")


def test_the_group_itself_tells_rather_than_the_version(host: Any, judge: Judge) -> None:
    group = inside_a_group(host)
    host.remove(f"{group}/memory.peak")

    judge(host.find("memory-peak"), "warn", "sampled: memory.peak needs Linux 5.19")


def test_in_the_root_group_the_version_tells_of_the_peak(host: Any, judge: Judge) -> None:
    kernel(host, release="5.15.0")

    judge(host.find("memory-peak"), "warn", "5.19")


def test_v1_keeps_the_peak_on_every_kernel(hybrid: Any, judge: Judge) -> None:
    kernel(hybrid, release="4.18.0")

    judge(hybrid.find("memory-peak"), "ok", "max_usage")
    judge(hybrid.find("memory-peak-reset"), "ok", "started anew")


def test_without_a_group_the_peak_is_sampled(host: Any, judge: Judge) -> None:
    host.shut()

    judge(host.find("memory-peak"), "skip", "sampled")
    judge(host.find("memory-peak-reset"), "skip", "sampled")


def test_phases_have_exact_peaks_from_6_12_on(host: Any, judge: Judge) -> None:
    judge(host.find("memory-peak-reset"), "ok", "memory.peak can be started anew")

    kernel(host, release="6.11.0")

    judge(host.find("memory-peak-reset"), "warn", "Linux 6.12")


def test_a_run_dies_at_once_where_the_kernel_can(host: Any, judge: Judge) -> None:
    judge(host.find("cgroup-kill"), "ok", "at once")

    group = inside_a_group(host)
    judge(host.find("cgroup-kill"), "ok", "at once")
    host.remove(f"{group}/cgroup.kill")

    judge(host.find("cgroup-kill"), "warn", "5.14")


def test_in_the_root_group_the_version_tells_of_killing(host: Any, judge: Judge) -> None:
    kernel(host, release="5.13.19")

    judge(host.find("cgroup-kill"), "warn", "one by one")


def test_without_a_group_a_keeper_kills(host: Any, judge: Judge) -> None:
    host.shut()

    judge(host.find("cgroup-kill"), "skip", "keeper")
    judge(host.find("birth"), "skip", "no group")


def test_pressure_is_there_or_switched_on_at_boot(host: Any, judge: Judge) -> None:
    judge(host.find("pressure"), "warn", "psi=1")

    host.write("etc/default/grub", "GRUB_TIMEOUT=1")
    judge(host.find("pressure"), "warn", "psi=1", "update-grub")

    host.write("usr/sbin/grubby", "")
    judge(host.find("pressure"), "warn", "psi=1", "grubby --update-kernel=ALL --args=psi=1")

    host.write("proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0")
    judge(host.find("pressure"), "ok", "waiting")


def test_programs_are_born_in_their_group_unless_a_filter_forbids(host: Any, judge: Judge) -> None:
    judge(host.find("birth"), "ok", "clone3")

    kernel(host, clone3=False)
    judge(host.find("birth"), "warn", "this kernel")

    host.write(".dockerenv", "")
    judge(host.find("birth"), "warn", "a filter of this docker container")


def test_clone3_without_groups_is_not_enough(host: Any, judge: Judge) -> None:
    kernel(host, release="5.4.0")

    judge(host.find("birth"), "warn", "clone3 for groups")


def test_descriptors_of_processes(host: Any, judge: Judge) -> None:
    judge(host.find("pidfd"), "ok", "descriptors")

    kernel(host, pidfd=False)

    judge(host.find("pidfd"), "warn", "5.3")


def test_user_namespaces_and_their_three_switches(host: Any, judge: Judge) -> None:
    judge(host.find("user-namespaces"), "warn", "has no user namespaces")

    host.write("proc/sys/user/max_user_namespaces", "15000")
    judge(host.find("user-namespaces"), "ok", "root")
    host.become(1000)
    judge(host.find("user-namespaces"), "ok", "plain users")

    host.write("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1")
    judge(
        host.find("user-namespaces"),
        "warn",
        "apparmor",
        "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    )
    host.write("proc/sys/kernel/unprivileged_userns_clone", "0")
    judge(host.find("user-namespaces"), "warn", "clone", "unprivileged_userns_clone=1")

    host.write("proc/sys/user/max_user_namespaces", "0")
    judge(host.find("user-namespaces"), "warn", "off", "user.max_user_namespaces=")


def test_switches_that_are_open_refuse_nobody(host: Any, judge: Judge) -> None:
    host.become(1000)
    host.write("proc/sys/user/max_user_namespaces", "15000")
    host.write("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "0")
    host.write("proc/sys/kernel/unprivileged_userns_clone", "1")

    judge(host.find("user-namespaces"), "ok", "plain users")


def test_landlock_is_there_too_old_or_switched_off(host: Any, judge: Judge) -> None:
    judge(host.find("landlock"), "ok", "version 6")

    kernel(host, landlock_abi=0)
    judge(host.find("landlock"), "warn", "needs Linux 5.13")

    host.write("sys/kernel/security/lsm", "capability,lockdown,yama,apparmor")
    host.write("etc/default/grub", "")
    judge(host.find("landlock"), "warn", "off", "lsm=landlock,lockdown,yama,apparmor")

    kernel(host, release="5.10.0")
    judge(host.find("landlock"), "warn", "needs Linux 5.13")


def test_overlay_is_there_can_be_loaded_or_lacks(host: Any, judge: Judge) -> None:
    judge(host.find("overlay"), "warn", "no overlay")

    host.write("lib/modules/6.12.9-amd64/kernel/fs/overlayfs/overlay.ko.xz", "")
    judge(host.find("overlay"), "warn", "not loaded", "sudo modprobe overlay")

    host.write("proc/filesystems", "nodev\tsysfs\n\text4\nnodev\toverlay")
    judge(host.find("overlay"), "ok", "stacked")


def test_seccomp_is_free_used_already_or_lacks(host: Any, judge: Judge) -> None:
    judge(host.find("seccomp"), "ok", "can be filtered")

    host.edit("proc/self/status", "Seccomp:\t0", "Seccomp:\t2")
    judge(host.find("seccomp"), "ok", "already")

    host.edit("proc/self/status", "Seccomp:\t2\n", "")
    judge(host.find("seccomp"), "warn", "cannot filter")


@pytest.mark.parametrize("readable", [True, False])
def test_energy_counters(host: Any, judge: Judge, monkeypatch: Any, *, readable: bool) -> None:
    judge(host.find("energy"), "skip", "no powercap")

    zone = "sys/class/powercap/intel-rapl:0"
    for name, text in (("name", "package-0"), ("max_energy_range_uj", "262143328850")):
        host.write(f"{zone}/{name}", text)
    counter = host.write(f"{zone}/energy_uj", "77")
    if readable:
        judge(host.find("energy"), "ok", "package-0")
        return
    _refuse_to_open(monkeypatch, counter)
    judge(host.find("energy"), "warn", "only root", "sudo chmod a+r /sys/class/powercap")


def _refuse_to_open(monkeypatch: Any, path: Any) -> None:
    """Root may open everything, so the refusal is made."""
    import os

    really = os.open

    def refuse(file: Any, *arguments: Any, **more: Any) -> int:
        if os.fspath(file) == os.fspath(path):
            raise PermissionError(13, "Permission denied", str(file))
        return really(file, *arguments, **more)

    monkeypatch.setattr(os, "open", refuse)
