"""A sweep to text: one table, then how far its rankings agree, heat maps and knees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sandbox.analysis.grids import (
    Budget,
    CellResult,
    agreement,
    budget_of,
    knees,
    last_ranked_budget,
)
from sandbox.records.sweep import Cell, SweepPlan
from sandbox.report.numbers import ABSENT_TEXT, duration_text, percent_text, size_text, time_text
from sandbox.report.style import Style, command_line, printable

_SHADES = (" ", "░", "▒", "▓", "█")
_ASCII_SHADES = (" ", ".", "+", "*", "#")
_NS_PER_SEC = 1e9


def render_sweep(plan: SweepPlan, results: Sequence[CellResult], style: Style) -> str:
    """Return everything that is known of a sweep so far."""
    lines = [
        style.paint(f"sweep {plan.sweep_id}", "bold")
        + f": {printable(command_line(plan.command))}",
        "",
        *_table(plan, results),
    ]
    for block in (
        _failures(results),
        _agreement(results),
        _heat_maps(plan, results, style),
        _knees(results),
    ):
        text = list(block)
        if text:
            lines += ["", *text]
    return style.plain("\n".join(lines))


def _failures(results: Sequence[CellResult]) -> Iterator[str]:
    """Where to read what a program printed before it failed by itself: once for each model."""
    told: set[str | None] = set()
    for result in results:
        if result.failed_run_id is None or result.cell.model in told:
            continue
        if not told:
            yield "What failed by itself, and what it printed"
        told.add(result.cell.model)
        where = budget_text(budget_of(result.cell))
        what = f"{printable(result.cell.model)} in {where}" if result.cell.model else where
        yield f"  {what}: {result.failure}: `sandbox runs show {result.failed_run_id}`"


def budget_text(budget: Budget) -> str:
    """Return limits as people say them: `1 CPU, 512 MiB`."""
    cpus, memory = budget
    parts = []
    if cpus is not None:
        parts.append("1 CPU" if cpus == 1 else f"{cpus:g} CPUs")
    if memory is not None:
        parts.append(size_text(memory))
    return ", ".join(parts) or "no limit"


def _table(plan: SweepPlan, results: Sequence[CellResult]) -> list[str]:
    from tabulate import tabulate

    heads = {
        "MODEL": bool(plan.models),
        "CPUS": bool(plan.cpus),
        "MEMORY": bool(plan.memory_bytes),
        "RUNS": True,
        "TIME": True,
        "CPU TIME": True,
        "PEAK": True,
        "THROTTLED": any(result.throttled_ratio is not None for result in results),
        "RANK": len(plan.models) > 1,
        "": any(result.failure for result in results),
    }
    shown = [head for head, is_shown in heads.items() if is_shown]
    rows = [[_row(result)[head] for head in shown] for result in _by_budget(results)]
    left = {"MODEL", "", "RANK"}
    text = tabulate(
        rows,
        headers=shown,
        tablefmt="plain",
        colalign=["left" if head in left else "right" for head in shown],
        disable_numparse=True,
    )
    return [line.rstrip() for line in text.splitlines()]


def _by_budget(results: Sequence[CellResult]) -> list[CellResult]:
    """Return the results with equal budgets together, the best of each first."""
    places = {budget: place for place, budget in enumerate(budget_of(r.cell) for r in results)}

    def key(result: CellResult) -> tuple[int, float, float]:
        mean = float("inf") if result.wall_sec is None else result.wall_sec.mean
        rank = float("inf") if result.rank is None else result.rank
        return places[budget_of(result.cell)], rank, mean

    return sorted(results, key=key)


def _row(result: CellResult) -> dict[str, str]:
    cell, rank = result.cell, ABSENT_TEXT
    if result.rank is not None:
        rank = f"{result.rank}{' tied' if result.is_tied else ''}"
    return {
        "MODEL": printable(cell.model or ABSENT_TEXT),
        "CPUS": ABSENT_TEXT if cell.cpus is None else f"{cell.cpus:g}",
        "MEMORY": size_text(cell.memory_bytes),
        "RUNS": str(result.runs),
        "TIME": _time(result),
        "CPU TIME": time_text(result.cpu_usec),
        "PEAK": size_text(result.memory_peak_bytes),
        "THROTTLED": percent_text(result.throttled_ratio),
        "RANK": rank,
        "": result.failure or "",
    }


def _time(result: CellResult) -> str:
    if result.wall_sec is None:
        return ABSENT_TEXT
    mean = _seconds(result.wall_sec.mean)
    if result.wall_sec.interval is None:
        return mean
    return f"{mean} ± {_seconds(result.wall_sec.interval)}"


def _seconds(seconds: float) -> str:
    return duration_text(round(seconds * _NS_PER_SEC))


def _agreement(results: Sequence[CellResult]) -> Iterator[str]:
    found, last = agreement(results), last_ranked_budget(results)
    if not found or last is None:
        return
    yield f"Ranking, beside that in {budget_text(last)} (Kendall's tau, 1: the same order)"
    for budget, tau, models in found:
        value = "all tied" if tau is None else f"{tau:5.2f}"
        yield f"  {value}  {budget_text(budget)}, {models} models"


def _heat_maps(plan: SweepPlan, results: Sequence[CellResult], style: Style) -> Iterator[str]:
    """Mean times with a shade: the darker, the slower, within one model."""
    if len(plan.cpus) < 2 or len(plan.memory_bytes) < 2:  # noqa: PLR2004 - a map has two sides
        return
    from tabulate import tabulate

    found = {result.cell: result for result in results}
    for model in plan.models or (None,):
        yield (
            f"Time of {printable(model)}, the darker the slower"
            if model
            else "Time, darker: slower"
        )
        rows = []
        for memory in sorted(plan.memory_bytes):
            row = [
                found[Cell(model=model, cpus=cpus, memory_bytes=memory)]
                for cpus in sorted(plan.cpus)
            ]
            rows.append([size_text(memory), *(_shaded(one, results, style) for one in row)])
        heads = ["", *(budget_text((cpus, None)) for cpus in sorted(plan.cpus))]
        text = tabulate(
            rows,
            headers=heads,
            tablefmt="plain",
            colalign=["right"] * len(heads),
            disable_numparse=True,
        )
        yield from (f"  {line.rstrip()}" for line in text.splitlines())


def _shaded(one: CellResult, results: Sequence[CellResult], style: Style) -> str:
    if one.wall_sec is None or one.failure:
        return one.failure.partition(":")[0] if one.failure else ABSENT_TEXT
    means = [
        r.wall_sec.mean
        for r in results
        if r.cell.model == one.cell.model and r.wall_sec is not None and not r.failure
    ]
    low, high = min(means), max(means)
    shades = _SHADES if style.unicode else _ASCII_SHADES
    share = 0.0 if high == low else (one.wall_sec.mean - low) / (high - low)
    return f"{_seconds(one.wall_sec.mean)} {2 * shades[round(share * (len(shades) - 1))]}"


def _knees(results: Sequence[CellResult]) -> Iterator[str]:
    found = knees(results)
    if found:
        yield "More helps little beyond"
    for model, name, limit, seconds in found:
        text = budget_text((limit, None) if name == "cpus" else (None, round(limit)))
        yield f"  {text}, {_seconds(seconds)}" + (f": {printable(model)}" if model else "")
