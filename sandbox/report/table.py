"""The short table at the end of a run: verdict, time, CPU, memory at a glance; then what explains.

Nothing is printed as 0 that was not measured: a dash means absent, and `unavailable` says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sandbox.analysis.in_force import (
    cpus_in_force,
    find_limit,
    memory_in_force_bytes,
    pids_in_force,
)
from sandbox.records.limits import LimitState
from sandbox.records.result import Outcome, RunResult, Summary
from sandbox.report.numbers import (
    ABSENT_TEXT,
    count_text,
    cpus_text,
    duration_text,
    percent_text,
    ratio_of,
    size_text,
    time_text,
    waited_share,
)
from sandbox.report.parts import LABEL_WIDTH, header, labelled, lacking, network_line, warning_lines
from sandbox.report.style import Style

_SHOWN_WARNINGS = 4
_SHOWN_PHASES = 12
_SAMPLED = "~"


def render_result(result: RunResult, *, width: int, color: bool, unicode: bool) -> str:
    """Return the table of one run for people: about 15 lines and the warnings."""
    style = Style(width=width, color=color, unicode=unicode)
    lines = [header(result, style)]
    if result.summary is not None or result.wall_ns is not None:
        lines += ["", *_grid(result, style), "", *_measured(result, style)]
    if result.phases:
        from sandbox.report.phases import phase_lines

        lines += ["", *phase_lines(result.phases, style, most=_SHOWN_PHASES)]
    if result.warnings:
        lines += ["", *warning_lines(result.warnings, style, most=_SHOWN_WARNINGS), ""]
    lines += _details(result, style)
    return style.plain("\n".join(lines))


def _measured(result: RunResult, style: Style) -> Iterator[str]:
    yield from labelled("time", _time(result), style)
    if result.totals.cpu_periods:
        yield from labelled("throttled", _throttled(result), style)
    yield from labelled("memory need", _memory(result), style)
    if result.summary is not None and result.summary.memory_split is not None:
        yield from labelled("at the peak", _split(result.summary), style)
    yield from labelled("tasks", _tasks(result), style)
    for label, text in (
        ("disk", _disk(result)),
        ("network", network_line(result.totals)),
        ("waited", _waited(result)),
    ):
        if text:
            yield from labelled(label, text, style)
    if result.totals.energy_uj is not None:
        from sandbox.report.phases import energy_line

        yield from labelled("energy", energy_line(result), style)
    two_lines = 2 * (style.width - LABEL_WIDTH)
    if missing := lacking(result, two_lines):
        yield from labelled("unavailable", missing, style)


def _time(result: RunResult) -> str:
    totals = result.totals
    wall = None if result.wall_ns is None else duration_text(result.wall_ns)
    text = "its end was not seen" if wall is None else f"{wall} wall"
    if totals.cpu_usage_usec is None:
        return text
    text += f", {time_text(totals.cpu_usage_usec)} CPU"
    if totals.cpu_user_usec is not None and totals.cpu_system_usec is not None:
        user, system = time_text(totals.cpu_user_usec), time_text(totals.cpu_system_usec)
        text += f" ({user} user, {system} system)"
    return text


def _grid(result: RunResult, style: Style) -> Iterator[str]:
    """Yield CPUs and memory side by side; a column that says nothing in either row is left out."""
    summary = result.summary or Summary()
    rows = [_cpu_row(result, summary), _memory_row(result, summary)]
    heads = ["mean", "", "p95", "", "peak", "", "limit = 100 %"]
    kept = [0, 1, 4, 5, 6] if all(row[2] in {"", ABSENT_TEXT} for row in rows) else list(range(7))
    head, *body = _columns(
        [heads[index] for index in kept], *([row[i] for i in kept] for row in rows)
    )
    yield " " * LABEL_WIDTH + style.paint(head.rstrip(), "dim")
    for label, line in zip(("CPUs", "memory"), body, strict=True):
        yield style.paint(label.ljust(LABEL_WIDTH), "bold") + line.rstrip()


def _columns(heads: Sequence[str], *rows: Sequence[str]) -> Iterator[str]:
    """Yield lines in columns, the last one to the left; by hand, as tabulate takes 5 ms to load."""
    *columns, _ = zip(heads, *rows, strict=True)
    widths = [max(len(head) + 2, *map(len, cells)) for head, *cells in columns]
    for *cells, last in (heads, *rows):
        yield "  ".join([*map(str.rjust, cells, widths), last])


def _cpu_row(result: RunResult, summary: Summary) -> list[str]:
    base = summary.cpu_limit or cpus_in_force(result)
    cells: list[str] = []
    for cpus in (summary.cpu_mean, summary.cpu_p95, summary.cpu_max):
        cells += [cpus_text(cpus), "" if cpus is None else percent_text(cpus / base)]
    chosen = find_limit(result, "cpuset_cpus")
    whose = "of the host" if chosen is None else "by --cpuset-cpus"
    return [*cells, _limit_cell(result, "cpus", f"{base:g}", none=f"{base:g} {whose}")]


def _memory_row(result: RunResult, summary: Summary) -> list[str]:
    limit = memory_in_force_bytes(result)
    mean, peak = summary.memory_mean_bytes, result.totals.memory_peak_bytes
    sampled = _SAMPLED if result.totals.memory_peak_source == "sampled" else ""
    shares = [
        "" if limit is None or size is None else percent_text(size / limit) for size in (mean, peak)
    ]
    cell = _limit_cell(result, "memory", size_text(limit), none="none")
    return [size_text(mean), shares[0], "", "", sampled + size_text(peak), shares[1], cell]


def _limit_cell(result: RunResult, name: str, value: str, *, none: str) -> str:
    limit = find_limit(result, name)
    if limit is None or limit.asked in {"unlimited", "-1"}:
        return none
    if limit.state is LimitState.UNAVAILABLE:
        return f"{none.partition(' ')[0]} ({limit.asked} not held)"
    return f"{value} (approx.)" if limit.state is LimitState.APPROXIMATED else value


def _throttled(result: RunResult) -> str:
    totals = result.totals
    ratio = ratio_of(totals.cpu_throttled_periods, totals.cpu_periods)
    return (
        f"in {percent_text(ratio)} of {totals.cpu_periods} periods, "
        f"{time_text(totals.cpu_throttled_usec)} summed over CPUs"
    )


def _memory(result: RunResult) -> str:
    totals, summary = result.totals, result.summary or Summary()
    need, cache = summary.memory_need_bytes, summary.memory_cache_bytes
    least = "at least " if result.outcome is Outcome.OOM_KILLED else ""
    parts = ["not sampled" if need is None else least + size_text(need)]
    if need is not None and cache is not None:
        size = f"up to {size_text(cache)}" if cache else "none"
        state = f", {summary.page_cache}" if summary.page_cache else ""
        parts[0] += f" without page cache ({size}{state})"
    if totals.memory_peak_source == "sampled":
        parts.append("~ marks a sampled peak")
    if totals.swap_peak_bytes:
        parts.append(f"swap up to {size_text(totals.swap_peak_bytes)}")
    elif totals.swap_peak_bytes == 0 or not result.host.swap_total_bytes:
        parts.append("no swap")
    if totals.oom_kills and result.outcome is not Outcome.OOM_KILLED:
        parts.append(count_text(totals.oom_kills, "OOM kill", "OOM kills"))
    return ", ".join(parts)


def _split(summary: Summary) -> str:
    split = summary.memory_split
    if split is None:
        return ""
    sizes = {
        "anon": split.anon_bytes,
        "file": split.file_bytes,
        "shmem": split.shmem_bytes,
        "kernel": split.kernel_bytes,
        "not counted yet": max(split.uncounted_bytes or 0, 0) or None,
    }
    known = [f"{name} {size_text(size)}" for name, size in sizes.items() if size is not None]
    return ", ".join(known) + " (sampled)"


def _tasks(result: RunResult) -> str:
    processes = None if result.summary is None else result.summary.processes_peak
    parts = []
    if processes is not None:
        parts.append(count_text(processes, "process", "processes"))
    if result.totals.pids_peak is not None:
        parts.append(count_text(result.totals.pids_peak, "thread", "threads"))
    text = f"{', '.join(parts)} at most" if parts else "not counted"
    limit = pids_in_force(result)
    if limit is not None:
        text += f" (limit {limit})"
    if result.leftover_processes:
        left = count_text(result.leftover_processes, "process", "processes")
        text += f"; {left} left over and killed"
    return text


def _disk(result: RunResult) -> str:
    summary = result.summary
    if summary is None or summary.io_read_bytes is None or summary.io_write_bytes is None:
        return ""
    if not summary.io_read_bytes and not summary.io_write_bytes:
        return "nothing read or written"
    return (
        f"read {_io(summary.io_read_bytes, summary.io_read_ops)}, "
        f"wrote {_io(summary.io_write_bytes, summary.io_write_ops)}"
        + ("" if result.totals.io is not None else " (sampled)")
    )


def _io(size_bytes: int, ops: int | None) -> str:
    if not size_bytes:
        return "nothing"
    requests = "" if ops is None else f" in {count_text(ops, 'request', 'requests')}"
    return size_text(size_bytes) + requests


def _waited(result: RunResult) -> str:
    """Return PSI `some` as shares of the run's time."""
    shares = [
        f"{name} {percent_text(waited_share(pressure.some_usec, result.wall_ns))}"
        for name, pressure in (
            ("CPU", result.totals.cpu_pressure),
            ("memory", result.totals.memory_pressure),
            ("I/O", result.totals.io_pressure),
        )
        if pressure is not None
    ]
    return f"for {', '.join(shares)} of the time (PSI some)" if shares else ""


def _details(result: RunResult, style: Style) -> list[str]:
    if result.directory is None:
        return labelled("details", "not recorded: no run directory could be written", style)
    command = style.paint(f"sandbox runs show {result.run_id}", "green")
    return labelled("details", command, style, wrap=False)
