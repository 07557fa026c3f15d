"""Repeats of one command: what each took, and what may have disturbed it."""

from __future__ import annotations

from sandbox.records.light import dataclass, field
from sandbox.records.result import Outcome, RunResult


@dataclass(frozen=True, kw_only=True)
class Repeat:
    """One measured run of a benchmark; None where the host does not tell."""

    run_id: str
    outcome: Outcome
    exit_code: int | None
    wall_ns: int
    cpu_user_usec: int | None = None
    cpu_system_usec: int | None = None
    memory_peak_bytes: int | None = None
    throttled_ratio: float | None = None
    """Share of the quota's periods in which it was used up; None without a CPU limit."""
    io_read_bytes: int | None = None
    cpu_waited_usec: int | None = None
    """PSI: time in which some task of the run waited for a CPU."""
    memory_waited_usec: int | None = None
    io_waited_usec: int | None = None
    disturbances: dict[str, str] = field(default_factory=dict)
    """What the host did meanwhile, by the codes of warnings: `steal`, `other_load` …"""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """All measured runs of one command, in the order in which they ran."""

    command: str
    """As a shell would take it, or the name that was given to it."""
    parameters: dict[str, str] = field(default_factory=dict)
    repeats: tuple[Repeat, ...] = ()


_HOST = frozenset(
    {"steal", "other_load", "host_swapped", "host_out_of_memory", "thermal_throttled"}
)


def repeat_of(result: RunResult) -> Repeat:
    """Return what a benchmark keeps of a run that has ended."""
    totals, summary = result.totals, result.summary
    pressures = (totals.cpu_pressure, totals.memory_pressure, totals.io_pressure)
    cpu, memory, io = (None if one is None else one.some_usec for one in pressures)
    return Repeat(
        run_id=result.run_id,
        outcome=result.outcome,
        exit_code=result.exit_code,
        wall_ns=result.wall_ns or 0,
        cpu_user_usec=totals.cpu_user_usec,
        cpu_system_usec=totals.cpu_system_usec,
        memory_peak_bytes=totals.memory_peak_bytes,
        throttled_ratio=None if summary is None else summary.throttled_ratio,
        io_read_bytes=None if summary is None else summary.io_read_bytes,
        cpu_waited_usec=cpu,
        memory_waited_usec=memory,
        io_waited_usec=io,
        disturbances={one.code: one.text for one in result.warnings if one.code in _HOST},
    )
