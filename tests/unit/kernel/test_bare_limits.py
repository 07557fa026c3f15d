"""Limits without a group: what a program is given instead, and what is said of it."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.kernel.bare_limits import Adaptation, adapt, count_tasks, data_limit_bytes
from sandbox.kernel.processes import parse_process_stat
from sandbox.records.limits import LimitState
from sandbox.records.program import Program
from sandbox.spec import Limits
from sandbox.units import UNLIMITED

MIB = 1 << 20
INFINITY = resource.RLIM_INFINITY
FOUR = {0, 1, 2, 5}


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain user who may use four CPUs."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: FOUR)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """Two processes of our user with three threads together, and what is no process."""
    stat = "{} (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 {} 0 9 0 0 0 0\n"
    for pid, threads in ((7, 1), (8, 2)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(stat.format(pid, threads))
        assert parse_process_stat((tmp_path / str(pid) / "stat").read_bytes()).threads == threads
    (tmp_path / "9").mkdir()
    (tmp_path / "sys").mkdir()
    return tmp_path


@given(
    cpus=st.floats(0.01, 8),
    cpuset=st.none() | st.sets(st.sampled_from(sorted(FOUR)), min_size=1).map(sorted).map(tuple),
    run_id=st.text(max_size=12),
)
def test_the_program_is_bound_to_as_many_whole_cpus_as_it_needs(
    cpus: float, cpuset: tuple[int, ...] | None, run_id: str
) -> None:
    adaptation, _ = adapt(Limits(cpus=cpus, cpuset_cpus=cpuset), run_id, Path("/nowhere-needed"))

    allowed = cpuset or tuple(sorted(FOUR))
    chosen = adaptation.cpus_allowed
    assert chosen is not None
    assert set(chosen) <= set(allowed)
    assert list(chosen) == sorted(set(chosen))
    assert len(chosen) >= min(cpus, len(allowed))
    assert len(chosen) < cpus + 1


def test_runs_side_by_side_spread_over_the_cpus(proc: Path) -> None:
    chosen = {adapt(Limits(cpus=1), f"run{n}", proc)[0].cpus_allowed for n in range(40)}

    assert chosen == {(cpu,) for cpu in FOUR}


def test_pids_allow_for_what_the_user_already_runs(proc: Path) -> None:
    adaptation, (report,) = adapt(Limits(pids=100), "id", proc)

    assert count_tasks(os.getuid(), proc) == 3
    assert adaptation.rlimits == ((resource.RLIMIT_NPROC, 103),)
    assert report.state is LimitState.APPROXIMATED
    assert "3 that ran before" in (report.reason or "")


def test_pids_are_unavailable_for_root(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    adaptation, (report,) = adapt(Limits(pids=100), "id", proc)

    assert adaptation.rlimits == ()
    assert report.state is LimitState.UNAVAILABLE
    assert report.reason == "RLIMIT_NPROC does not hold for root"


@given(st.integers(6 * MIB, 1 << 50))
def test_what_may_be_reserved_is_well_above_what_may_be_used(memory_bytes: int) -> None:
    assert data_limit_bytes(memory_bytes) >= 2 * memory_bytes
    assert data_limit_bytes(memory_bytes) - memory_bytes >= 256 * MIB


def test_each_limit_that_was_asked_for_is_answered_with_a_reason(proc: Path) -> None:
    limits = Limits(
        cpus=1.5,
        cpuset_cpus=(1, 2),
        cpu_shares=512,
        memory_bytes=64 * MIB,
        memory_reservation_bytes=32 * MIB,
        memory_high_bytes=48 * MIB,
    ).with_defaults()

    _, reports = adapt(limits, "id", proc)

    near = {"cpus", "cpuset_cpus", "memory", "pids"}
    assert {report.name for report in reports} == near | {
        "cpu_shares",
        "memory_swap",
        "memory_reservation",
        "memory_high",
    }
    for report in reports:
        expected = LimitState.APPROXIMATED if report.name in near else LimitState.UNAVAILABLE
        assert (report.state, bool(report.reason)) == (expected, True)


def test_no_limit_by_name_is_kept_without_doing_anything(proc: Path) -> None:
    adaptation, reports = adapt(Limits(memory_bytes=UNLIMITED, pids=UNLIMITED), "id", proc)

    assert adaptation == Adaptation()
    assert [report.state for report in reports] == [LimitState.ENFORCED] * 2


def test_a_tighter_rlimit_of_the_programs_own_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (INFINITY, INFINITY))
    program = Program(
        argv=("x",),
        environment={},
        rlimits=((resource.RLIMIT_NPROC, 5, INFINITY), (resource.RLIMIT_CORE, 0, 0)),
    )

    adapted = Adaptation(
        rlimits=((resource.RLIMIT_NPROC, 100), (resource.RLIMIT_DATA, 7 * MIB))
    ).apply(program)

    assert {which: pair for which, *pair in adapted.rlimits} == {
        resource.RLIMIT_NPROC: [5, 100],
        resource.RLIMIT_CORE: [0, 0],
        resource.RLIMIT_DATA: [7 * MIB, 7 * MIB],
    }


def test_a_hard_limit_that_we_have_is_never_to_be_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (10, 50))
    program = Program(argv=("x",), environment={})

    adapted = Adaptation(rlimits=((resource.RLIMIT_NPROC, 4096),)).apply(program)

    assert adapted.rlimits == ((resource.RLIMIT_NPROC, 50, 50),)
