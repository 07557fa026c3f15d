"""The order of a sweep: all cells once, then all again, each run saved as it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import product

from sandbox.errors import SandboxError, SpecError
from sandbox.records.benchmark import repeat_of
from sandbox.records.light import dataclass
from sandbox.records.result import Outcome, RunResult
from sandbox.records.security import Harden
from sandbox.records.sweep import Cell, Sweep, SweepPlan, SweepTrial
from sandbox.spec import Capture, Limits, RunSpec
from sandbox.units import format_size

PLACEHOLDER = "{model}"


@dataclass(frozen=True, kw_only=True)
class Around:
    """What a sweep does its work with; tests pass their own."""

    execute: Callable[[RunSpec], RunResult]
    save: Callable[[SweepTrial], None]
    """Called after each run; a sweep that is cut short goes on from what was saved."""
    progress: Callable[[int, int, Cell], None]
    """Number of this run, number of all, and what comes now."""
    host_cpus: int
    host_memory_bytes: int


def cells_of(plan: SweepPlan) -> list[Cell]:
    """Return every combination, models first, then from the smallest budget to the largest."""
    return [
        Cell(model=model, cpus=cpus, memory_bytes=memory)
        for model, cpus, memory in product(
            plan.models or (None,),
            sorted(plan.cpus) or (None,),
            sorted(plan.memory_bytes) or (None,),
        )
    ]


def check_plan(plan: SweepPlan) -> None:
    """Refuse a plan that cannot be meant.

    Raises:
        SpecError: nothing varies, a value is given twice, or `{model}` stands for nothing.
    """
    if not plan.command:
        raise SpecError("no command was given", hint="write it after `--`: `-- python infer.py`")
    if not (plan.models or plan.cpus or plan.memory_bytes):
        raise SpecError(
            "nothing varies in this sweep",
            hint="give models (-m), CPU limits (--cpus 0.5,1) or memory limits (--memory 256m,1g)",
        )
    for name, values in (
        ("model", plan.models),
        ("CPU limit", plan.cpus),
        ("memory limit", plan.memory_bytes),
    ):
        if len(set(values)) != len(values):
            raise SpecError(f"a {name} is given twice", hint="each is run `--runs` times anyway")
    if not plan.models and any(PLACEHOLDER in word for word in plan.command):
        raise SpecError(f"{PLACEHOLDER} is in the command, but no models were given", hint="use -m")
    if plan.runs < 1:
        raise SpecError("a sweep needs at least one run of each combination", hint="`--runs 1`")


def spec_of(plan: SweepPlan, cell: Cell) -> RunSpec:
    """Return the run of a cell."""
    words = plan.command
    if cell.model is not None:
        filled = tuple(word.replace(PLACEHOLDER, cell.model) for word in words)
        words = filled if filled != words else (*words, cell.model)
    return RunSpec(
        command=words,
        limits=Limits(cpus=cell.cpus, memory_bytes=cell.memory_bytes, timeout_ns=plan.timeout_ns),
        workdir=plan.workdir,
        harden=Harden() if plan.is_hardened else None,
        network="none" if plan.is_hardened else "host",
        capture=Capture.FILE,
        strict=True,  # a budget that is not in force would be compared with ones that are
    )


def unavailable_cells(
    cells: Sequence[Cell], host_cpus: int, host_memory_bytes: int
) -> dict[Cell, str]:
    """Return the cells that the host cannot give, and why."""
    found = {}
    for cell in cells:
        if cell.cpus is not None and cell.cpus > host_cpus:
            found[cell] = f"host has {host_cpus} CPU{'s' if host_cpus != 1 else ''}"
        elif cell.memory_bytes is not None and cell.memory_bytes > host_memory_bytes:
            found[cell] = f"host has {format_size(host_memory_bytes)}"
    return found


def run_sweep(
    plan: SweepPlan, done: Sequence[SweepTrial], around: Around, *, jobs: int = 1
) -> Sweep:
    """Make the runs that `done` lacks, `jobs` at a time, and return all of them.

    A cell whose program failed in one round is not run again: under a limit that is too small
    it would only fail again. All runs of a round have ended before the next begins.

    Raises:
        SpecError: the plan cannot be meant.
        SandboxError: a run could not be started, or a signal asked to end.
    """
    check_plan(plan)
    cells = cells_of(plan)
    unavailable = unavailable_cells(cells, around.host_cpus, around.host_memory_bytes)
    made = _Made(plan, list(done), around, len(cells) - len(unavailable))
    for turn in range(1, plan.runs + 1):
        due = [cell for cell in cells if cell not in unavailable and made.is_due(cell, turn)]
        if jobs == 1:
            for cell in due:
                made.one(cell, turn)
        else:
            _at_once(made, due, turn, jobs)
    trials = sorted(made.trials, key=lambda trial: (trial.round, cells.index(trial.cell)))
    return Sweep(plan=plan, trials=tuple(trials), unavailable=tuple(unavailable.items()))


def _at_once(made: _Made, cells: Sequence[Cell], turn: int, jobs: int) -> None:
    """Run cells by several threads; each waits in a process of its own, so none disturbs another.

    After the first error nothing more is begun, and what runs is waited for. When a signal ends the
    sweep it is not: those runs end with this process.
    """
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(jobs)
    futures = [pool.submit(made.one, cell, turn) for cell in cells]
    try:
        for future in futures:
            future.result()
    except BaseException as error:
        pool.shutdown(wait=isinstance(error, Exception), cancel_futures=True)
        raise
    pool.shutdown()


class _Made:
    """The runs so far."""

    def __init__(
        self, plan: SweepPlan, trials: list[SweepTrial], around: Around, cells: int
    ) -> None:
        self.trials = trials
        self._plan = plan
        self._around = around
        self._total = cells * plan.runs
        self._begun = len(trials)
        self._lock = threading.Lock()

    def is_due(self, cell: Cell, turn: int) -> bool:
        """Return whether a cell is to be run in this round."""
        mine = [trial for trial in self.trials if trial.cell == cell]
        return not any(trial.round == turn or not trial.is_good for trial in mine)

    def one(self, cell: Cell, turn: int) -> None:
        """Run a cell once, and save it."""
        with self._lock:
            self._begun += 1
            self._around.progress(self._begun, self._total, cell)
        result = self._around.execute(spec_of(self._plan, cell))
        if result.outcome is Outcome.KILLED:
            raise SandboxError(
                f"the sweep was ended: {result.reason}",
                hint=f"go on with `sandbox sweep --resume {self._plan.sweep_id}`",
            )
        trial = SweepTrial(
            cell=cell, round=turn, repeat=repeat_of(result), reason=result.reason or ""
        )
        with self._lock:
            self._around.save(trial)
            self.trials.append(trial)
