"""The picture of `sandbox top`: a table, curves of the selected sandbox, and a line for keys."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.analysis.docker import format_binary, format_percent
from sandbox.analysis.live import cpus_in_force, live_usage
from sandbox.records.light import dataclass
from sandbox.records.stats import State, StatsRow
from sandbox.report.chart import render_chart
from sandbox.report.stats import docker_memory, stats_record
from sandbox.report.style import Style, cell_width, printable

_LEFT = frozenset({"NAME", "ID", "STATE", "READ / WRITE"})
_COLUMNS = {  # headings, and the fields of `stats_record`
    "NAME": "Name",
    "ID": "ID",
    "STATE": "State",
    "CPU %": "CPUWallPerc",
    "OF LIMIT": "CPULimitPerc",
    "THROTTLED": "Throttled",
    "MEMORY / LIMIT": "MemUsage",
    "MEM %": "MemPerc",
    "TASKS": "PIDs",
    "READ / WRITE": "BlockRate",
}
_GAP = "  "
_FIXED_LINES = 4  # title, an empty line, headings, keys
_LOW_CHART, _HIGH_CHART = 2, 4
_TALL = 28
_LEAST_ROWS = 3
_SCALE = 12  # columns that a chart's labels take at most
_UP = (State.RUNNING, State.PAUSED)


@dataclass(frozen=True)
class Point:
    """What a sandbox used at one look; None is what cannot be told."""

    cpu_percent: float | None
    memory_bytes: int | None


@dataclass(frozen=True)
class Line:
    """One line of the picture and what it is: `title head row selected text dim prompt`."""

    text: str
    role: str


@dataclass(frozen=True, kw_only=True)
class TopView:
    """What there is to see."""

    rows: Sequence[StatsRow]
    """In the order in which they are shown."""
    selected: str | None
    """The id of the row that the curves and keys are about."""
    points: Sequence[Point] = ()
    """Of the selected one, the oldest first."""
    title: str
    keys: str
    prompt: str = ""
    """A question or an answer; it takes the place of the keys."""


def point_of(row: StatsRow) -> Point:
    """Return what a row adds to its curves."""
    usage, memory = live_usage(row), docker_memory(row)
    return Point(
        None if usage is None else usage.cpu_percent, None if memory is None else memory[0]
    )


def render_top(view: TopView, width: int, height: int, *, unicode: bool = True) -> list[Line]:
    """Return exactly `height` lines of at most `width` columns."""
    style = Style(width=width, unicode=unicode)
    panel = _panel(view, style, height)
    if len(panel) > height - _FIXED_LINES - _LEAST_ROWS:
        panel = []
    room = max(height - _FIXED_LINES - len(panel), 0)
    body = _table(view, room, style)
    lines = [Line(_title(view), "title"), Line("", "text"), *body]
    lines += [Line("", "text")] * (height - len(lines) - len(panel) - 1)
    lines += panel
    last = Line(view.prompt, "prompt") if view.prompt else Line(view.keys, "dim")
    lines = [*lines[: max(height - 1, 0)], last][:height]
    return [Line(style.plain(style.clip(line.text, width)), line.role) for line in lines]


def _title(view: TopView) -> str:
    counts = {state: sum(row.state is state for row in view.rows) for state in _UP}
    return f"{view.title}  {counts[State.RUNNING]} running, {counts[State.PAUSED]} paused"


def _table(view: TopView, room: int, style: Style) -> list[Line]:
    """Return the headings and as many rows as there is room for, the selected one among them."""
    if not view.rows:
        return [Line("no sandbox runs: `sandbox run -d -- COMMAND` starts one", "dim")]
    head, *texts = _texts(view.rows, style)
    chosen = next((i for i, row in enumerate(view.rows) if row.id == view.selected), 0)
    first = max(0, min(chosen - room // 2, len(texts) - room))
    lines = [Line(head, "head")]
    for index in range(first, min(first + room, len(texts))):
        is_chosen = view.rows[index].id == view.selected
        lines.append(Line(texts[index], "selected" if is_chosen else "row"))
    return lines


def _texts(rows: Sequence[StatsRow], style: Style) -> list[str]:
    """Return the headings and the rows, in columns; where these are too many, without ids."""
    cells = [dict(zip(_COLUMNS, _COLUMNS, strict=True)), *map(_cells, rows)]
    widths = {name: max(cell_width(row[name]) for row in cells) for name in _COLUMNS}
    names = list(_COLUMNS)
    if sum(widths.values()) + len(_GAP) * (len(names) - 1) > style.width:
        names.remove("ID")
    return [_GAP.join(_pad(row[name], widths[name], name) for name in names) for row in cells]


def _cells(row: StatsRow) -> dict[str, str]:
    record = stats_record(row, wide=True)
    cells = {name: str(record.getters[key](record.source)) for name, key in _COLUMNS.items()}
    return {**cells, "NAME": printable(row.name) or row.id}


def _pad(text: str, width: int, column: str) -> str:
    spaces = " " * (width - cell_width(text))
    return text + spaces if column in _LEFT else spaces + text


def _panel(view: TopView, style: Style, height: int) -> list[Line]:
    """Return the curves of the selected sandbox; the newest reading is at the right."""
    row = next((row for row in view.rows if row.id == view.selected), None)
    if row is None:
        return []
    lines = _HIGH_CHART if height >= _TALL else _LOW_CHART
    points = view.points[-max(style.width - _SCALE - 3, 1) :]
    cpus = [point.cpu_percent for point in points]
    memory = [point.memory_bytes for point in points]
    name = printable(row.name) or row.id
    return [
        Line("", "text"),
        Line(f"{name}: CPU {format_percent(_last(cpus))}{_of_cpus(row)}", "head"),
        *_chart(cpus, _cpu_top(row, cpus), style, lines),
        Line(f"{name}: memory {_size(_last(memory))}{_of_memory(row)}", "head"),
        *_chart(memory, _memory_top(row, memory), style, lines, is_size=True),
    ]


def _last(values: Sequence[float | None]) -> float | None:
    return values[-1] if values else None


def _size(value: float | None) -> str:
    return "--" if value is None else format_binary(int(value))


def _of_cpus(row: StatsRow) -> str:
    cpus = cpus_in_force(row)
    return "" if cpus is None else f" of {cpus * 100:.0f}%"


def _of_memory(row: StatsRow) -> str:
    limit = row.memory_limit_bytes
    return "" if limit is None else f" of {format_binary(limit)}"


def _cpu_top(row: StatsRow, values: Sequence[float | None]) -> float:
    """Return the limit, or what was used where that is less than a tenth of it."""
    return _top(None if (cpus := cpus_in_force(row)) is None else cpus * 100, values) or 100.0


def _memory_top(row: StatsRow, values: Sequence[float | None]) -> float:
    return _top(row.memory_limit_bytes, values) or float(1 << 20)


def _top(limit: float | None, values: Sequence[float | None]) -> float:
    most = max((value for value in values if value is not None), default=0.0)
    few = 10
    return most if limit is None or most * few < limit else max(limit, most)


def _chart(
    values: Sequence[float | None],
    top: float,
    style: Style,
    height: int,
    *,
    is_size: bool = False,
) -> list[Line]:
    label = _size(top) if is_size else f"{top:.3g}%"
    labels = (label.rjust(_SCALE), "0".rjust(_SCALE))
    chart = render_chart(values, top=top, labels=labels, height=height, style=style)
    return [Line(text, "text") for text in chart]
