"""A sweep played by a fake: its order, what it saves, how it goes on, what its table says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sandbox.analysis.grids import agreement, knees, models_that_failed, results_of
from sandbox.errors import SandboxError, SpecError
from sandbox.records.codec import from_plain, to_plain
from sandbox.records.result import Outcome, RunResult, Summary, Totals
from sandbox.records.sweep import Cell, Sweep, SweepPlan, SweepTrial
from sandbox.report.style import Style
from sandbox.report.sweep import budget_text, render_sweep
from sandbox.spec import RunSpec
from sandbox.sweeps.session import (
    Around,
    cells_of,
    check_plan,
    run_sweep,
    spec_of,
    unavailable_cells,
)

GOLDEN = Path(__file__).parents[2] / "golden"
MIB, MS = 1 << 20, 1_000_000
NEEDS = {"small": (20 * MIB, 50), "middle": (50 * MIB, 100), "large": (100 * MIB, 400)}


def plan(**changes: Any) -> SweepPlan:
    plain: dict[str, Any] = {
        "sweep_id": "0c1d2e3f4a5b",
        "started_utc_ns": 0,
        "command": ("infer", "{model}.onnx"),
        "models": ("small", "middle", "large"),
        "cpus": (0.5, 1.0, 2.0),
        "memory_bytes": (64 * MIB, 256 * MIB),
        "runs": 3,
        "workdir": "/",
    }
    return SweepPlan(**{**plain, **changes})


@pytest.fixture
def specs() -> list[RunSpec]:
    return []


@pytest.fixture
def execute(
    specs: list[RunSpec], make_result: Callable[..., RunResult]
) -> Callable[[RunSpec], RunResult]:
    """Models that need memory, and CPU time which two CPUs share; a little slower each time."""

    def run(spec: RunSpec) -> RunResult:
        specs.append(spec)
        need_bytes, cpu_ms = NEEDS[spec.command[-1].removesuffix(".onnx")]
        limit = spec.limits.memory_bytes
        if limit is not None and limit < need_bytes:
            killed = Totals(memory_peak_bytes=limit)
            return make_result(outcome=Outcome.OOM_KILLED, exit_code=137, wall_ns=MS, totals=killed)
        wall_ns = round(cpu_ms * MS / (spec.limits.cpus or 2.0)) + len(specs) * 1000
        totals = Totals(
            memory_peak_bytes=need_bytes, cpu_user_usec=cpu_ms * 1000, cpu_system_usec=0
        )
        return make_result(
            outcome=Outcome.EXITED,
            exit_code=0,
            wall_ns=wall_ns,
            totals=totals,
            summary=Summary(throttled_ratio=0.25),
        )

    return run


def sweep(
    execute: Callable[[RunSpec], RunResult],
    asked: SweepPlan,
    done: Sequence[SweepTrial] = (),
    save: Callable[[SweepTrial], None] = lambda _trial: None,
) -> Sweep:
    around = Around(
        execute=execute,
        save=save,
        progress=lambda *_: None,
        host_cpus=2,
        host_memory_bytes=8 << 30,
    )
    return run_sweep(asked, done, around)


def test_all_cells_run_once_before_any_runs_twice(
    execute: Callable[[RunSpec], RunResult], specs: list[RunSpec]
) -> None:
    found = sweep(execute, plan(models=("small",), memory_bytes=(), runs=2))

    assert [spec.limits.cpus for spec in specs] == [0.5, 1.0, 2.0, 0.5, 1.0, 2.0]
    assert [trial.round for trial in found.trials] == [1, 1, 1, 2, 2, 2]
    assert {spec.command for spec in specs} == {("infer", "small.onnx")}
    assert all(spec.strict and spec.capture == "file" for spec in specs)


def test_what_failed_is_not_run_again(
    execute: Callable[[RunSpec], RunResult], specs: list[RunSpec]
) -> None:
    found = sweep(execute, plan(models=("large",), cpus=()))

    assert [spec.limits.memory_bytes for spec in specs].count(64 * MIB) == 1
    assert [spec.limits.memory_bytes for spec in specs].count(256 * MIB) == 3
    small = results_of(found, cells_of(found.plan))[0]
    assert (small.failure, small.wall_sec, small.memory_peak_bytes) == (
        "out of memory",
        None,
        64 * MIB,
    )


def test_a_sweep_goes_on_where_it_was_cut_short(
    execute: Callable[[RunSpec], RunResult], specs: list[RunSpec]
) -> None:
    saved: list[SweepTrial] = []

    def save(trial: SweepTrial) -> None:
        saved.append(from_plain(SweepTrial, to_plain(trial)))
        if len(saved) == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(execute, plan(), save=save)
    specs.clear()
    found = sweep(execute, plan(), saved)

    whole = sweep(execute, plan())
    assert len(found.trials) == len(whole.trials)
    assert len(specs) == 2 * len(whole.trials) - 7
    assert [(t.cell, t.round) for t in found.trials] == [(t.cell, t.round) for t in whole.trials]


def test_a_budget_that_the_host_lacks_is_a_row_not_an_error(
    execute: Callable[[RunSpec], RunResult],
) -> None:
    found = sweep(execute, plan(models=("small",), cpus=(1.0, 4.0), memory_bytes=(16 << 30,)))

    why = [result.failure for result in results_of(found, cells_of(found.plan))]
    assert why == ["unavailable: host has 8 GiB", "unavailable: host has 2 CPUs"]
    assert found.trials == ()
    one = Cell(model=None, cpus=2.0, memory_bytes=None)
    assert unavailable_cells([one], 1, 1) == {one: "host has 1 CPU"}


def test_whoever_ends_a_run_ends_the_sweep(make_result: Callable[..., RunResult]) -> None:
    def killed(_spec: RunSpec) -> RunResult:
        return make_result(outcome=Outcome.KILLED, exit_code=143, reason="killed by SIGTERM")

    with pytest.raises(SandboxError, match="the sweep was ended: killed by SIGTERM") as caught:
        sweep(killed, plan())

    assert caught.value.hint == "go on with `sandbox sweep --resume 0c1d2e3f4a5b`"


def test_the_model_is_the_last_argument_where_no_word_has_it() -> None:
    cell = Cell(model="a.onnx", cpus=1.0, memory_bytes=None)

    assert spec_of(plan(command=("infer", "-x")), cell).command == ("infer", "-x", "a.onnx")
    assert spec_of(plan(command=("infer", "--m={model}")), cell).command == ("infer", "--m=a.onnx")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"command": ()}, "no command"),
        ({"models": (), "cpus": (), "memory_bytes": (), "command": ("x",)}, "nothing varies"),
        ({"models": ("a", "a")}, "model is given twice"),
        ({"cpus": (1.0, 1.0)}, "CPU limit is given twice"),
        ({"memory_bytes": (1 << 30, 1 << 30)}, "memory limit is given twice"),
        ({"models": ()}, "no models were given"),
        ({"runs": 0}, "at least one run"),
    ],
)
def test_a_plan_that_cannot_be_meant_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(SpecError, match=why):
        check_plan(plan(**changes))


def test_ranks_are_among_models_in_the_same_budget(
    execute: Callable[[RunSpec], RunResult],
) -> None:
    found = sweep(execute, plan())
    results = results_of(found, cells_of(found.plan))

    ranks = {(r.cell.model, r.cell.cpus, r.cell.memory_bytes): r.rank for r in results}
    assert ranks["small", 1.0, 64 * MIB] == 1
    assert ranks["middle", 1.0, 64 * MIB] == 2
    assert ranks["large", 1.0, 64 * MIB] is None
    assert ranks["large", 1.0, 256 * MIB] == 3
    assert {tau for _, tau, _ in agreement(results)} == {1.0}


def test_the_knee_is_given_along_cpus(execute: Callable[[RunSpec], RunResult]) -> None:
    found = sweep(execute, plan(models=("large",)))

    (model, name, limit, _) = knees(results_of(found, cells_of(found.plan)))[0]

    assert (model, name, limit) == ("large", "cpus", 1.0)


def test_everything_is_in_one_text(execute: Callable[[RunSpec], RunResult]) -> None:
    found = sweep(execute, plan(cpus=(0.5, 1.0, 2.0, 4.0)))

    text = render_sweep(
        found.plan,
        results_of(found, cells_of(found.plan)),
        Style(width=100, color=False, unicode=True),
    )

    assert text + "\n" == (GOLDEN / "sweep.txt").read_text()
    assert from_plain(SweepPlan, to_plain(found.plan)) == found.plan


def test_budgets_are_named_as_people_do() -> None:
    assert budget_text((1.0, 512 * MIB)) == "1 CPU, 512 MiB"
    assert budget_text((None, None)) == "no limit"


def test_a_model_that_fails_by_itself_is_told_with_its_run(
    make_result: Callable[..., RunResult],
) -> None:
    def run(spec: RunSpec) -> RunResult:
        is_bad = spec.command[-1] == "smal.onnx"
        return make_result(run_id="f00" * 4, exit_code=int(is_bad), reason="exited 1" * is_bad)

    asked = plan(models=("smal", "large"), cpus=(1.0, 2.0), memory_bytes=())
    around = Around(
        execute=run,
        save=lambda _trial: None,
        progress=lambda *_: None,
        host_cpus=4,
        host_memory_bytes=1 << 30,
    )
    results = results_of(run_sweep(asked, [], around), cells_of(asked))
    text = render_sweep(asked, results, Style())

    assert models_that_failed(results) == ["smal"]
    assert text.count("sandbox runs show") == 1
    assert "  smal in 1 CPU: exited 1: `sandbox runs show f00f00f00f00`" in text
