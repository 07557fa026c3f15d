"""The phases of a run side by side, and the energy of the machine while it lasted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sandbox.records.result import DeviceIo, Phase, RunResult
from sandbox.report.numbers import (
    ABSENT_TEXT,
    count_text,
    cpus_text,
    duration_text,
    energy_text,
    percent_text,
    ratio_of,
    size_text,
    time_text,
)
from sandbox.report.style import Style, cell_width, printable

_NAME_WIDTH = 20
_GAP = "  "
_NS_PER_USEC = 1_000
_UJ_NS_TO_WATTS = 1_000  # a microjoule a nanosecond is a kilowatt
_SAMPLED = "~"


def phase_lines(
    phases: Sequence[Phase], style: Style, *, is_full: bool = False, most: int | None = None
) -> list[str]:
    """Return one line a phase below a heading; beyond `most` only their number."""
    shown = phases[:most]
    every = [
        (head, [cell(phase) for phase in shown]) for head, cell in (_FULL if is_full else _SHORT)
    ]
    # A column that says nothing in any row is left out.
    columns = [(head, cells) for head, cells in every if set(cells) - {ABSENT_TEXT, "0 B"}]
    names = [style.clip(printable(phase.name), _NAME_WIDTH) for phase in shown]
    wide = max([cell_width(name) for name in names] + [len("phase")])
    widths = [max(map(len, (head, *cells))) for head, cells in columns]

    def line(name: str, cells: Sequence[str]) -> str:
        right = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        return _GAP.join([name + " " * (wide - cell_width(name)), *right])

    lines = [style.paint(line("phase", [head for head, _ in columns]), "dim")]
    for index, name in enumerate(names):
        lines.append(line(name, [cells[index] for _, cells in columns]))
    if len(shown) < len(phases):
        more = count_text(len(phases) - len(shown), "more phase", "more phases")
        lines.append(f"and {more}, see the details")
    return lines


def _cpus(phase: Phase) -> float | None:
    used = phase.totals.cpu_usage_usec
    return ratio_of(None if used is None else used * _NS_PER_USEC, phase.wall_ns)


def _peak(phase: Phase) -> str:
    sampled = _SAMPLED if phase.totals.memory_peak_source == "sampled" else ""
    return sampled + size_text(phase.totals.memory_peak_bytes)


def _moved(phase: Phase, of: Callable[[DeviceIo], int]) -> str:
    devices = phase.totals.io
    return ABSENT_TEXT if devices is None else size_text(sum(map(of, devices)))


def _throttled(phase: Phase) -> str:
    totals = phase.totals
    return percent_text(ratio_of(totals.cpu_throttled_periods, totals.cpu_periods))


_SHORT: tuple[tuple[str, Callable[[Phase], str]], ...] = (
    ("wall", lambda phase: duration_text(phase.wall_ns)),
    ("CPUs", lambda phase: cpus_text(_cpus(phase))),
    ("peak", _peak),
    ("read", lambda phase: _moved(phase, lambda device: device.read_bytes)),
    ("written", lambda phase: _moved(phase, lambda device: device.write_bytes)),
)
_FULL = (
    _SHORT[0],
    ("CPU time", lambda phase: time_text(phase.totals.cpu_usage_usec)),
    _SHORT[1],
    ("throttled", _throttled),
    *_SHORT[2:],
    ("energy", lambda phase: energy_text(phase.totals.energy_uj)),
)


def energy_line(result: RunResult) -> str:
    """Return what the machine's packages took while the run lasted; empty where nobody knows."""
    used = result.totals.energy_uj
    if used is None:
        return ""
    text = f"{energy_text(used)} of the whole machine"
    if result.wall_ns:
        text += f", {used / result.wall_ns * _UJ_NS_TO_WATTS:.3g} W on average"
    return text
