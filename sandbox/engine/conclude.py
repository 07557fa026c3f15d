"""From what was observed to the result: sampled stand-ins, summary, verdict, warnings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sandbox.analysis.summary import summarize
from sandbox.analysis.verdict import decide
from sandbox.analysis.warnings import find_warnings
from sandbox.errors import LaunchError
from sandbox.records.host import HostLoad
from sandbox.records.light import replace
from sandbox.records.observed import Observed
from sandbox.records.result import Outcome, RunResult, Totals
from sandbox.records.sample import Block
from sandbox.sampling.sampler import Peak


def conclude(
    result: RunResult,
    observed: Observed,
    blocks: Iterable[Block],
    *,
    sampled_peaks: Mapping[str, Peak],
    loads: tuple[HostLoad, HostLoad],
) -> RunResult:
    """Return the whole result of a run that has ended and whose totals are read."""
    result = replace(
        result,
        totals=_fill_from_samples(result.totals, sampled_peaks),
        wall_ns=observed.ended_ns - result.started_ns,
        oom_kills=observed.oom_kills,
        leftover_processes=observed.leftover_processes,
    )
    result = decide(result, observed)
    result = replace(result, summary=summarize(result, blocks))
    return replace(result, warnings=find_warnings(result, *loads, observed=observed))


def _fill_from_samples(totals: Totals, peaks: Mapping[str, Peak]) -> Totals:
    """Fill in a peak that the kernel does not keep with the largest sample, and say so."""
    if totals.memory_peak_bytes is None and "memory_current_bytes" in peaks:
        totals = replace(
            totals,
            memory_peak_bytes=peaks["memory_current_bytes"].value,
            memory_peak_source="sampled",
        )
    if totals.pids_peak is None and "pids" in peaks:
        totals = replace(totals, pids_peak=peaks["pids"].value)
    return totals


def not_started(result: RunResult, error: LaunchError) -> RunResult:
    """Return the result of a run whose program could not be executed."""
    return replace(
        result, outcome=Outcome.NOT_STARTED, exit_code=error.exit_code, reason=str(error)
    )
