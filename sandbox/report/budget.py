"""A search for the smallest limit to text: the answer first, then what was tried."""

from __future__ import annotations

from sandbox.analysis.headroom import middle_wall_ns
from sandbox.records.budget import Budget, Quantity, Trial
from sandbox.report.numbers import count_text, duration_text, size_text
from sandbox.report.style import Style, command_line
from sandbox.units import format_duration

_MILLI = 1_000
_BAR_WIDTH = 20
_BAR_RATIO = 3.0  # a full bar


def limit_text(quantity: Quantity, limit: int | None) -> str:
    """Return a limit as `--memory` and `--cpus` take it, or `none`."""
    if limit is None:
        return "none"
    if quantity is Quantity.MEMORY:
        return size_text(limit)
    return "1 CPU" if limit == _MILLI else f"{limit / _MILLI:g} CPUs"


def render_budget(budget: Budget, *, width: int, color: bool, unicode: bool) -> str:
    """Return the answer and a table of all limits that were tried, the largest first."""
    style = Style(width=width, color=color, unicode=unicode)
    lines = [*_answer(budget, style), "", *_table(budget, style)]
    return style.plain("\n".join(lines))


def _answer(budget: Budget, style: Style) -> list[str]:
    name = "memory" if budget.quantity is Quantity.MEMORY else "CPU"
    command = command_line(budget.command)
    if budget.smallest is None:
        best = limit_text(budget.quantity, budget.largest_failing)
        why = budget.trials[-1].why
        return [
            style.paint(f"no {name} limit is enough for {command}", "red"),
            f"with {best} it was {why}; asked for: {format_duration(budget.max_wall_ns)} at most",
        ]
    below = "the smallest that can be set"
    if budget.largest_failing is not None:
        whys = sorted({t.why for t in _at(budget, budget.largest_failing) if not t.is_enough})
        below = f"{limit_text(budget.quantity, budget.largest_failing)} is not: {', '.join(whys)}"
    tried = _at(budget, budget.smallest)
    good = sum(trial.is_enough for trial in tried)
    times = count_text(len(tried), "run", "runs")
    times = times if good == len(tried) else f"{good} of {times}"
    smallest = limit_text(budget.quantity, budget.smallest)
    lines = [
        f"{smallest} is the smallest {name} limit for {command}",
        f"proof        enough in {times}; {below}",
        f"recommended  {limit_text(budget.quantity, budget.recommended)}, with headroom",
    ]
    if not budget.is_sharp:
        lines.append("wavers       near the border the same limit was sometimes enough")
    return [style.paint(lines[0], "green"), *lines[1:]]


def _at(budget: Budget, limit: int) -> list[Trial]:
    return [trial for trial in budget.trials if trial.limit == limit]


def _table(budget: Budget, style: Style) -> list[str]:
    from tabulate import tabulate

    unlimited_ns = middle_wall_ns(budget.unlimited)
    limits: list[int | None] = [None]
    limits += sorted({t.limit for t in budget.trials if t.limit is not None}, reverse=True)
    rows = []
    for limit in limits:
        trials = list(budget.unlimited) if limit is None else _at(budget, limit)
        rows.append(_row(budget, limit, trials, unlimited_ns, style))
    text = tabulate(
        rows,
        headers=["LIMIT", "ENOUGH", "WALL", "SLOWDOWN", "", "PEAK", "RUN"],
        tablefmt="plain",
        colalign=["right", "left", "right", "right", "left", "right", "left"],
        disable_numparse=True,
    )
    return [line.rstrip() for line in text.splitlines()]


def _row(
    budget: Budget, limit: int | None, trials: list[Trial], unlimited_ns: int, style: Style
) -> list[str]:
    good = [trial for trial in trials if trial.is_enough]
    told = f"{len(good)} of {len(trials)}"
    if len(good) < len(trials):
        told += ": " + ", ".join(sorted({t.why for t in trials if not t.is_enough}))
    walls = sorted(trial.wall_ns for trial in good if trial.wall_ns is not None)
    if limit is None:
        walls = [unlimited_ns]
    peaks = [t.memory_peak_bytes for t in trials if t.memory_peak_bytes is not None]
    ratio = walls[-1] / unlimited_ns if walls else None
    return [
        limit_text(budget.quantity, limit),
        told,
        duration_text(walls[-1] if walls else None),
        "-" if ratio is None else f"{ratio:.2f}",
        _bar(ratio, style),
        size_text(max(peaks, default=None)),
        trials[-1].run_id,
    ]


def _bar(ratio: float | None, style: Style) -> str:
    if ratio is None:
        return ""
    filled = min(round(ratio / _BAR_RATIO * _BAR_WIDTH), _BAR_WIDTH)
    return ("█" if style.unicode else "#") * max(filled, 1)
