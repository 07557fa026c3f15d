"""Every way in which a run can end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.analysis.verdict import decide, find_verdict, short_duration, signal_name
from sandbox.records.limits import LimitReport, LimitState
from sandbox.records.observed import Observed, StopCause
from sandbox.records.program import ExitStatus
from sandbox.records.result import OomKill, Outcome, RunResult, Totals

Make = Callable[..., RunResult]
SEC = 10**9
MEMORY = LimitReport(
    name="memory",
    asked="64 MiB",
    state=LimitState.ENFORCED,
    file="memory.max",
    value=str(64 << 20),
)


def seen(status: int | None = None, signal: int | None = None, **changes: Any) -> Observed:
    exit_status = ExitStatus(status=status, signal=signal)
    return Observed(exit=exit_status, ended_ns=0, **changes)


def oom(cause: str = "limit") -> tuple[OomKill, ...]:
    return (OomKill(time_ns=0, since_start_ns=3_210_000_000, cause=cause),)


@pytest.mark.parametrize(
    ("observed", "outcome", "code", "reason"),
    [
        (seen(0), Outcome.EXITED, 0, "exited 0"),
        (seen(3), Outcome.EXITED, 3, "exited 3"),
        (seen(137), Outcome.EXITED, 137, "exited 137"),  # a shell's word, not ours
        (seen(signal=11), Outcome.SIGNALED, 139, "ended by SIGSEGV (139)"),
        (seen(signal=9), Outcome.SIGNALED, 137, "ended by SIGKILL (137)"),
        (seen(signal=2), Outcome.SIGNALED, 130, "ended by SIGINT (130)"),
        (
            seen(signal=9, oom_kills=oom()),
            Outcome.OOM_KILLED,
            137,
            "killed: out of memory at 3.21 s (limit 64 MiB)",
        ),
        (  # only a child was hit, and the parent ended well
            seen(0, oom_kills=oom()),
            Outcome.OOM_KILLED,
            137,
            "killed: out of memory at 3.21 s (limit 64 MiB)",
        ),
        (  # the rest was killed by us before the counter could be read
            seen(signal=9, stop_cause=StopCause.OOM),
            Outcome.OOM_KILLED,
            137,
            "killed: out of memory (limit 64 MiB)",
        ),
        (
            seen(signal=9, oom_kills=oom("host")),
            Outcome.OOM_KILLED,
            137,
            "killed: the host ran out of memory at 3.21 s, not the run",
        ),
        (
            seen(signal=9, stop_cause=StopCause.MEMORY),
            Outcome.OOM_KILLED,
            137,
            "killed: out of memory, sampled above the limit of 64 MiB",
        ),
        (
            seen(signal=15, stop_cause=StopCause.TIMEOUT),
            Outcome.TIMED_OUT,
            124,
            "killed: wall-clock limit of 10 s",
        ),
        (  # it caught our signal and ended well: the limit was passed all the same
            seen(0, stop_cause=StopCause.TIMEOUT),
            Outcome.TIMED_OUT,
            124,
            "killed: wall-clock limit of 10 s",
        ),
        (
            seen(signal=9, stop_cause=StopCause.CPU_TIME),
            Outcome.CPU_TIME_EXCEEDED,
            124,
            "killed: CPU time limit of 2.5 s",
        ),
        (  # out of memory outranks what came of it
            seen(signal=9, stop_cause=StopCause.TIMEOUT, oom_kills=oom()),
            Outcome.OOM_KILLED,
            137,
            "killed: out of memory at 3.21 s (limit 64 MiB)",
        ),
        (
            seen(
                signal=15,
                stop_cause=StopCause.SIGNAL,
                stop_signal=15,
                stop_by="`sandbox stop` of root (process 7)",
            ),
            Outcome.KILLED,
            143,
            "stopped by `sandbox stop` of root (process 7), the program ended by SIGTERM (143)",
        ),
        (
            seen(
                signal=9,
                stop_cause=StopCause.SIGNAL,
                stop_signal=9,
                stop_by="`sandbox kill` of user 5",
            ),
            Outcome.KILLED,
            137,
            "killed by `sandbox kill` of user 5, the program ended by SIGKILL (137)",
        ),
        (
            seen(signal=15, stop_cause=StopCause.SIGNAL, stop_signal=15, stop_sender_pid=77),
            Outcome.KILLED,
            143,
            "stopped by SIGTERM from process 77, the program ended by SIGTERM (143)",
        ),
        (
            seen(4, stop_cause=StopCause.SIGNAL, stop_signal=15),
            Outcome.KILLED,
            4,
            "stopped by SIGTERM, the program exited 4",
        ),
        (
            seen(signal=9, stop_cause=StopCause.CALLER),
            Outcome.KILLED,
            137,
            "stopped by the caller, the program ended by SIGKILL (137)",
        ),
        (
            Observed(exit=None, ended_ns=0),
            Outcome.KILLED,
            125,
            "the end of the program was not seen",
        ),
    ],
)
def test_what_was_observed_gives_the_verdict(
    make_result: Make, observed: Observed, outcome: Outcome, code: int, reason: str
) -> None:
    limits = {"timeout_ns": 10 * SEC, "cpu_time_usec": 2_500_000, "memory_bytes": 64 << 20}
    result = make_result(spec={"limits": limits}, limits=(MEMORY,))

    verdict = find_verdict(result, observed)

    assert (verdict.outcome, verdict.exit_code, verdict.reason) == (outcome, code, reason)


def test_the_kernels_counter_alone_is_enough_for_out_of_memory(make_result: Make) -> None:
    verdict = find_verdict(make_result(totals=Totals(oom_kills=2)), seen(0))
    assert verdict.outcome is Outcome.OOM_KILLED
    assert verdict.reason == "killed: out of memory (an outer group's limit)"


@pytest.mark.parametrize(
    ("observed", "outcome", "code", "reason"),
    [
        (seen(0), Outcome.EXITED, 0, "exited 0 (2 OOM kills inside)"),
        (seen(signal=11), Outcome.SIGNALED, 139, "ended by SIGSEGV (139) (2 OOM kills inside)"),
        (seen(signal=9), Outcome.OOM_KILLED, 137, "killed: out of memory (limit 64 MiB)"),
        (
            seen(signal=9, stop_cause=StopCause.TIMEOUT),
            Outcome.TIMED_OUT,
            124,
            "killed: wall-clock limit",
        ),
    ],
)
def test_with_oom_continue_the_programs_own_end_counts(
    make_result: Make, observed: Observed, outcome: Outcome, code: int, reason: str
) -> None:
    result = make_result(spec={"oom_continue": True}, limits=(MEMORY,), totals=Totals(oom_kills=2))
    verdict = find_verdict(result, observed)
    assert (verdict.outcome, verdict.exit_code, verdict.reason) == (outcome, code, reason)


def test_the_program_s_own_end_is_kept_beside_ours(make_result: Make) -> None:
    result = decide(make_result(), seen(signal=15, stop_cause=StopCause.TIMEOUT))
    assert (result.exit_code, result.program_status, result.program_signal) == (124, None, 15)


@given(st.integers(0, 255))
def test_a_status_of_the_program_is_passed_on_untouched(make_result: Make, status: int) -> None:
    result = decide(make_result(), seen(status))
    assert (result.outcome, result.exit_code) == (Outcome.EXITED, status)


@given(st.integers(1, 64))
def test_every_signal_has_a_name_and_128_is_added(make_result: Make, number: int) -> None:
    result = decide(make_result(), seen(signal=number))
    assert result.exit_code == 128 + number
    assert signal_name(number).startswith("SIG")


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (10 * SEC, "10 s"),
        (3_210_000_000, "3.21 s"),
        (1_500_000_000, "1.5 s"),
        (250_000_000, "250 ms"),
        (90 * SEC, "1 min 30 s"),
    ],
)
def test_short_durations_end_without_idle_zeros(duration_ns: int, text: str) -> None:
    assert short_duration(duration_ns) == text
