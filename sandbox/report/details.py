"""All that is known of one run: what was asked, what held, what was used, what is lacking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sandbox.analysis.curve import Curve
from sandbox.analysis.in_force import cpus_in_force, memory_in_force_bytes
from sandbox.records.limits import LimitReport, LimitState
from sandbox.records.result import OomKill, Outcome, Pressure, RunResult, Summary, Totals
from sandbox.report.chart import render_chart
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
    waited_share,
)
from sandbox.report.parts import header, network_rows, port_rows, warning_lines
from sandbox.report.phases import energy_line, phase_lines
from sandbox.report.style import Style, command_line, printable
from sandbox.units import NS_PER_SEC, format_cpu_list

_LABEL_WIDTH = 23
_CHART_HEIGHT = 4
_NS_PER_USEC = 1_000

Row = tuple[str, str]


def render_details(
    result: RunResult,
    *,
    width: int,
    color: bool,
    unicode: bool,
    curve: Curve | None = None,
) -> str:
    """Return the whole record of a run for people; `curve` draws its CPU and memory over time."""
    style = Style(width=width, color=color, unicode=unicode)
    lines = [header(result, style)]
    lines += _section("Run", _run_rows(result), style)
    if curve is not None:
        lines += _charts(result, curve, style)
    if result.outcome is not Outcome.NOT_STARTED:
        if result.phases:
            lines += ["", style.paint("Phases", "bold")]
            lines += ["  " + line for line in phase_lines(result.phases, style, is_full=True)]
        lines += _section("CPU", _cpu_rows(result), style)
        lines += _section("Memory", _memory_rows(result), style)
        lines += _section("Block I/O", _io_rows(result), style)
        lines += _section(
            "Network", [*port_rows(result.ports), *network_rows(result.totals)], style
        )
        lines += _section("Processes", _process_rows(result), style)
        lines += _section("Pressure", _pressure_rows(result), style)
        lines += _section("Energy of the whole machine", _energy_rows(result), style)
    lines += _limits(result.limits, style)
    lines += _section("Protection", _protection_rows(result), style)
    lines += _section("Measuring", _measuring_rows(result), style)
    lines += _section("Host", _host_rows(result), style)
    lines += _section("Unavailable", _unavailable_rows(result), style)
    if result.warnings:
        lines += ["", *warning_lines(result.warnings, style)]
    return style.plain("\n".join(lines))


def _section(title: str, rows: Sequence[Row], style: Style) -> list[str]:
    """Return a heading and its labelled lines; nothing if there are none."""
    if not rows:
        return []
    lines = ["", style.paint(title, "bold")]
    for label, text in rows:
        wide = max(_LABEL_WIDTH, len(label) + 2)
        wrapped = style.wrap(printable(text), 2 + _LABEL_WIDTH, first=2 + wide)
        lines.append("  " + style.paint(label.ljust(wide), "dim") + wrapped[0])
        lines += wrapped[1:]
    return lines


def _run_rows(result: RunResult) -> list[Row]:
    rows = [("id", result.run_id)]
    if result.name != result.run_id:
        rows.append(("name", result.name))
    rows.append(("command", command_line(result.command)))
    rows.append(("started", utc_text(result.started_utc_ns)))
    if result.wall_ns is not None:
        rows.append(("wall time", duration_text(result.wall_ns)))
    rows.append(("outcome", result.outcome.value.replace("_", " ")))
    if result.program_status is not None:
        rows.append(("program's own status", str(result.program_status)))
    if result.program_signal is not None:
        rows.append(("program's signal", str(result.program_signal)))
    rows += [("OOM kill", _oom_text(kill)) for kill in result.oom_kills]
    if result.thread_hints:
        hints = " ".join(f"{name}={value}" for name, value in result.thread_hints.items())
        rows.append(("threads set by us", hints))
    if venv := result.spec.get("venv"):
        rows.append(("virtual environment", _venv_text(venv)))
    rows.append(("recorded in", result.directory or "nothing: no run directory could be written"))
    return rows


def _venv_text(venv: Mapping[str, Any]) -> str:
    packages = len(venv.get("packages", ()))
    built = f", built by {venv['tool']} with {packages} packages" if venv.get("tool") else ""
    return printable(f"{venv['directory']} (Python {venv['python']}{built})")


def utc_text(utc_ns: int) -> str:
    """Return a point in time as `2026-11-21 08:20:38 UTC`."""
    from datetime import datetime, timezone

    moment = datetime.fromtimestamp(utc_ns // NS_PER_SEC, timezone.utc)  # noqa: UP017 - 3.11 too
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _oom_text(kill: OomKill) -> str:
    why = "the host was short of memory" if kill.cause == "host" else "the limit was reached"
    return f"at {duration_text(kill.since_start_ns)}: {why}"


def _charts(result: RunResult, curve: Curve, style: Style) -> Iterator[str]:
    summary = result.summary or Summary()
    base = summary.cpu_limit or cpus_in_force(result)
    cpu_top = max([base, *(cpus for cpus in curve.cpus if cpus is not None)])
    memory = [size for size in curve.memory_bytes if size is not None]
    limit = memory_in_force_bytes(result)
    # A limit far above would press the curve flat: then the peak is the top of the scale.
    largest = max(memory, default=0)
    memory_top = limit if limit is not None and limit <= 4 * largest else largest
    length = duration_text(curve.step_ns * len(curve.cpus))
    drawn: list[tuple[str, Sequence[float | None], float, str]] = []
    if any(cpus is not None for cpus in curve.cpus):
        drawn.append(("CPUs", curve.cpus, cpu_top, cpus_text(cpu_top)))
    if memory:
        drawn.append(("Memory", curve.memory_bytes, float(memory_top), size_text(memory_top)))
    for title, values, top, label in drawn:
        yield ""
        yield f"{style.paint(title, 'bold')} over {length}"
        labels = (label.rjust(10), "0")
        yield from render_chart(values, top=top, labels=labels, height=_CHART_HEIGHT, style=style)


def _cpu_rows(result: RunResult) -> list[Row]:
    totals, summary = result.totals, result.summary or Summary()
    base = summary.cpu_limit or cpus_in_force(result)

    def of_limit(cpus: float | None) -> str:
        if cpus is None:
            return ABSENT_TEXT
        return f"{cpus:.3f} CPUs, {percent_text(cpus / base)} of {base:g}"

    short = f"{ABSENT_TEXT} (a run below 2 s has no windows of 1 s)"
    return [
        ("total", time_text(totals.cpu_usage_usec)),
        ("user", time_text(totals.cpu_user_usec)),
        ("system", time_text(totals.cpu_system_usec)),
        ("mean", of_limit(summary.cpu_mean)),
        ("p95 of 1 s windows", short if summary.cpu_p95 is None else of_limit(summary.cpu_p95)),
        ("busiest 1 s", short if summary.cpu_max is None else of_limit(summary.cpu_max)),
        ("throttled", _throttled(totals)),
    ]


def _throttled(totals: Totals) -> str:
    if totals.cpu_periods is None:
        return ABSENT_TEXT
    if not totals.cpu_periods:
        return "never: no quota was in force"
    ratio = ratio_of(totals.cpu_throttled_periods, totals.cpu_periods)
    return (
        f"{totals.cpu_throttled_periods} of {totals.cpu_periods} periods "
        f"({percent_text(ratio)}), {time_text(totals.cpu_throttled_usec)} summed over CPUs"
    )


def _memory_rows(result: RunResult) -> list[Row]:
    totals, summary = result.totals, result.summary or Summary()
    source = {"kernel": " (exact, by the kernel)", "sampled": " (sampled)"}
    rows = [
        (
            "peak",
            size_text(totals.memory_peak_bytes) + source.get(totals.memory_peak_source or "", ""),
        ),
        ("mean", size_text(summary.memory_mean_bytes)),
        ("largest sample", _largest_sample(result, summary)),
    ]
    split = summary.memory_split
    if split is not None:
        rows += [
            ("  at that time: anon", size_text(split.anon_bytes)),
            ("  file", size_text(split.file_bytes)),
            ("  of it shared", size_text(split.shmem_bytes)),
            ("  kernel", size_text(split.kernel_bytes)),
        ]
        if (split.uncounted_bytes or 0) > 0:
            rows.append(("  in no part yet", size_text(split.uncounted_bytes)))
    return [
        *rows,
        ("need (no page cache)", _need(summary)),
        ("page cache", size_text(summary.memory_cache_bytes)),
        ("files were", summary.page_cache or f"{ABSENT_TEXT} (cold or warm cannot be told)"),
        ("swap peak", size_text(totals.swap_peak_bytes)),
        ("reclaims at the limit", _number(totals.limit_hits)),
        ("limit without relief", _number(totals.oom_events)),
        ("OOM kills", _number(totals.oom_kills)),
    ]


def _largest_sample(result: RunResult, summary: Summary) -> str:
    text = size_text(summary.memory_peak_sampled_bytes)
    if summary.memory_peak_time_ns is None:
        return text
    return f"{text} at {duration_text(max(summary.memory_peak_time_ns - result.started_ns, 0))}"


def _need(summary: Summary) -> str:
    text = size_text(summary.memory_need_bytes)
    split = summary.memory_split
    if summary.memory_need_bytes is not None and split is not None and split.kernel_bytes is None:
        return f"{text}, the kernel's own memory left out"
    return text


def _number(value: int | None) -> str:
    return ABSENT_TEXT if value is None else str(value)


def _io_rows(result: RunResult) -> list[Row]:
    summary, devices = result.summary or Summary(), result.totals.io

    def rows(read: int | None, write: int | None, reads: int | None, writes: int | None) -> str:
        return (
            f"read {size_text(read)} in {_number(reads)}, "
            f"wrote {size_text(write)} in {_number(writes)}"
        )

    total = rows(
        summary.io_read_bytes, summary.io_write_bytes, summary.io_read_ops, summary.io_write_ops
    )
    if devices is None and summary.io_read_bytes is not None:
        total += " (sampled)"
    return [
        ("all devices", total),
        *(
            (
                device.device,
                rows(device.read_bytes, device.write_bytes, device.read_ops, device.write_ops),
            )
            for device in devices or ()
        ),
    ]


def _process_rows(result: RunResult) -> list[Row]:
    processes = None if result.summary is None else result.summary.processes_peak
    return [
        ("processes at most", f"{_number(processes)} (sampled)"),
        ("threads at most", _number(result.totals.pids_peak)),
        ("refused by the limit", _number(result.totals.pids_refused)),
        ("left over and killed", _number(result.leftover_processes)),
    ]


def _pressure_rows(result: RunResult) -> list[Row]:
    totals = result.totals
    named = (
        ("CPU", totals.cpu_pressure),
        ("memory", totals.memory_pressure),
        ("I/O", totals.io_pressure),
    )
    return [(name, _pressure(pressure, result.wall_ns)) for name, pressure in named if pressure]


def _pressure(pressure: Pressure, wall_ns: int | None) -> str:
    def part(usec: int | None) -> str:
        share = percent_text(waited_share(usec, wall_ns))
        return f"{time_text(usec)} ({share})" if usec else time_text(usec)

    return f"some waited {part(pressure.some_usec)}, all waited {part(pressure.full_usec)}"


def _energy_rows(result: RunResult) -> list[Row]:
    rows = [(use.domain, energy_text(use.energy_uj)) for use in result.totals.energy or ()]
    line = energy_line(result)
    return [("all packages", line), *rows] if line else rows


def _limits(limits: Sequence[LimitReport], style: Style) -> list[str]:
    if not limits:
        return []
    from tabulate import tabulate

    text = tabulate(
        [
            [
                limit.name.replace("_", " "),
                limit.asked + (" (default)" if limit.by_default else ""),
                limit.state.value,
                printable(limit.value or ABSENT_TEXT),
                "",
            ]
            for limit in limits
        ],
        headers=["", "asked", "state", "read back", "held by"],
        tablefmt="plain",
        disable_numparse=True,
    )
    head, *body = text.splitlines()
    held_by = 2 + head.index("held by")
    lines = ["", style.paint("Limits", "bold"), "  " + style.paint(head, "dim")]
    for limit, line in zip(limits, body, strict=True):
        files = style.wrap(limit.file or ABSENT_TEXT, held_by)
        lines += [f"  {line.rstrip()}".ljust(held_by) + files[0], *files[1:]]
        if limit.effective:
            lines += _remark(f"an outer group holds it at {limit.effective}", style)
        if limit.reason and limit.state is not LimitState.ENFORCED:
            lines += _remark(limit.reason, style)
    return lines


def _remark(text: str, style: Style) -> list[str]:
    wrapped = style.wrap(printable(text), 4)
    return ["    " + wrapped[0], *wrapped[1:]]


def _protection_rows(result: RunResult) -> list[Row]:
    return [
        (each.name.replace("_", " "), f"{each.state.value}: {each.detail}")
        for each in result.protections
    ]


def _measuring_rows(result: RunResult) -> list[Row]:
    samples = None if result.summary is None else result.summary.samples
    rows = [("samples", _number(samples))]
    interval_ns = result.spec.get("interval_ns")
    if isinstance(interval_ns, int):
        rows[0] = ("samples", f"{_number(samples)}, one every {duration_text(interval_ns)}")
    overhead = result.overhead
    if overhead is None:
        return rows
    share = ratio_of(overhead.cpu_usec * _NS_PER_USEC, result.wall_ns)
    cost = f"{time_text(overhead.cpu_usec)} of CPU"
    rows.append(
        ("our own cost", cost if share is None else f"{cost}, {percent_text(share)} of one")
    )
    rows.append(("missed", count_text(overhead.missed_ticks, "sample", "samples")))
    rows.append(("latest sample", f"{duration_text(overhead.max_late_ns)} late"))
    return rows


def _host_rows(result: RunResult) -> list[Row]:
    host = result.host
    rows = [("mode", f"{host.mode.value}: {host.mode_reason}")]
    if host.hostname:
        rows.append(("name", host.hostname))
    model = f", {host.cpu_model}" if host.cpu_model else ""
    rows += [
        ("CPUs", f"{len(host.cpus_online)} ({format_cpu_list(host.cpus_online)}){model}"),
        ("CPUs for us", format_cpu_list(host.cpus_allowed)),
        ("memory", size_text(host.memory_total_bytes)),
        ("swap", size_text(host.swap_total_bytes)),
        ("kernel", f"{host.kernel} {host.machine}"),
        ("controllers", " ".join(host.controllers) or "none"),
    ]
    rows += [("" if index else "groups", group) for index, group in enumerate(result.groups)]
    rows += [(name, version) for name, version in result.versions.items() if name != "kernel"]
    return rows


def _unavailable_rows(result: RunResult) -> list[Row]:
    reasons = dict(result.unavailable)
    if result.totals.network is None:
        reasons = {"network": "the run shares the host's network", **reasons}
    return [(name.replace("_", " "), reason) for name, reason in reasons.items()]
