"""The flags of gates, and how a command tells of those that were not passed."""

# Without `from __future__ import annotations`, as in the commands themselves.

from typing import TYPE_CHECKING, Annotated

from sandbox.cli.options import option
from sandbox.units import parse_duration, parse_size

if TYPE_CHECKING:
    from sandbox.analysis.gates import Gates
    from sandbox.records.result import RunResult

_PANEL = "Gates"

MaxPeak = Annotated[
    int | None,
    option(
        "--max-peak",
        panel=_PANEL,
        metavar="SIZE",
        parser=parse_size,
        help="Fail if the memory peak is above it; the run is not held to it.",
    ),
]
MaxTime = Annotated[
    int | None,
    option(
        "--max-time",
        panel=_PANEL,
        metavar="TIME",
        parser=parse_duration,
        help="Fail if the wall time is above it; --timeout would end the run.",
    ),
]
MaxCpuTime = Annotated[
    int | None,
    option(
        "--max-cpu-time",
        panel=_PANEL,
        metavar="TIME",
        parser=parse_duration,
        help="Fail if the CPU time of all its processes is above it.",
    ),
]


def make_gates(peak: int | None, time: int | None, cpu_time: int | None = None) -> "Gates | None":
    """Return the gates that were asked for, or None."""
    if peak is None and time is None and cpu_time is None:
        return None
    from sandbox.analysis.gates import Gates

    return Gates(peak_bytes=peak, time_ns=time, cpu_time_ns=cpu_time)


def failures_of(gates: "Gates", result: "RunResult") -> tuple[str, ...]:
    """Return a sentence for each gate that a run has not passed."""
    from sandbox.analysis.gates import failed_gates

    return failed_gates(
        gates,
        peak_bytes=result.totals.memory_peak_bytes,
        wall_ns=result.wall_ns,
        cpu_time_usec=result.totals.cpu_usage_usec,
    )
