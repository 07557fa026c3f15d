"""A sweep's runs to what is asked of them: times, ranks, agreement of rankings, knees."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sandbox.analysis.ranking import Estimate, kendall_tau, knee, rank
from sandbox.analysis.statistics_of_runs import Statistics, statistics_of
from sandbox.records.light import dataclass
from sandbox.records.result import Outcome
from sandbox.records.sweep import Cell, Sweep, SweepTrial

_NS_PER_SEC = 1e9
Budget = tuple[float | None, int | None]
"""CPUs and bytes; None where that is not limited."""


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """All runs of one cell. Without a run that ended well there is no time."""

    cell: Cell
    runs: int
    wall_sec: Statistics | None
    """Of the runs that ended well."""
    cpu_usec: int | None = None
    """Mean CPU time of those."""
    memory_peak_bytes: int | None = None
    """The largest of all runs."""
    throttled_ratio: float | None = None
    """The mean."""
    failure: str | None = None
    """How a run failed, or why none could be made."""
    failed_run_id: str | None = None
    """Of that run, if its program failed by itself: what it printed says why."""
    rank: int | None = None
    """Among the models in the same budget, 1 is the fastest; None for a single model."""
    is_tied: bool = False


def results_of(sweep: Sweep, cells: Iterable[Cell]) -> list[CellResult]:
    """Return a result for each cell, in the order of `cells`; ranks are among equal budgets."""
    lacking = dict(sweep.unavailable)
    results = [_result_of(cell, sweep.trials, lacking.get(cell)) for cell in cells]
    if len(sweep.plan.models) < 2:  # noqa: PLR2004 - one alone has no rank
        return results
    return [_ranked(result, results) for result in results]


def _result_of(cell: Cell, trials: Sequence[SweepTrial], lacking: str | None) -> CellResult:
    mine = [trial for trial in trials if trial.cell == cell]
    good = [trial.repeat for trial in mine if trial.is_good]
    bad = [trial for trial in mine if not trial.is_good]
    cpu = [
        one.cpu_user_usec + one.cpu_system_usec
        for one in good
        if one.cpu_user_usec is not None and one.cpu_system_usec is not None
    ]
    throttled = [one.throttled_ratio for one in good if one.throttled_ratio is not None]
    peaks = [t.repeat.memory_peak_bytes for t in mine if t.repeat.memory_peak_bytes is not None]
    return CellResult(
        cell=cell,
        runs=len(mine),
        wall_sec=statistics_of([one.wall_ns / _NS_PER_SEC for one in good]) if good else None,
        cpu_usec=round(sum(cpu) / len(cpu)) if cpu else None,
        memory_peak_bytes=max(peaks, default=None),
        throttled_ratio=sum(throttled) / len(throttled) if throttled else None,
        failure=f"unavailable: {lacking}" if lacking else (_how(bad[0]) if bad else None),
        failed_run_id=bad[0].repeat.run_id if bad and _is_its_own(bad[0]) else None,
    )


def _is_its_own(trial: SweepTrial) -> bool:
    """Return whether no limit ended the program."""
    return trial.repeat.outcome in {Outcome.EXITED, Outcome.SIGNALED}


def models_that_failed(results: Sequence[CellResult]) -> list[str | None]:
    """Return the models, None for the command alone, that ended well in no budget at all."""
    good = {result.cell.model for result in results if result.wall_sec is not None}
    return [m for m in dict.fromkeys(result.cell.model for result in results) if m not in good]


def _how(trial: SweepTrial) -> str:
    outcome = trial.repeat.outcome
    if outcome is Outcome.EXITED:
        return f"exited {trial.repeat.exit_code}"
    words = {Outcome.OOM_KILLED: "out of memory", Outcome.TIMED_OUT: "timed out"}
    return words.get(outcome, trial.reason or outcome.replace("_", " "))


def _ranked(result: CellResult, results: Sequence[CellResult]) -> CellResult:
    if _estimate(result) is None:
        return result
    place, is_tied = rank(_estimates(results, budget_of(result.cell)))[str(result.cell.model)]
    return CellResult(**{**result.__dict__, "rank": place, "is_tied": is_tied})


def budget_of(cell: Cell) -> Budget:
    """Return the limits of a cell."""
    return cell.cpus, cell.memory_bytes


def _estimates(results: Sequence[CellResult], budget: Budget) -> dict[str, Estimate]:
    found = {}
    for result in results:
        estimate = _estimate(result)
        if budget_of(result.cell) == budget and estimate is not None:
            found[str(result.cell.model)] = estimate
    return found


def _estimate(result: CellResult) -> Estimate | None:
    """A cell in which some run failed is not ranked: its budget is not enough."""
    if result.wall_sec is None or result.failure is not None:
        return None
    return Estimate(mean=result.wall_sec.mean, interval=result.wall_sec.interval)


def agreement(results: Sequence[CellResult]) -> list[tuple[Budget, float | None, int]]:
    """Return how each budget's ranking agrees with that of the last budget that has one.

    For each other budget: Kendall's tau over the models that ended well in both, with ranks, so
    that ties count as ties, and how many models those are. Empty for fewer than two budgets.
    """
    budgets = list(dict.fromkeys(budget_of(result.cell) for result in results))
    ranks = {
        budget: {
            str(one.cell.model): one.rank
            for one in results
            if budget_of(one.cell) == budget and one.rank is not None
        }
        for budget in budgets
    }
    ranked = [budget for budget in budgets if len(ranks[budget]) > 1]
    if len(ranked) < 2:  # noqa: PLR2004 - one has nothing to agree with
        return []
    last = ranks[ranked[-1]]
    found = []
    for budget in ranked[:-1]:
        both = sorted(ranks[budget].keys() & last.keys())
        tau = kendall_tau([ranks[budget][m] for m in both], [last[m] for m in both])
        found.append((budget, tau, len(both)))
    return found


def last_ranked_budget(results: Sequence[CellResult]) -> Budget | None:
    """Return the budget that `agreement` compares with."""
    ranked = [budget_of(result.cell) for result in results if result.rank is not None]
    return ranked[-1] if ranked else None


def knees(results: Sequence[CellResult]) -> list[tuple[str | None, str, float, float]]:
    """Return for each model where more CPUs, or more memory, stop helping.

    Along one limit with the other at its largest: model, `cpus` or `memory`, the limit at the knee
    and the mean wall time there in seconds. Left out are curves without a knee, and those whose
    ends differ by less than their intervals: their shape is noise.
    """
    found = []
    for model in dict.fromkeys(result.cell.model for result in results):
        good = [r for r in results if r.cell.model == model and _estimate(r) is not None]
        for name, value, other in (("cpus", _cpus, _memory), ("memory", _memory, _cpus)):
            most = max((other(r.cell) for r in good), default=None)
            line = sorted((r for r in good if other(r.cell) == most), key=lambda r: value(r.cell))
            points = [
                (value(r.cell), estimate) for r in line if (estimate := _estimate(r)) is not None
            ]
            if not points or points[0][1].overlaps(points[-1][1]):
                continue
            place = knee([(limit, estimate.mean) for limit, estimate in points])
            if place is not None:
                found.append((model, name, points[place][0], points[place][1].mean))
    return found


def _cpus(cell: Cell) -> float:
    return 0.0 if cell.cpus is None else cell.cpus


def _memory(cell: Cell) -> float:
    return 0.0 if cell.memory_bytes is None else float(cell.memory_bytes)
