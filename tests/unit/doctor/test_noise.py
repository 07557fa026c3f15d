"""What the doctor says of settings and load."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Judge = Callable[..., None]
CPU = "sys/devices/system/cpu"


def test_governors(host: Any, judge: Judge) -> None:
    judge(host.find("governor"), "skip", "does not tell")

    host.write(f"{CPU}/cpu0/cpufreq/scaling_governor", "performance")
    judge(host.find("governor"), "ok", "performance")

    host.write(f"{CPU}/cpu1/cpufreq/scaling_governor", "schedutil")
    judge(host.find("governor"), "warn", "performance, schedutil", "echo performance | sudo tee")


@pytest.mark.parametrize(
    ("file", "on", "off"), [("intel_pstate/no_turbo", "0", "1"), ("cpufreq/boost", "1", "0")]
)
def test_turbo_by_either_file(host: Any, judge: Judge, file: str, on: str, off: str) -> None:
    judge(host.find("turbo"), "skip", "does not tell")

    host.write(f"{CPU}/{file}", on)
    judge(host.find("turbo"), "warn", "on", f"echo {off} | sudo tee {host.base}/{CPU}/{file}")

    host.write(f"{CPU}/{file}", off)
    judge(host.find("turbo"), "ok", "off")


def test_smt(host: Any, judge: Judge) -> None:
    judge(host.find("smt"), "skip", "does not tell")

    host.write(f"{CPU}/smt/active", "1")
    judge(host.find("smt"), "warn", "share a core", "smt/control")

    host.write(f"{CPU}/smt/active", "0")
    judge(host.find("smt"), "ok", "core of its own")


def test_swap(host: Any, judge: Judge) -> None:
    judge(host.find("swap"), "ok", "none")

    host.edit("proc/meminfo", "SwapTotal:             0 kB", "SwapTotal:       2097152 kB")
    host.edit("proc/meminfo", "SwapFree:              0 kB", "SwapFree:        2097152 kB")
    judge(host.find("swap"), "ok", "2 GiB, not in use")

    host.edit("proc/meminfo", "SwapFree:        2097152 kB", "SwapFree:        1048576 kB")
    judge(host.find("swap"), "warn", "1 GiB in use", "sudo swapoff -a && sudo swapon -a")


def test_load(host: Any, judge: Judge) -> None:
    host.write("proc/loadavg", "0.49 0.10 0.05 1/90 300")
    judge(host.find("load"), "ok", "0.49 tasks on 2 CPUs")

    host.write("proc/loadavg", "0.51 0.10 0.05 1/90 300")
    judge(host.find("load"), "warn", "others take CPU time", "ps -eo")


def test_steal(host: Any, judge: Judge) -> None:
    judge(host.find("steal"), "ok", "0.0%")

    host.write("proc/stat", "cpu  900 0 0 9000 0 0 0 100 0 0\ncpu0 900 0 0 9000 0 0 0 100 0 0")
    judge(host.find("steal"), "ok", "1.0%")

    host.write("proc/stat", "cpu  900 0 0 9000 0 0 0 500 0 0\ncpu0 900 0 0 9000 0 0 0 500 0 0")
    judge(host.find("steal"), "warn", "4.8%")

    host.write("proc/stat", "cpu  900 0 0 9000 0 0 0\ncpu0 900 0 0 9000 0 0 0")
    judge(host.find("steal"), "skip", "does not tell")


@pytest.mark.parametrize(
    ("text", "state"),
    [("[always] madvise never", "warn"), ("always [madvise] never", "ok"), ("[never]", "ok")],
)
def test_huge_pages(host: Any, judge: Judge, text: str, state: str) -> None:
    judge(host.find("huge-pages"), "skip", "no transparent")

    host.write("sys/kernel/mm/transparent_hugepage/enabled", text)

    fix = "echo madvise" if state == "warn" else None
    judge(host.find("huge-pages"), state, "2 MiB" if state == "warn" else "ask", fix)


def test_addresses(host: Any, judge: Judge) -> None:
    judge(host.find("addresses"), "skip", "does not tell")

    host.write("proc/sys/kernel/randomize_va_space", "2")
    judge(host.find("addresses"), "ok", "random")

    host.write("proc/sys/kernel/randomize_va_space", "0")
    judge(host.find("addresses"), "warn", "same layout", "randomize_va_space=2")


def test_temperature(host: Any, judge: Judge) -> None:
    judge(host.find("thermal"), "skip", "does not count")

    host.write(f"{CPU}/cpu0/thermal_throttle/core_throttle_count", "0")
    judge(host.find("thermal"), "ok", "no CPU was slowed")

    host.write(f"{CPU}/cpu1/thermal_throttle/core_throttle_count", "17")
    judge(host.find("thermal"), "warn", "17 times")


def test_a_host_that_tells_nothing_is_not_judged(host: Any, judge: Judge) -> None:
    host.remove("proc/loadavg")

    judge(host.find("load"), "skip", "does not tell")
