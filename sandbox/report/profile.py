"""Profiles to tables: the eight columns, the samples of each model, JSON, CSV and markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sandbox.records.codec import to_json, to_plain
from sandbox.records.profile import ModelProfile, ProfileSample
from sandbox.records.result import Outcome
from sandbox.report.style import command_line, printable
from sandbox.units import NS_PER_SEC

HEADERS = (
    "NAME",
    "AVG CPU %",
    "PEAK CPU",
    "AVG MEM USAGE / LIMIT",
    "PEAK MEM",
    "NET I/O",
    "BLOCK I/O",
    "TOTAL TIME (ms)",
)
SAMPLE_HEADERS = ("NAME", "CPU %", "MEM USAGE / LIMIT", "NET I/O", "BLOCK I/O", "TIMESTAMP")
ABSENT_TEXT = "--"

_NS_PER_MS = NS_PER_SEC // 1_000
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_BASE = 1024
_DIGITS = 3


def render_profiles(rows: Sequence[ModelProfile], tablefmt: str = "simple") -> str:
    """Return the table; a column STATUS is there only when some script did not end well."""
    from tabulate import tabulate

    failed = any(not row.is_good for row in rows)
    headers = (*HEADERS, "STATUS") if failed else HEADERS
    body = [(*_cells(row), status_of(row)) if failed else _cells(row) for row in rows]
    align = ("left", "left", "right", "left", "left", "left", "left", "right", "left")
    return tabulate(
        body,
        headers=headers,
        tablefmt=tablefmt,
        disable_numparse=True,
        colalign=align[: len(headers)] if body else None,
    )


def status_of(row: ModelProfile) -> str:
    """Return `exit 0`, `OOM, exit 137` or what else the row's script ended with."""
    code = ABSENT_TEXT if row.exit_code is None else str(row.exit_code)
    if row.outcome is Outcome.EXITED:
        return f"exit {code}"
    what = {Outcome.OOM_KILLED: "OOM", Outcome.TIMED_OUT: "timed out"}.get(row.outcome)
    return f"{what or row.outcome.value.replace('_', ' ')}, exit {code}"


def render_samples(
    command: Sequence[str], row: ModelProfile, samples: Sequence[ProfileSample]
) -> str:
    """Return the file of one run: every sample, then the table of its one row."""
    from tabulate import tabulate

    limit = _size(row.memory_limit_bytes)
    body = [
        (
            printable(row.name),
            ABSENT_TEXT if one.cpu_percent is None else f"{one.cpu_percent:.2f}%",
            f"{_size(one.memory_bytes)} / {limit}",
            f"{_size(one.net_received_bytes)} / {_size(one.net_sent_bytes)}",
            f"{_size(one.read_bytes)} / {_size(one.write_bytes)}",
            str(one.utc_ms),
        )
        for one in samples
    ]
    table = tabulate(body, headers=SAMPLE_HEADERS, tablefmt="plain", disable_numparse=True)
    return (
        f"Profiling script: {command_line(command)}\n\n{table}\n\n"
        f"Usage Stats:\n{render_profiles([row])}\n\n"
    )


def render_json(rows: Sequence[ModelProfile]) -> str:
    """Return the rows as JSON, numbers whole and with their units in the names."""
    return to_json({"rows": rows}).rstrip()


def render_csv(rows: Sequence[ModelProfile]) -> str:
    """Return the rows as CSV with the same names; what is absent is empty."""
    import csv
    import io

    text = io.StringIO()
    plain: list[dict[str, Any]] = [to_plain(row) for row in rows]
    writer = csv.DictWriter(text, fieldnames=list(plain[0]) if plain else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(plain)
    return text.getvalue().rstrip("\n")


def _cells(row: ModelProfile) -> tuple[str, ...]:
    return (
        printable(row.name),
        ABSENT_TEXT if row.cpu_mean_percent is None else f"{_rounded(row.cpu_mean_percent)}%",
        ABSENT_TEXT if row.cpu_peak_percent is None else _rounded(row.cpu_peak_percent),
        f"{_size(row.memory_mean_bytes)} / {_size(row.memory_limit_bytes)}",
        _size(row.memory_peak_bytes),
        f"{_size(row.net_received_bytes)} / {_size(row.net_sent_bytes)}",
        f"{_size(row.read_bytes)} / {_size(row.write_bytes)}",
        ABSENT_TEXT if row.wall_ns is None else str(round(row.wall_ns / _NS_PER_MS)),
    )


def _rounded(percent: float) -> str:
    return str(round(percent, _DIGITS))


def _size(size_bytes: int | None) -> str:
    if size_bytes is None:
        return ABSENT_TEXT
    value, place = float(size_bytes), 0
    while round(value, 1) >= _BASE and place < len(_UNITS) - 1:
        value /= _BASE
        place += 1
    return f"{value:.1f} {_UNITS[place]}"
