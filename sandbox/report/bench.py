"""Benchmarks to text for people, and to hyperfine's JSON for its plotting scripts and others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sandbox.analysis.outliers import Outlier, explain_outliers
from sandbox.analysis.statistics_of_runs import Statistics, ratio_of, statistics_of
from sandbox.records.benchmark import Benchmark, Repeat
from sandbox.records.codec import to_json
from sandbox.report.style import Style, printable
from sandbox.units import NS_PER_SEC, USEC_PER_SEC, format_duration, format_size

_LABEL_WIDTH = 10
_NS_PER_USEC = 1_000
_MOST_WARNINGS = 3
_COARSE = 0.005  # below it two digits would show no error at all


def render_benchmark(benchmark: Benchmark, number: int, style: Style) -> str:
    """Return one command's figures: time, CPU time, memory, throttling, and what disturbed it."""
    text = printable(benchmark.command)
    lines = [style.paint(f"Benchmark {number}", "bold") + f": {text}"]
    rows = [*_time_rows(benchmark.repeats), *_other_rows(benchmark.repeats)]
    lines += [f"  {label:<{_LABEL_WIDTH}}{value}" for label, value in rows]
    for warning, hint in _warnings(benchmark.repeats):
        lines.append(f"  {style.paint('warning', 'yellow')}   {warning}")
        lines.append(f"  {style.paint('hint', 'cyan'):<{_LABEL_WIDTH}}{hint}")
    return style.plain("\n".join(lines))


def render_ratios(benchmarks: Sequence[Benchmark], style: Style, reference: int | None) -> str:
    """Return how the commands' mean times compare; the fastest is the reference unless given."""
    times = [_times(benchmark) for benchmark in benchmarks]
    if reference is None:
        reference = min(range(len(times)), key=lambda place: times[place].mean)
    base = times[reference]
    lines = [style.paint("Summary", "bold")]
    lines.append(f"  {printable(benchmarks[reference].command)}, {_time(base.mean)}, is the base")
    for place in sorted(range(len(times)), key=lambda place: times[place].mean):
        if place == reference:
            continue
        slower = times[place].mean >= base.mean
        ratio = ratio_of(times[place], base) if slower else ratio_of(base, times[place])
        if ratio is None:
            continue
        digits = 2 if ratio.stddev is None or ratio.stddev >= _COARSE else 3
        error = "" if ratio.stddev is None else f" ± {ratio.stddev:.{digits}f}"
        word = "slower" if slower else "faster"
        name = printable(benchmarks[place].command)
        lines.append(f"  {ratio.value:.{digits}f}{error} times {word}: {name}")
    return style.plain("\n".join(lines))


def hyperfine_json(benchmarks: Sequence[Benchmark]) -> str:
    """Return the benchmarks as hyperfine exports them; what it does not know is below `sandbox`."""
    return to_json({"results": [_hyperfine_result(benchmark) for benchmark in benchmarks]})


def judged_figures(benchmark: Benchmark) -> dict[str, Any]:
    """Return what gates judge: the highest peak, the mean wall time, the mean CPU time.

    None where a run has no figure: a mean without it would hide that.
    """
    repeats = benchmark.repeats
    peaks = [one.memory_peak_bytes for one in repeats]
    known = [peak for peak in peaks if peak is not None]
    user = _mean(repeats, lambda one: one.cpu_user_usec)
    system = _mean(repeats, lambda one: one.cpu_system_usec)
    return {
        "peak_bytes": max(known) if len(known) == len(peaks) else None,
        "wall_ns": round(statistics_of([one.wall_ns for one in repeats]).mean),
        "cpu_time_usec": None if user is None or system is None else round(user + system),
    }


