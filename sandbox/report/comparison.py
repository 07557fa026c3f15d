"""Comparisons to text: a line for each metric, with the ratio, its error and what it means."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.analysis.comparison import Comparison
from sandbox.analysis.statistics_of_runs import Statistics
from sandbox.report.numbers import ABSENT_TEXT, duration_text, size_text
from sandbox.report.style import Style, printable

_NS_PER_SEC = 1e9
_LABELS = {"time": "time", "cpu": "CPU time", "memory": "memory peak"}
_VERDICTS = {
    "more": "more",
    "less": "less",
    "same": "no difference seen",
    "unsure": "a single figure has no error",
}


def render_comparison(
    name: str, comparisons: Sequence[Comparison], style: Style, over: Sequence[Comparison] = ()
) -> str:
    """Return one command's comparison; those in `over` are marked."""
    from tabulate import tabulate

    rows = []
    for one in comparisons:
        verdict = _VERDICTS[one.verdict]
        if one in over:
            verdict = style.paint("TOO MUCH", "red") + f", {verdict}"
        rows.append(
            [
                _LABELS.get(one.metric, one.metric),
                _value(one.metric, one.before),
                _value(one.metric, one.after),
                _ratio(one),
                verdict,
            ]
        )
    text = tabulate(
        rows,
        headers=["", "BEFORE", "AFTER", "RATIO", ""],
        tablefmt="plain",
        colalign=["left", "right", "right", "right", "left"],
        disable_numparse=True,
    )
    lines = [style.paint(printable(name), "bold")]
    lines += [f"  {line.rstrip()}" for line in text.splitlines()]
    return style.plain("\n".join(lines))


def _value(metric: str, statistics: Statistics) -> str:
    def text(value: float) -> str:
        if metric == "memory":
            return size_text(round(value))
        return duration_text(round(value * _NS_PER_SEC))

    if statistics.interval is None:
        return text(statistics.mean)
    return f"{text(statistics.mean)} ± {text(statistics.interval)}"


def _ratio(one: Comparison) -> str:
    if one.ratio is None:
        return ABSENT_TEXT
    return f"{one.ratio:.3f}" + ("" if one.error is None else f" ± {one.error:.3f}")
