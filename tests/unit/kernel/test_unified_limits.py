"""Limits to control files, with files that stand in for the kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.kernel.outer import OuterLimits
from sandbox.kernel.unified_limits import apply_limits, cpu_weight, quota_usec
from sandbox.records.limits import LimitReport, LimitState
from sandbox.spec import Limits
from sandbox.units import UNLIMITED

MIB = 1 << 20
FILES = (
    "cpu.max",
    "cpu.weight",
    "cpuset.cpus",
    "memory.max",
    "memory.swap.max",
    "memory.low",
    "memory.high",
    "pids.max",
)


@pytest.fixture
def group(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).touch()
    (tmp_path / "cpuset.cpus.effective").write_text("0-3\n")
    return tmp_path


def by_name(reports: tuple[LimitReport, ...]) -> dict[str, LimitReport]:
    return {report.name: report for report in reports}


@pytest.mark.parametrize(
    ("cpus", "quota"),
    [(2.0, 200_000), (0.5, 50_000), (0.01, 1_000), (1 / 3, 33_333), (0.29, 29_000), (1.1, 110_000)],
)
def test_cpus_become_a_quota_rounded_down(cpus: float, quota: int) -> None:
    assert quota_usec(cpus) == quota


@given(st.floats(0.01, 8_192))
def test_a_quota_is_never_above_and_never_a_microsecond_below_what_was_asked(cpus: float) -> None:
    assert -1 <= quota_usec(cpus) - cpus * 100_000 <= 0.001


@pytest.mark.parametrize(
    ("shares", "weight"),
    [(2, 1), (128, 21), (512, 59), (1_024, 100), (2_048, 174), (262_144, 10_000)],
)
def test_shares_become_a_weight_as_dockers_runtime_does(shares: int, weight: int) -> None:
    assert cpu_weight(shares) == weight


@given(st.integers(2, 262_143))
def test_more_shares_are_never_a_smaller_weight(shares: int) -> None:
    assert 1 <= cpu_weight(shares) <= cpu_weight(shares + 1) <= 10_000


def test_each_limit_is_written_and_reported(group: Path) -> None:
    limits = Limits(
        cpus=1.5,
        cpuset_cpus=(0, 1, 2, 3),
        cpu_shares=512,
        memory_bytes=512 * MIB,
        memory_swap_bytes=768 * MIB,
        memory_reservation_bytes=128 * MIB,
        memory_high_bytes=256 * MIB,
        pids=100,
    )

    reports = apply_limits(group, limits, OuterLimits(), {})

    assert {name: (group / name).read_text() for name in FILES} == {
        "cpu.max": "150000 100000",
        "cpu.weight": "59",
        "cpuset.cpus": "0-3",
        "memory.max": str(512 * MIB),
        "memory.swap.max": str(256 * MIB),
        "memory.low": str(128 * MIB),
        "memory.high": str(256 * MIB),
        "pids.max": "100",
    }
    assert {report.state for report in reports} == {LimitState.ENFORCED}
    assert {report.file: report.value for report in reports} == {
        name: (group / name).read_text() for name in FILES
    }
    assert {report.name: report.asked for report in reports} == {
        "cpuset_cpus": "0-3",
        "cpus": "1.5",
        "cpu_shares": "512",
        "memory_swap": "768 MiB",
        "memory_reservation": "128 MiB",
        "memory_high": "256 MiB",
        "memory": "512 MiB",
        "pids": "100",
    }
    assert {report.effective for report in reports} == {None}


def test_no_limit_by_name_is_written_as_max(group: Path) -> None:
    limits = Limits(memory_bytes=UNLIMITED, memory_swap_bytes=UNLIMITED, pids=UNLIMITED)

    reports = by_name(apply_limits(group, limits.with_defaults(), OuterLimits(), {}))

    assert (group / "memory.max").read_text() == "max"
    assert (group / "memory.swap.max").read_text() == "max"
    assert (group / "pids.max").read_text() == "max"
    assert reports["memory"].asked == reports["pids"].asked == "unlimited"


def test_what_was_not_asked_for_is_not_touched(group: Path) -> None:
    assert apply_limits(group, Limits(cpu_shares=0), OuterLimits(), {}) == ()
    assert {(group / name).read_text() for name in FILES} == {""}


def test_tighter_limits_around_are_what_holds(group: Path) -> None:
    (group / "cpuset.cpus.effective").write_text("1\n")
    outer = OuterLimits(cpus=0.25, memory_bytes=64 * MIB, swap_bytes=MIB, pids=10)
    limits = Limits(
        cpus=1,
        cpuset_cpus=(1, 2),
        memory_bytes=128 * MIB,
        memory_swap_bytes=256 * MIB,
        memory_high_bytes=32 * MIB,
        pids=20,
    )

    reports = apply_limits(group, limits, outer, {})

    assert {report.name: report.effective for report in reports} == {
        "cpus": "0.25",
        "cpuset_cpus": "1",
        "memory": "64 MiB",
        "memory_swap": "65 MiB",
        "memory_high": None,
        "pids": "10",
    }


def test_wider_limits_around_are_not_mentioned(group: Path) -> None:
    outer = OuterLimits(cpus=4, memory_bytes=1 << 40, swap_bytes=1 << 40, pids=9_999)
    limits = Limits(cpus=1, memory_bytes=64 * MIB, pids=20).with_defaults()

    assert {r.effective for r in apply_limits(group, limits, outer, {})} == {None}


def test_a_lacking_file_is_unavailable_with_its_reason(group: Path) -> None:
    (group / "memory.swap.max").unlink()
    (group / "pids.max").unlink()
    (group / "cpu.max").unlink()
    limits = Limits(cpus=1, memory_bytes=64 * MIB).with_defaults()

    reports = by_name(apply_limits(group, limits, OuterLimits(pids=1), {"cpu": "not delegated"}))

    assert reports["memory"].state is LimitState.ENFORCED
    assert reports["memory_swap"].state is LimitState.UNAVAILABLE
    assert "does not account swap" in (reports["memory_swap"].reason or "")
    assert reports["pids"].reason == "this kernel has no pids.max"
    assert reports["pids"].effective is reports["pids"].value is None
    assert reports["cpus"].reason == "not delegated"
    assert not (group / "pids.max").exists()


def test_a_refusal_is_reported_not_raised(group: Path) -> None:
    (group / "pids.max").unlink()
    (group / "pids.max").symlink_to("/dev/full")

    (report,) = apply_limits(group, Limits(pids=5), OuterLimits(), {})

    assert report.state is LimitState.UNAVAILABLE
    assert "ENOSPC" in (report.reason or "")


def test_a_value_that_the_kernel_changes_is_an_approximation(group: Path) -> None:
    (group / "pids.max").unlink()
    (group / "pids.max").symlink_to("/dev/null")  # takes everything, says nothing

    (report,) = apply_limits(group, Limits(pids=5), OuterLimits(), {})

    assert report.state is LimitState.APPROXIMATED
    assert report.reason == "`5` was written, and the kernel made it ``"
