"""What stands in for controllers that a group lacks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.errors import KernelError
from sandbox.kernel.stand_in import ProcessIo, bind, find_cpus, name_stand_ins
from sandbox.records.limits import LimitReport, LimitState
from sandbox.records.sample import ABSENT
from sandbox.spec import Limits

WHY = "systemd's user manager was not given the {} controller to hand on"
NO_CPUSET = {"cpuset": WHY.format("cpuset")}
NO_CPU = {"cpu": WHY.format("cpu")}
ALLOWED = tuple(sorted(os.sched_getaffinity(0)))


def unavailable(name: str, reason: str) -> LimitReport:
    return LimitReport(name=name, asked="1", state=LimitState.UNAVAILABLE, reason=reason)


# --- affinity


def test_a_cpuset_that_no_group_holds_is_held_by_affinity() -> None:
    limits = Limits(cpuset_cpus=ALLOWED[:1], cpus=0.5)

    assert find_cpus(limits, "run-1", NO_CPUSET) == ALLOWED[:1]


def test_a_quota_that_no_group_holds_is_rounded_up_to_whole_cpus() -> None:
    limits = Limits(cpus=0.5)

    cpus = find_cpus(limits, "run-1", NO_CPU)

    assert cpus is not None
    assert len(cpus) == 1
    assert set(cpus) <= set(ALLOWED)


def test_without_both_the_quota_is_within_the_cpuset() -> None:
    limits = Limits(cpus=1, cpuset_cpus=ALLOWED)

    cpus = find_cpus(limits, "run-1", NO_CPU | NO_CPUSET)

    assert cpus is not None
    assert len(cpus) == 1


@pytest.mark.parametrize(
    ("limits", "missing"),
    [
        (Limits(cpus=1, cpuset_cpus=ALLOWED), {}),
        (Limits(cpus=1), NO_CPUSET),
        (Limits(cpuset_cpus=ALLOWED), NO_CPU),
        (Limits(memory_bytes=1 << 30), NO_CPU | NO_CPUSET),
        (Limits(cpus=1, cpuset_cpus=ALLOWED), {"io": "nobody offers it"}),
    ],
)
def test_what_the_group_holds_or_nobody_asked_for_needs_no_affinity(
    limits: Limits, missing: dict[str, str]
) -> None:
    assert find_cpus(limits, "run-1", missing) is None


def test_the_report_names_the_stand_in_and_why_it_is_one() -> None:
    limits = Limits(cpuset_cpus=ALLOWED[:1], memory_bytes=1 << 30)
    memory = unavailable("memory", "another matter")
    reports = [unavailable("cpuset_cpus", NO_CPUSET["cpuset"]), memory]

    cpuset, other = name_stand_ins(reports, limits, ALLOWED[:1])

    assert cpuset.state is LimitState.APPROXIMATED
    assert cpuset.file == "sched_setaffinity"
    assert cpuset.value == str(ALLOWED[0])
    assert cpuset.reason == (f"by affinity, which the program can lift; {NO_CPUSET['cpuset']}")
    assert other is memory


def test_a_limit_that_is_held_keeps_its_report() -> None:
    limits = Limits(cpus=0.5, cpuset_cpus=ALLOWED[:1])
    held = LimitReport(name="cpus", asked="0.5", state=LimitState.ENFORCED, file="cpu.max")
    reports = [held, unavailable("cpuset_cpus", "why")]

    assert name_stand_ins(reports, limits, ALLOWED[:1])[0] is held
    assert name_stand_ins(reports, limits, None) == tuple(reports)


def test_processes_that_run_already_are_bound_too() -> None:
    before = os.sched_getaffinity(0)
    try:
        bind([os.getpid(), 2**22 + 1], ALLOWED[:1], Path("/proc"))  # the last is nobody
        assert os.sched_getaffinity(0) == {ALLOWED[0]}
    finally:
        os.sched_setaffinity(0, before)


# --- I/O of processes


class FakeProcesses:
    """A /proc of processes that have read and written."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc
        self.pids: list[int] = []
        self.say("self", 0, 0)
        self.say("thread-self", 0, 0)

    def say(self, process: str, read: int, written: int) -> None:
        (self.proc / process).mkdir(exist_ok=True)
        (self.proc / process / "io").write_text(
            "rchar: 9\nwchar: 9\nsyscr: 9\nsyscw: 9\n"
            f"read_bytes: {read}\nwrite_bytes: {written}\ncancelled_write_bytes: 0\n"
        )

    def start(self, pid: int, read: int = 0, written: int = 0) -> None:
        self.say(str(pid), read, written)
        self.pids = sorted({*self.pids, pid})

    def end(self, pid: int) -> None:
        (self.proc / str(pid) / "io").unlink()
        self.pids.remove(pid)

    def count(self) -> ProcessIo:
        return ProcessIo(lambda: tuple(self.pids), self.proc)


@pytest.fixture
def processes(tmp_path: Path) -> FakeProcesses:
    return FakeProcesses(tmp_path)


def test_what_was_before_the_first_reading_does_not_count(processes: FakeProcesses) -> None:
    processes.start(17, 4096, 8192)
    processes.say("self", 1 << 30, 1 << 30)
    counted = processes.count()

    assert counted.read() == [0, 0]

    processes.start(17, 4096 + 512, 8192 + 1024)
    assert counted.read() == [512, 1024]


def test_who_ends_is_counted_in_the_parent_that_waited(processes: FakeProcesses) -> None:
    processes.start(17)
    processes.start(18)
    counted = processes.count()
    counted.read()
    processes.start(18, 512, 1024)
    assert counted.read() == [512, 1024]

    processes.end(18)
    processes.start(17, 512, 1024)

    assert counted.read() == [512, 1024]


def test_the_last_to_end_is_counted_in_us_but_not_what_we_did_ourselves(
    processes: FakeProcesses,
) -> None:
    processes.start(17)
    counted = processes.count()
    counted.read()
    processes.end(17)
    processes.say("thread-self", 0, 4096)  # a run directory's samples
    processes.say("self", 512, 1024 + 4096)

    assert counted.read() == [512, 1024]


def test_a_sum_never_falls_when_somebody_was_not_waited_for(processes: FakeProcesses) -> None:
    processes.start(17)
    processes.start(18)
    counted = processes.count()
    counted.read()
    processes.start(18, 512, 1024)
    counted.read()

    processes.end(18)

    assert counted.read() == [512, 1024]


def test_a_group_that_is_gone_is_no_zero(processes: FakeProcesses) -> None:
    def gone() -> list[int]:
        raise KernelError("no such group")

    assert ProcessIo(gone, processes.proc).read() == [ABSENT, ABSENT]


def test_many_processes_are_not_read_at_every_tick(
    processes: FakeProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = iter(range(0, 1 << 62, 1_000_000))  # every look at the clock is a millisecond later
    monkeypatch.setattr("time.monotonic_ns", lambda: next(now_ns))
    for pid in range(10, 20):
        processes.start(pid)
    counted = processes.count()
    counted.read()
    processes.start(10, 512, 512)

    readings = [counted.read()[0] for _ in range(30)]

    assert readings[0] == 0
    assert readings[-1] == 512
