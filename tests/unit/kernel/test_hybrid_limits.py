"""Limits in v1's files: what was written, and what is said of what could not be."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from sandbox.kernel.hybrid_limits import LimitFiles, apply_limits
from sandbox.kernel.outer import OuterLimits
from sandbox.records.limits import LimitReport, LimitState
from sandbox.spec import Limits
from sandbox.units import UNLIMITED

MIB = 1 << 20
EMPTY_FILES = {
    "cpu": ("cpu.cfs_quota_us", "cpu.shares"),
    "memory": (
        "memory.limit_in_bytes",
        "memory.memsw.limit_in_bytes",
        "memory.soft_limit_in_bytes",
    ),
    "pids": ("pids.max",),
    "cpuset": ("cpuset.cpus",),
}


@pytest.fixture
def run(tmp_path: Path) -> dict[str, Path]:
    """The groups of a run, their files empty: a plain file keeps the rest of a longer text."""
    for controller, names in EMPTY_FILES.items():
        for group in (tmp_path / controller, tmp_path / controller / "main"):
            group.mkdir()
            for name in names:
                (group / name).touch()
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    return {controller: tmp_path / controller for controller in EMPTY_FILES}


def apply(
    run: Mapping[str, Path],
    limits: Limits,
    missing: Mapping[str, str] | None = None,
    **outer: object,
) -> dict[str, LimitReport]:
    files = LimitFiles(
        outer=run,
        inner={key: directory / "main" for key, directory in run.items()},
        missing=missing or {},
        enclosing=OuterLimits(**outer),  # type: ignore[arg-type]
    )
    return {report.name: report for report in apply_limits(files, limits)}


def test_what_was_not_asked_for_is_not_written(run: dict[str, Path]) -> None:
    assert apply(run, Limits()) == {}
    assert all((run[c] / n).read_text() == "" for c, names in EMPTY_FILES.items() for n in names)


@pytest.mark.parametrize(
    ("cpus", "quota"), [(0.01, "1000"), (0.5, "50000"), (1.234567, "123456"), (2, "200000")]
)
def test_cpus_become_a_quota_rounded_down(run: dict[str, Path], cpus: float, quota: str) -> None:
    report = apply(run, Limits(cpus=cpus))["cpus"]

    assert (report.state, report.asked) == (LimitState.ENFORCED, f"{cpus:g}")
    assert report.value == f"{quota} 100000"
    assert (run["cpu"] / "cpu.cfs_quota_us").read_text() == quota


def test_a_quota_above_the_enclosing_one_is_cut_because_v1_refuses_it(
    run: dict[str, Path],
) -> None:
    report = apply(run, Limits(cpus=2), cpus=0.75)["cpus"]

    assert (report.value, report.effective) == ("75000 100000", "0.75")
    assert "enclosing" in (report.reason or "")


def test_a_cpuset_is_filled_at_both_levels_and_cut_to_the_enclosing_one(
    run: dict[str, Path],
) -> None:
    report = apply(run, Limits(cpuset_cpus=(1, 2, 3)), cpuset_cpus=(0, 1, 2))["cpuset_cpus"]

    assert (report.state, report.asked, report.effective) == (LimitState.ENFORCED, "1-3", "1-2")
    assert (run["cpuset"] / "cpuset.cpus").read_text() == "1-2"
    assert (run["cpuset"] / "main" / "cpuset.cpus").read_text() == "1-2"


def test_a_cpuset_outside_of_the_enclosing_one_is_unavailable(run: dict[str, Path]) -> None:
    report = apply(run, Limits(cpuset_cpus=(5,)), cpuset_cpus=(0, 1))["cpuset_cpus"]

    assert report.state is LimitState.UNAVAILABLE
    assert "0-1" in (report.reason or "")
    assert (run["cpuset"] / "cpuset.cpus").read_text() == ""


def test_memory_and_swap_are_two_limits_and_no_swap_makes_them_equal(
    run: dict[str, Path],
) -> None:
    reports = apply(run, Limits(memory_bytes=64 * MIB).with_defaults())

    assert [(name, r.value) for name, r in reports.items() if name.startswith("memory")] == [
        ("memory", str(64 * MIB)),
        ("memory_swap", str(64 * MIB)),
    ]


def test_swap_without_end_is_written_as_such(run: dict[str, Path]) -> None:
    limits = Limits(memory_bytes=64 * MIB, memory_swap_bytes=UNLIMITED)
    report = apply(run, limits)["memory_swap"]

    assert (report.asked, report.value) == ("unlimited", "max")
    assert (run["memory"] / "memory.memsw.limit_in_bytes").read_text() == "-1"


def test_a_kernel_that_does_not_account_swap_limits_memory_all_the_same(
    run: dict[str, Path],
) -> None:
    (run["memory"] / "memory.memsw.limit_in_bytes").unlink()

    reports = apply(run, Limits(memory_bytes=64 * MIB).with_defaults())

    assert reports["memory"].state is LimitState.ENFORCED
    assert reports["memory_swap"].state is LimitState.UNAVAILABLE
    assert "swapaccount=1" in (reports["memory_swap"].reason or "")


def test_tighter_limits_around_the_run_are_the_effective_ones(run: dict[str, Path]) -> None:
    reports = apply(
        run,
        Limits(memory_bytes=64 * MIB, pids=100).with_defaults(),
        memory_bytes=32 * MIB,
        memory_swap_bytes=48 * MIB,
        pids=10,
    )

    assert {name: report.effective for name, report in reports.items()} == {
        "memory": "32 MiB",
        "memory_swap": "48 MiB",
        "pids": "10",
    }
    wider = apply(run, Limits(pids=10), pids=100)["pids"]
    assert wider.effective is None


def test_unlimited_processes_are_asked_for_by_name(run: dict[str, Path]) -> None:
    report = apply(run, Limits(pids=UNLIMITED))["pids"]

    assert (report.asked, report.value) == ("unlimited", "max")


def test_a_reservation_is_the_soft_limit_and_a_high_mark_is_unavailable(
    run: dict[str, Path],
) -> None:
    reports = apply(
        run, Limits(memory_reservation_bytes=32 * MIB, memory_high_bytes=48 * MIB, cpu_shares=512)
    )

    assert reports["memory_reservation"].file == "memory.soft_limit_in_bytes"
    assert reports["memory_high"].state is LimitState.UNAVAILABLE
    assert reports["cpu_shares"].value == "512"


def test_every_limit_of_a_missing_controller_carries_its_reason() -> None:
    limits = Limits(cpus=1, cpuset_cpus=(0,), cpu_shares=8, memory_bytes=64 * MIB, pids=5)
    why = {name: f"the {name} controller is away" for name in ("cpu", "cpuset", "memory", "pids")}

    reports = apply({}, limits.with_defaults(), missing=why)

    assert {(r.state, r.value) for r in reports.values()} == {(LimitState.UNAVAILABLE, None)}
    assert [(name, report.reason) for name, report in reports.items()] == [
        ("cpuset_cpus", why["cpuset"]),
        ("cpus", why["cpu"]),
        ("cpu_shares", why["cpu"]),
        ("memory", why["memory"]),
        ("memory_swap", why["memory"]),
        ("pids", why["pids"]),
    ]


def test_a_file_that_the_kernel_lacks_is_a_reason_and_no_crash(tmp_path: Path) -> None:
    reports = apply({"cpu": tmp_path, "pids": tmp_path}, Limits(cpus=1, cpu_shares=8, pids=5))

    assert "bandwidth" in (reports["cpus"].reason or "")
    assert reports["cpu_shares"].reason == "this kernel has no cpu.shares"
    assert reports["pids"].reason == "this kernel has no pids.max"
    assert list(tmp_path.iterdir()) == []
