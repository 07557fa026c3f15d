"""What the doctor found, for people: one line a check, and below it the commands that help."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sandbox.records.finding import Diagnosis, Finding, State
from sandbox.report.numbers import count_text
from sandbox.report.style import Style, printable

_MARKS = {
    State.OK: ("✓", "ok  ", "green"),
    State.WARN: ("!", "warn", "yellow"),
    State.FAIL: ("✗", "FAIL", "red"),
    State.SKIP: ("-", "skip", "dim"),
}
_MODES = {
    "v2": "cgroup v2",
    "hybrid": "cgroup v1 for limits, v2 beside it",
    "none": "without cgroups",
}


def render_findings(
    diagnosis: Diagnosis, *, width: int, color: bool, unicode: bool, quiet: bool = False
) -> str:
    """Return the findings by group; with `quiet` only those that ask for something."""
    style = Style(width=width, color=color, unicode=unicode)
    shown = [
        finding
        for finding in diagnosis.findings
        if not quiet or finding.state in {State.WARN, State.FAIL}
    ]
    lines = list(_groups(shown, style))
    if lines:
        lines.append("")
    lines.append(_verdict(diagnosis, style))
    return style.plain("\n".join(lines))


def _groups(findings: Iterable[Finding], style: Style) -> Iterator[str]:
    group = None
    shown = list(findings)
    wide = max((len(finding.name) for finding in shown), default=0) + 2
    for finding in shown:
        if finding.group != group:
            if group is not None:
                yield ""
            group = finding.group
            yield style.paint(group, "bold")
        yield from _lines(finding, wide, style)


def _lines(finding: Finding, wide: int, style: Style) -> Iterator[str]:
    mark, word, shade = _MARKS[finding.state]
    mark = mark if style.unicode else word
    indent = 2 + len(mark) + 1 + wide
    wrapped = style.wrap(printable(finding.why), indent)
    first = wrapped[0] if finding.state is not State.SKIP else style.paint(wrapped[0], "dim")
    yield f"  {style.paint(mark, shade)} {finding.name.ljust(wide)}{first}"
    yield from wrapped[1:]
    if finding.fix is not None:
        # Never wrapped: it is to be copied as a whole.
        for line in finding.fix.splitlines():
            yield f"    {style.paint('$', 'dim')} {style.paint(printable(line), 'cyan')}"


def _verdict(diagnosis: Diagnosis, style: Style) -> str:
    count = dict.fromkeys(State, 0)
    for finding in diagnosis.findings:
        count[finding.state] += 1
    failed = count_text(count[State.FAIL], "check fails", "checks fail")
    warned = count_text(count[State.WARN], "warning", "warnings")
    if count[State.FAIL]:
        return style.paint(f"{failed}, {warned}", "red")
    text = "all is well" if not count[State.WARN] else f"nothing fails, {warned}"
    how = _MODES.get(diagnosis.mode.value, diagnosis.mode.value)
    return style.paint(f"{text}: {how}", "green" if not count[State.WARN] else "yellow")


def render_checks(checks: Iterable[tuple[str, str, str]]) -> str:
    """Return a list of checks: group, name, question."""
    rows = list(checks)
    wide = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(
        f"{group.ljust(wide[0])}  {name.ljust(wide[1])}  {question}"
        for group, name, question in rows
    )