def _hyperfine_result(benchmark: Benchmark) -> dict[str, Any]:
    times, repeats = _times(benchmark), benchmark.repeats
    plain: dict[str, Any] = {
        "command": benchmark.command,
        "mean": times.mean,
        "stddev": times.stddev,
        "median": times.median,
        "user": _mean(repeats, lambda one: _seconds(one.cpu_user_usec)),
        "system": _mean(repeats, lambda one: _seconds(one.cpu_system_usec)),
        "min": times.minimum,
        "max": times.maximum,
        "times": [one.wall_ns / NS_PER_SEC for one in repeats],
        "memory_usage_byte": [one.memory_peak_bytes for one in repeats],
        "exit_codes": [one.exit_code for one in repeats],
    }
    if benchmark.parameters:
        plain["parameters"] = benchmark.parameters
    plain["sandbox"] = {
        "run_ids": [one.run_id for one in repeats],
        "outcomes": [one.outcome for one in repeats],
        "mean_interval_95": times.interval,
        "throttled_ratio": [one.throttled_ratio for one in repeats],
        "cpu_seconds": [_cpu_seconds(one) for one in repeats],
    }
    return plain


def _cpu_seconds(one: Repeat) -> float | None:
    if one.cpu_user_usec is None or one.cpu_system_usec is None:
        return None
    return (one.cpu_user_usec + one.cpu_system_usec) / USEC_PER_SEC


def _times(benchmark: Benchmark) -> Statistics:
    return statistics_of([one.wall_ns / NS_PER_SEC for one in benchmark.repeats])


def _time_rows(repeats: Sequence[Repeat]) -> Iterator[tuple[str, str]]:
    times = statistics_of([one.wall_ns / NS_PER_SEC for one in repeats])
    spread = "" if times.stddev is None else f" ± {_time(times.stddev)}"
    runs = f"{times.count} run" + ("" if times.count == 1 else "s")
    yield "time", f"{_time(times.mean)}{spread} (mean ± \u03c3, {runs})"
    if times.interval is not None:
        low, high = times.mean - times.interval, times.mean + times.interval
        yield "", f"{_time(max(low, 0.0))} … {_time(high)} (95 % interval of the mean)"
    yield "median", f"{_time(times.median)}, {_time(times.minimum)} … {_time(times.maximum)}"


def _other_rows(repeats: Sequence[Repeat]) -> Iterator[tuple[str, str]]:
    user = _mean(repeats, lambda one: _seconds(one.cpu_user_usec))
    system = _mean(repeats, lambda one: _seconds(one.cpu_system_usec))
    if user is not None and system is not None:
        yield "CPU time", f"{_time(user)} user, {_time(system)} system"
    peaks = [one.memory_peak_bytes for one in repeats if one.memory_peak_bytes is not None]
    if peaks:
        highest, lowest = format_size(max(peaks)), format_size(min(peaks))
        yield "memory", f"{highest} at most" + ("" if highest == lowest else f", {lowest} at least")
    throttled = _mean(repeats, lambda one: one.throttled_ratio)
    if throttled is not None:
        yield "throttled", f"in {throttled:.0%} of the periods"
    failed = sum(one.exit_code != 0 for one in repeats)
    if failed:
        yield "failed", f"{failed} of {len(repeats)} runs"


def _warnings(repeats: Sequence[Repeat]) -> Iterator[tuple[str, str]]:
    outliers = explain_outliers(repeats)
    for outlier in outliers[:_MOST_WARNINGS]:
        yield _outlier_text(outlier), outlier.hint
    if len(outliers) > _MOST_WARNINGS:
        yield f"{len(outliers) - _MOST_WARNINGS} more outliers", "take more --runs"
    for code in ("steal", "thermal_throttled", "host_swapped"):
        disturbed = sum(code in one.disturbances for one in repeats)
        if disturbed == len(repeats):
            yield (
                f"all runs were disturbed: {repeats[0].disturbances[code]}",
                "times on a quiet machine may be shorter",
            )


def _outlier_text(outlier: Outlier) -> str:
    took = _time(outlier.repeat.wall_ns / NS_PER_SEC)
    usual = _time(outlier.median_ns / NS_PER_SEC)
    cause = outlier.cause or "nothing that was measured says why"
    return f"run {outlier.place + 1} took {took}, the median is {usual}: {cause}"


def _mean(repeats: Sequence[Repeat], figure: Callable[[Repeat], float | None]) -> float | None:
    known = [value for value in map(figure, repeats) if value is not None]
    return statistics_of(known).mean if len(known) == len(repeats) else None


def _seconds(usec: int | None) -> float | None:
    return None if usec is None else usec / USEC_PER_SEC


def _time(seconds: float) -> str:
    return format_duration(round(seconds * NS_PER_SEC))
