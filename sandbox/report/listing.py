"""The list of runs: one line each, in the caller's order."""

from __future__ import annotations

from collections.abc import Iterable

from sandbox.records.result import Outcome, RunResult
from sandbox.report.numbers import cpus_text, duration_text, size_text
from sandbox.report.style import Style, cell_width, command_line, printable
from sandbox.units import NS_PER_SEC

_HEADS = ("RUN", "NAME", "STARTED", "STATUS", "WALL", "CPUS", "PEAK")
_DROPPED = ("NAME", "CPUS", "STARTED")  # one after the other, where the terminal is narrow
_RIGHT = {"WALL", "CPUS", "PEAK"}
_NAME_WIDTH = 20
_SHORTEST_COMMAND = 12
_SHORT = {
    Outcome.RUNNING: "running",
    Outcome.OOM_KILLED: "out of memory",
    Outcome.TIMED_OUT: "timed out",
    Outcome.CPU_TIME_EXCEEDED: "CPU time",
    Outcome.NOT_STARTED: "not started",
    Outcome.SUPERVISOR_LOST: "lost",
}


def render_list(
    entries: Iterable[RunResult], *, now_utc_ns: int, width: int, color: bool, unicode: bool
) -> str:
    """Return one line a run under a line of headings, or what to do if there is none."""
    style = Style(width=width, color=color, unicode=unicode)
    results = list(entries)
    if not results:
        return "no runs yet, make one: `sandbox run -- COMMAND`"
    heads = list(_HEADS)
    rows = [_row(result, now_utc_ns) for result in results]
    head, *body = _table(heads, rows)
    for name in _DROPPED:
        if cell_width(head) + 2 + _SHORTEST_COMMAND <= width:
            break
        heads.remove(name)
        head, *body = _table(heads, rows)
    used = cell_width(head) + 2
    room = max(width - used, _SHORTEST_COMMAND)
    lines = [style.paint(head.ljust(used) + "COMMAND", "dim")]
    for result, line in zip(results, body, strict=True):
        padded = line + " " * (used - cell_width(line))
        lines.append(padded + style.clip(command_line(result.command), room))
    return style.plain("\n".join(lines))


def _table(heads: list[str], rows: list[dict[str, str]]) -> list[str]:
    """Return lines of one width."""
    from tabulate import tabulate

    text = tabulate(
        [[row[head] for head in heads] for row in rows],
        headers=heads,
        tablefmt="plain",
        colalign=["right" if head in _RIGHT else "left" for head in heads],
        disable_numparse=True,
    )
    lines = text.splitlines()
    most = max(map(cell_width, lines))
    return [line + " " * (most - cell_width(line)) for line in lines]


def _row(result: RunResult, now_utc_ns: int) -> dict[str, str]:
    summary = result.summary
    name = Style().clip(printable(result.name), _NAME_WIDTH)
    return {
        "RUN": result.run_id,
        "NAME": name if result.name != result.run_id else "",
        "STARTED": age_text(now_utc_ns - result.started_utc_ns),
        "STATUS": _status(result),
        "WALL": duration_text(result.wall_ns),
        "CPUS": cpus_text(None if summary is None else summary.cpu_mean),
        "PEAK": size_text(result.totals.memory_peak_bytes),
    }


def _status(result: RunResult) -> str:
    if result.outcome in _SHORT:
        return _SHORT[result.outcome]
    code = "" if result.exit_code is None else f" {result.exit_code}"
    return f"{result.outcome.value}{code}"


def age_text(age_ns: int) -> str:
    """Return how long ago something was, in its largest unit: `5 min ago`."""
    seconds = max(age_ns, 0) // NS_PER_SEC
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        if seconds >= length:
            return f"{seconds // length} {unit} ago"
    return "now"
