"""What the supervisor saw while the program ran: facts only, before any verdict."""

from __future__ import annotations

from enum import StrEnum

from sandbox.records.light import dataclass
from sandbox.records.program import ExitStatus
from sandbox.records.result import OomKill


class StopCause(StrEnum):
    """Why the supervisor itself ended a run."""

    TIMEOUT = "timeout"
    CPU_TIME = "cpu_time"
    OOM = "oom"
    """The kernel killed for memory inside the run, and the rest was killed with it."""
    MEMORY = "memory"
    """The sampled memory passed the limit, where no kernel limit holds it (degraded mode)."""
    SIGNAL = "signal"
    """A signal was sent to the supervisor."""
    CALLER = "caller"
    """The Python caller asked for it, or has gone."""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """How the main process ended and what the supervisor did about it."""

    exit: ExitStatus | None
    """None when the main process was never seen to end."""
    ended_ns: int
    """CLOCK_MONOTONIC at the end of the main process (with --wait-all: of the last one)."""
    stop_cause: StopCause | None = None
    """The first reason for which the supervisor stopped the run, if it did."""
    stop_signal: int | None = None
    """With `StopCause.SIGNAL`: which signal the supervisor was sent."""
    stop_sender_pid: int | None = None
    stop_by: str | None = None
    """Who asked for it by a command: `` `sandbox stop` of root (process 12)``."""
    oom_kills: tuple[OomKill, ...] = ()
    leftover_processes: int | None = None
    stopped_ns: int = 0
    """Time that the supervisor itself was stopped (^Z)."""
