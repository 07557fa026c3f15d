"""The order of a run, with a launcher that plays back: no group, no process, no privilege."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sandbox.engine.order import Surroundings, run
from sandbox.errors import HostError, KernelError, LaunchError, SpecError
from sandbox.kernel.backend import Backend
from sandbox.kernel.group import Alarm, Reader
from sandbox.records.host import Mode
from sandbox.records.limits import LimitReport, LimitState
from sandbox.records.program import ExitStatus, Program
from sandbox.records.result import Outcome, Totals
from sandbox.spec import Limits, RunSpec

MIB = 1 << 20


@dataclass
class FakeReader:
    """Yields a scripted curve; the last row is repeated."""

    rows: list[list[int]]
    is_open: bool = True
    fast_columns: tuple[str, ...] = ("cpu_usage_usec", "memory_current_bytes", "pids")
    slow_columns: tuple[str, ...] = ("memory_anon_bytes",)
    reads: int = 0

    def read_fast(self) -> list[int]:
        row = self.rows[min(self.reads, len(self.rows) - 1)]
        self.reads += 1
        return list(row)

    def read_slow(self) -> list[int]:
        return [self.rows[min(self.reads, len(self.rows) - 1)][1]]

    def close(self) -> None:
        self.is_open = False


@dataclass
class FakeGroup:
    """Notes what is done to it, in order."""

    log: list[str]
    reader: FakeReader
    fail_at: str = ""
    state: LimitState = LimitState.ENFORCED
    leftovers: tuple[int, ...] = ()
    mode: Mode = Mode.UNIFIED
    directories: tuple[Path, ...] = (Path("/nowhere/run-x"),)
    unavailable: Mapping[str, str] = field(default_factory=dict)

    def _note(self, step: str) -> None:
        self.log.append(step)
        if step == self.fail_at:
            raise KernelError(f"cannot {step}")

    def create(self) -> None:
        self._note("create")

    def apply(self, limits: Limits) -> tuple[LimitReport, ...]:
        self._note("apply")
        report = LimitReport(name="memory", asked="64 MiB", state=self.state, reason="a fake")
        pids = LimitReport(name="pids", asked=str(limits.pids), state=LimitState.UNAVAILABLE)
        return (report, pids)

    def entrances(self) -> tuple[Path, ...]:
        return ()

    def birth_directory(self) -> Path | None:
        return None

    def start(self) -> None:
        self._note("start")

    def open_reader(self) -> Reader:
        self._note("open_reader")
        return self.reader

    def oom_alarm(self) -> Alarm | None:
        return None

    def empty_alarm(self) -> Alarm | None:
        return None

    def oom_kills(self) -> int | None:
        return None

    def oom_events(self) -> int | None:
        return None

    def over_limit(self) -> bool:
        return False

    def is_populated(self) -> bool:
        return False

    def pids(self) -> tuple[int, ...]:
        return self.leftovers

    def signal(self, signal_number: int) -> int:
        return 0

    def kill(self) -> None:
        self._note("kill")

    def freeze(self, frozen: bool) -> None:  # noqa: FBT001 - the protocol's signature
        raise NotImplementedError

    def totals(self) -> Totals:
        self._note("totals")
        return Totals(cpu_usage_usec=1_500)

    def remove(self) -> None:
        self._note("remove")

    def close(self) -> None:
        self.log.append("close")


@dataclass
class FakeChild:
    """A pipe stands for the process: it has ended when there is something to read."""

    log: list[str]
    status: ExitStatus
    failure: LaunchError | None = None
    pid: int = 0

    def __post_init__(self) -> None:
        self.fd, self._sink = os.pipe()

    def release(self) -> None:
        self.log.append("release")
        if self.failure is not None:
            raise self.failure
        os.write(self._sink, b"x")

    def signal(self, signal_number: int) -> None:
        self.log.append(f"signal {signal_number}")

    def reap(self) -> ExitStatus | None:
        self.log.append("reap")
        return self.status

    def abandon(self) -> None:
        if self.fd < 0:
            return
        self.log.append("abandon")
        for fd in (self.fd, self._sink):
            os.close(fd)
        self.fd = self._sink = -1


@dataclass
class Stage:
    """Everything that a run is played with."""

    home: Path
    log: list[str] = field(default_factory=list)
    rows: list[list[int]] = field(default_factory=lambda: [[0, MIB, 1], [1_000, 3 * MIB, 2]])
    status: ExitStatus = field(default_factory=lambda: ExitStatus(status=0))
    failure: LaunchError | None = None
    group: dict[str, Any] = field(default_factory=dict)

    def start(self, program: Program, group: Any) -> FakeChild:
        self.log.append("launch")
        self.program = program
        return FakeChild(self.log, self.status, self.failure)

    def run(self, callbacks: Mapping[str, Any] | None = None, **spec: Any) -> Any:
        group = FakeGroup(self.log, FakeReader(self.rows), **self.group)

        def open_backend(*_: Any, **__: Any) -> Backend:
            return Backend(group=group, launcher=self, kill_directory=None)  # type: ignore[arg-type]

        spec.setdefault("command", ("model",))
        around = Surroundings(home=self.home, open_backend=open_backend, **(callbacks or {}))
        return run(RunSpec(**spec), around)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "home")


def record(stage: Stage) -> dict[str, Any]:
    (file,) = stage.home.glob("runs/*/run.json")
    plain: dict[str, Any] = json.loads(file.read_text())
    return plain


def test_a_run_is_made_in_order_and_undone_in_reverse(stage: Stage) -> None:
    result = stage.run()

    assert result.outcome is Outcome.EXITED
    steps = [step for step in stage.log if step != "reap"]
    assert steps == [
        *("create", "apply", "launch", "start", "open_reader", "release"),
        *("kill", "totals", "abandon", "remove", "close"),
    ]


def test_the_result_joins_totals_and_samples_and_is_what_is_on_disk(stage: Stage) -> None:
    result = stage.run(limits=Limits(memory_bytes=64 * MIB))

    assert result.totals.cpu_usage_usec == 1_500
    assert result.totals.memory_peak_bytes == 3 * MIB
    assert result.totals.memory_peak_source == "sampled"
    assert result.totals.pids_peak == 2
    assert result.summary.samples >= 2
    assert record(stage)["totals"]["memory_peak_bytes"] == 3 * MIB
    assert record(stage)["outcome"] == "exited"


def test_what_outlived_the_main_process_is_counted(stage: Stage) -> None:
    stage.group["leftovers"] = (7, 8)

    assert stage.run().leftover_processes == 2


@pytest.mark.parametrize("step", ["create", "apply", "start", "open_reader"])
def test_a_step_that_fails_leaves_nothing_behind(stage: Stage, step: str) -> None:
    stage.group["fail_at"] = step

    with pytest.raises(KernelError, match=f"cannot {step}"):
        stage.run()
    assert stage.log[-1] == "close"
    assert "remove" in stage.log
    assert "release" not in stage.log
    assert ("launch" in stage.log) == ("abandon" in stage.log)
    assert not list(stage.home.glob("runs/*"))


def test_a_program_that_cannot_be_executed_is_recorded_as_not_started(stage: Stage) -> None:
    stage.failure = LaunchError("no such model", exit_code=127)

    with pytest.raises(LaunchError):
        stage.run()
    assert record(stage)["outcome"] == "not_started"
    assert record(stage)["exit_code"] == 127
    assert "abandon" in stage.log
    assert "remove" in stage.log


def test_strict_refuses_what_was_asked_for_but_not_a_default(stage: Stage) -> None:
    stage.group["state"] = LimitState.APPROXIMATED
    with pytest.raises(HostError, match="memory"):
        stage.run(strict=True, limits=Limits(memory_bytes=64 * MIB))
    assert "launch" not in stage.log

    stage.group["state"] = LimitState.ENFORCED
    result = stage.run(strict=True, limits=Limits(memory_bytes=64 * MIB))
    assert {report.name: report.by_default for report in result.limits} == {
        "memory": False,
        "pids": True,
    }


def test_a_signal_ends_it_with_its_number(stage: Stage) -> None:
    stage.status = ExitStatus(signal=11)
    result = stage.run()

    assert (result.outcome, result.exit_code) == (Outcome.SIGNALED, 139)


def test_a_name_in_use_and_a_bad_name_are_refused_before_anything_is_made(stage: Stage) -> None:
    with pytest.raises(SpecError):
        stage.run(name="no/name")
    assert stage.log == []


def test_values_of_variables_are_in_the_program_and_in_no_file(stage: Stage) -> None:
    stage.run(environment={"TOKEN": "s3cr3t"})

    assert stage.program.environment[b"TOKEN"] == b"s3cr3t"
    for file in stage.home.rglob("*"):
        assert not file.is_file() or b"s3cr3t" not in file.read_bytes()


def test_limits_that_the_supervisor_keeps_are_reported_as_enforced(stage: Stage) -> None:
    result = stage.run(limits=Limits(timeout_ns=10**10, cpu_time_usec=10**6))

    states = {report.name: report.state for report in result.limits}
    assert states["timeout"] is LimitState.ENFORCED
    assert states["cpu_time"] is LimitState.ENFORCED


def test_callbacks_are_called_when_it_runs_and_when_it_is_over(stage: Stage) -> None:
    seen: list[Outcome] = []

    def note(result: Any) -> None:
        seen.append(result.outcome)

    stage.run(callbacks={"on_started": note, "conclude": note})

    assert seen == [Outcome.RUNNING, Outcome.EXITED]
