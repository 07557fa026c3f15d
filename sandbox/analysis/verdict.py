"""How a run ended: from what was observed to its outcome, exit code and one line for people."""

from __future__ import annotations

import signal

from sandbox.analysis.in_force import asked_limits, memory_in_force_bytes
from sandbox.errors import EXIT_SANDBOX
from sandbox.records.light import dataclass, replace
from sandbox.records.observed import Observed, StopCause
from sandbox.records.program import ExitStatus
from sandbox.records.result import Outcome, RunResult
from sandbox.units import format_duration, format_size

EXIT_TIMED_OUT = 124
EXIT_OUT_OF_MEMORY = 137
_SIGNAL_BASE = 128
_NS_PER_USEC = 1_000


@dataclass(frozen=True)
class Verdict:
    """How a run ended and what `sandbox run` exits with."""

    outcome: Outcome
    exit_code: int
    reason: str


def decide(result: RunResult, observed: Observed) -> RunResult:
    """Return `result` with its outcome, exit code, reason and the program's own end.

    `result` carries the totals (for the kernel's OOM counter), the limits and the spec.
    """
    verdict = find_verdict(result, observed)
    exit_status = observed.exit or ExitStatus()
    return replace(
        result,
        outcome=verdict.outcome,
        exit_code=verdict.exit_code,
        reason=verdict.reason,
        program_status=exit_status.status,
        program_signal=exit_status.signal,
    )


def find_verdict(result: RunResult, observed: Observed) -> Verdict:
    """Return the verdict; the first of these that applies.

    1. an OOM kill inside the run, whoever it hit (unless the run was to go on): 137
    2. a limit that the supervisor keeps: memory 137, wall clock and CPU time 124
    3. somebody stopped the run: the program's own status
    4. the program's own end: its status, or 128 + the signal
    """
    kills = _oom_kill_count(result, observed)
    ended = observed.exit
    if kills and not (result.spec.get("oom_continue") and _outlived_oom(observed)):
        return Verdict(Outcome.OOM_KILLED, EXIT_OUT_OF_MEMORY, _oom_reason(result, observed))
    if observed.stop_cause is not None and observed.stop_cause is not StopCause.OOM:
        return _stopped(result, observed, observed.stop_cause)
    if ended is None or (ended.status is None and ended.signal is None):
        return Verdict(Outcome.KILLED, EXIT_SANDBOX, "the end of the program was not seen")
    suffix = f" ({_times(kills, 'OOM kill')} inside)" if kills else ""
    if ended.signal is not None:
        code = _SIGNAL_BASE + ended.signal
        reason = f"ended by {signal_name(ended.signal)} ({code}){suffix}"
        return Verdict(Outcome.SIGNALED, code, reason)
    status = ended.status or 0
    return Verdict(Outcome.EXITED, status, f"exited {status}{suffix}")


def signal_name(number: int) -> str:
    """Return `SIGKILL` for 9, `SIGRTMIN+3` for a real-time signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def _oom_kill_count(result: RunResult, observed: Observed) -> int:
    counted = max(result.totals.oom_kills or 0, len(observed.oom_kills))
    return max(counted, 1) if observed.stop_cause is StopCause.OOM else counted


def _outlived_oom(observed: Observed) -> bool:
    """Return whether the main process was spared by the kernel."""
    killed = observed.exit is not None and observed.exit.signal == signal.SIGKILL
    return not killed or observed.stop_cause not in {None, StopCause.OOM}


def _oom_reason(result: RunResult, observed: Observed) -> str:
    when = ""
    if observed.oom_kills:
        when = f" at {short_duration(observed.oom_kills[0].since_start_ns)}"
    if observed.oom_kills and observed.oom_kills[0].cause == "host":
        return f"killed: the host ran out of memory{when}, not the run"
    limit = memory_in_force_bytes(result)
    held_by = "an outer group's limit" if limit is None else f"limit {format_size(limit)}"
    return f"killed: out of memory{when} ({held_by})"


def _stopped(result: RunResult, observed: Observed, cause: StopCause) -> Verdict:
    limits = asked_limits(result)
    if cause is StopCause.MEMORY:
        limit = memory_in_force_bytes(result) or limits.get("memory_bytes")
        most = "" if limit is None else f" of {format_size(limit)}"
        reason = f"killed: out of memory, sampled above the limit{most}"
        return Verdict(Outcome.OOM_KILLED, EXIT_OUT_OF_MEMORY, reason)
    if cause is StopCause.TIMEOUT:
        most = _of_duration(limits.get("timeout_ns"), 1)
        reason = f"killed: wall-clock limit{most}"
        return Verdict(Outcome.TIMED_OUT, EXIT_TIMED_OUT, reason)
    if cause is StopCause.CPU_TIME:
        most = _of_duration(limits.get("cpu_time_usec"), _NS_PER_USEC)
        reason = f"killed: CPU time limit{most}"
        return Verdict(Outcome.CPU_TIME_EXCEEDED, EXIT_TIMED_OUT, reason)
    return _stopped_by_somebody(observed)


def _stopped_by_somebody(observed: Observed) -> Verdict:
    if observed.stop_by is not None:
        verb = "killed" if observed.stop_signal == signal.SIGKILL else "stopped"
        who = f"{verb} by {observed.stop_by}"
    elif observed.stop_signal is None:
        who = "stopped by the caller"
    else:
        who = f"stopped by {signal_name(observed.stop_signal)}"
        if observed.stop_sender_pid:
            who += f" from process {observed.stop_sender_pid}"
    ended = observed.exit
    if ended is not None and ended.status is not None:
        return Verdict(Outcome.KILLED, ended.status, f"{who}, the program exited {ended.status}")
    last = signal.SIGKILL if ended is None or ended.signal is None else ended.signal
    code = _SIGNAL_BASE + last
    return Verdict(
        Outcome.KILLED, code, f"{who}, the program ended by {signal_name(last)} ({code})"
    )


def _of_duration(value: object, unit_ns: int) -> str:
    return f" of {short_duration(value * unit_ns)}" if isinstance(value, int) else ""


def short_duration(duration_ns: int) -> str:
    """Return a duration without the zeros that say nothing: `10 s`, `3.21 s`, `1.5 s`."""
    number, _, unit = format_duration(duration_ns).partition(" ")
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    return f"{number} {unit}"


def _times(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
