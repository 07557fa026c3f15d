"""A run that is one of several: a signal that ends it is meant for all of them."""

from __future__ import annotations

import signal

from sandbox.engine.order import Surroundings, run
from sandbox.engine.watch import ENDING_SIGNALS
from sandbox.records.light import replace
from sandbox.records.result import Outcome, RunResult
from sandbox.spec import RunSpec

_SIGNAL_BASE = 128


def run_one_of_several(spec: RunSpec) -> RunResult:
    """Run one command as `run` does; after a signal to end, the outcome is `killed` in any case.

    A terminal's ^C reaches the program by itself, which may then end as it likes, even well: for
    the run that is an end like any other, for those who would begin the next one it is not. The
    record on the disk is the run's own.

    Raises:
        SandboxError: nothing was started, and nothing is left behind.
    """
    heard: list[int] = []
    result = run(spec, Surroundings(on_signal=heard.append))
    number = ending_signal(heard)
    if number is None:
        return result
    reason = f"stopped by {signal.Signals(number).name}"
    return replace(
        result,
        outcome=Outcome.KILLED,
        exit_code=_SIGNAL_BASE + number,
        reason=result.reason if result.outcome is Outcome.KILLED else reason,
    )


def ending_signal(heard: list[int]) -> int | None:
    """Return the first of some signals that asks us to end."""
    return next((number for number in heard if number in ENDING_SIGNALS), None)
