"""What there is to compare: recorded runs, and files that `sandbox bench` or hyperfine wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sandbox.errors import StoreError
from sandbox.records.light import dataclass
from sandbox.records.result import Outcome, RunResult

TIME, CPU_TIME, PEAK = "time", "cpu", "memory"
METRICS = (TIME, CPU_TIME, PEAK)
_NS_PER_SEC = 1e9
_USEC_PER_SEC = 1e6


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Figures of one command by metric: seconds, CPU seconds and bytes."""

    name: str
    figures: dict[str, tuple[float, ...]]
    failed: int = 0
    """Runs that did not end well; their figures count all the same."""


def read_side(text: str, load: Callable[[str], RunResult]) -> list[Measured]:
    """Return what one side of a comparison has: `load` finds a run by its id, name or file.

    `text` is a file of benchmarks, or one run, or several separated by commas, which are repeats.

    Raises:
        StoreError: there is no such file or run, or it holds no figures.
    """
    path = Path(text)
    if path.is_file() and (found := _benchmarks_in(path)) is not None:
        return found
    runs = [load(word) for word in text.split(",") if word]
    if not runs:
        raise StoreError(f"`{text}` names no run", hint="`sandbox runs ls` lists them")
    return [_of_runs(runs)]


def pair(before: Sequence[Measured], after: Sequence[Measured]) -> list[tuple[Measured, Measured]]:
    """Return what belongs together: by name, or by place where the numbers are equal.

    Raises:
        StoreError: nothing belongs together.
    """
    by_name = {one.name: one for one in after}
    pairs = [(one, by_name[one.name]) for one in before if one.name in by_name]
    if not pairs and len(before) == len(after):
        pairs = list(zip(before, after, strict=True))
    if not pairs:
        raise StoreError(
            f"{len(before)} commands cannot be compared with {len(after)} others",
            hint="their names differ: `sandbox bench -n NAME` names them",
        )
    return pairs


def _of_runs(runs: Sequence[RunResult]) -> Measured:
    walls = [run.wall_ns / _NS_PER_SEC for run in runs if run.wall_ns is not None]
    cpu = [run.totals.cpu_usage_usec for run in runs if run.totals.cpu_usage_usec is not None]
    peaks = [run.totals.memory_peak_bytes for run in runs]
    return Measured(
        name=" ".join(runs[0].command),
        figures={
            TIME: tuple(walls),
            CPU_TIME: tuple(used / _USEC_PER_SEC for used in cpu),
            PEAK: tuple(float(peak) for peak in peaks if peak is not None),
        },
        failed=sum(not run.outcome.is_success(run.exit_code) for run in runs),
    )


def _benchmarks_in(path: Path) -> list[Measured] | None:
    """Return the benchmarks of a file in hyperfine's form; None if it is something else."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(plain, dict) or not isinstance(plain.get("results"), list):
        return None
    try:
        return [_of_result(result) for result in plain["results"]]
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise StoreError(
            f"{path} is no file of benchmarks: {type(exc).__name__} at {exc}",
            hint="make one with `sandbox bench --export-json FILE`",
        ) from None


def _of_result(result: dict[str, Any]) -> Measured:
    times = tuple(float(value) for value in result["times"])
    each = (result.get("sandbox") or {}).get("cpu_seconds") or ()
    cpu = tuple(float(value) for value in each if value is not None)
    if not cpu and result.get("user") is not None:  # hyperfine keeps the mean alone
        cpu = (float(result["user"]) + float(result["system"]),)
    peaks = tuple(float(p) for p in result.get("memory_usage_byte") or () if p is not None)
    return Measured(
        name=str(result["command"]),
        figures={TIME: times, CPU_TIME: cpu, PEAK: peaks},
        failed=_failures(result),
    )


def _failures(result: dict[str, Any]) -> int:
    """Count the runs that did not end well; hyperfine knows their exit statuses alone."""
    codes = result.get("exit_codes") or ()
    outcomes = (result.get("sandbox") or {}).get("outcomes") or (Outcome.EXITED,) * len(codes)
    return sum(
        code != 0 or outcome != Outcome.EXITED
        for code, outcome in zip(codes, outcomes, strict=True)
    )
