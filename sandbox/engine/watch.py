"""What happens between the start of a program and the end of its tree: one loop, no waiting."""

from __future__ import annotations

import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sandbox.errors import SandboxError
from sandbox.kernel.libc import SignalInfo
from sandbox.records.light import replace
from sandbox.records.observed import Observed, StopCause
from sandbox.records.program import ExitStatus
from sandbox.records.result import OomKill
from sandbox.sampling.loop import Deadline, Loop
from sandbox.sampling.sampler import Sampler
from sandbox.spec import RunSpec

if TYPE_CHECKING:
    from sandbox.kernel.group import Alarm, Group
    from sandbox.kernel.launcher import Child

Emit = Callable[[str, dict[str, Any]], None]
"""Writes one event of the run: its kind and its details."""

_NS_PER_USEC = 1_000
_OOM_RECHECK_NS = 2_000_000
_OOM_RECHECKS = 100
_CPU_CHECK_FLOOR_NS = 2_000_000
_CPU_CHECK_SLACK_NS = 1_000_000
_INTERRUPTS_TO_KILL = 3
_INTERRUPT_WINDOW_NS = 2_000_000_000
DEFAULT_STOP_TIMEOUT_NS = 10_000_000_000

_FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCONT,
    signal.SIGWINCH,
)
ENDING_SIGNALS = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM})


def watched_signals() -> tuple[int, ...]:
    """Return the signals that a supervisor takes: those that its caller does not ignore.

    What was ignored when we started (`nohup`, a shell's background job) stays ignored.
    """
    return tuple(
        number
        for number in _FORWARDED
        if number not in ENDING_SIGNALS or signal.getsignal(number) is not signal.SIG_IGN
    )


class Watch:
    """Supervises one released program until its tree may be swept away."""

    def __init__(  # noqa: PLR0913 - all that a run consists of
        self,
        *,
        loop: Loop,
        group: Group,
        child: Child,
        sampler: Sampler,
        spec: RunSpec,
        cpus: float,
        emit: Emit,
        started_ns: int,
        stop_fd: int | None = None,
    ) -> None:
        """`cpus` is the most that the run can burn at once; `stop_fd` tells when to stop."""
        self.loop = loop
        self.group = group
        self.child = child
        self.sampler = sampler
        self.spec = spec
        self.cpus = cpus
        self.emit = emit
        self.started_ns = started_ns
        self.stop_fd = stop_fd
        self._exit: ExitStatus | None = None
        self._main_ended_ns: int | None = None
        self._all_ended_ns: int | None = None
        self._cause: StopCause | None = None
        self._cause_signal: int | None = None
        self._cause_sender_pid: int | None = None
        self._stop_by: str | None = None
        self._asked: tuple[int, str, int] | None = None
        """The last signal that was asked for: its number, who asked, and that one's pid."""
        self._cpu_check: Deadline | None = None
        self._paused_at_ns: int | None = None
        self.paused_ns = 0
        """Time that the run was paused for, until the last `unpause`."""
        self.pauses = 0
        self._oom_kills: list[OomKill] = []
        self._oom_seen = 0
        self._interrupts_ns: list[int] = []
        self._stopped_ns = 0
        self._killed = False

    def run(self) -> Observed:
        """Watch until the run has ended by itself or was ended; processes may be left over."""
        self._arm()
        self.loop.run(self.is_over)
        self._note_oom_kills()
        ended_ns = self._all_ended_ns or self._main_ended_ns or time.monotonic_ns()
        return Observed(
            exit=self._exit,
            ended_ns=ended_ns,
            stop_cause=self._cause,
            stop_signal=self._cause_signal,
            stop_sender_pid=self._cause_sender_pid,
            stop_by=self._stop_by,
            oom_kills=tuple(self._oom_kills),
            stopped_ns=self._stopped_ns,
        )

    def add_late_oom_kills(self, observed: Observed) -> Observed:
        """Return `observed` with the OOM kills that were counted after the loop had ended."""
        self._note_oom_kills()
        return replace(observed, oom_kills=tuple(self._oom_kills))

    def _arm(self) -> None:
        loop, limits = self.loop, self.spec.limits
        loop.on_fd(self.child.fd, select.EPOLLIN, self._main_ended)
        alarm = self.group.oom_alarm()
        if alarm is not None:
            loop.on_fd(alarm.fd, alarm.mask, self._oom_rings(alarm))
        if self.spec.wait_all:
            self._arm_empty()
        if limits.timeout_ns is not None:
            loop.at(self.started_ns + limits.timeout_ns, self._time_is_up)
        if limits.cpu_time_usec is not None:
            self._check_cpu_time()
        if self.stop_fd is not None:
            loop.on_fd(self.stop_fd, select.EPOLLIN | select.EPOLLHUP, self._caller_stops)
        loop.on_gap(self._gap)
        loop.every(self.spec.interval_ns, self._tick, start_ns=self.sampler.start_ns)

    def is_over(self) -> bool:
        """Return whether nothing is left to wait for."""
        if self._main_ended_ns is None:
            return False
        return not self.spec.wait_all or self._killed or self._all_ended_ns is not None

    # The program

    def _main_ended(self) -> None:
        exit_status = self.child.reap()
        if exit_status is None:
            return
        self._main_ended_ns = time.monotonic_ns()
        self._exit = exit_status
        if self._cause is None and self._asked is not None and exit_status.signal == self._asked[0]:
            self._note_request(*self._asked)
        self.loop.forget(self.child.fd)
        if self.spec.wait_all:
            self._check_empty()

    def _arm_empty(self) -> None:
        alarm = self.group.empty_alarm()
        if alarm is None:
            self._poll_empty()
            return

        def rings() -> None:
            alarm.drain()
            self._check_empty()

        self.loop.on_fd(alarm.fd, alarm.mask, rings)

    def _poll_empty(self) -> None:
        self._check_empty()
        if self._all_ended_ns is None:
            self.loop.at(time.monotonic_ns() + 10_000_000, self._poll_empty)

    def _check_empty(self) -> None:
        if self._main_ended_ns is not None and not self.group.is_populated():
            self._all_ended_ns = time.monotonic_ns()

    # Sampling

    def _tick(self, expirations: int) -> None:
        self.sampler.tick(expirations)
        if self.group.over_limit():
            self._end(StopCause.MEMORY)

    def _gap(self, gap_ns: int) -> None:
        self._stopped_ns += gap_ns
        self.emit("gap", {"gap_ns": gap_ns})

    # Limits

    def _time_is_up(self) -> None:
        self._end(StopCause.TIMEOUT)

    def _check_cpu_time(self) -> None:
        """Look at the counter when the limit could be reached at the earliest."""
        limit_usec = self.spec.limits.cpu_time_usec
        used_usec = self.sampler.cpu_usage_usec()
        if limit_usec is None or used_usec is None:
            return
        left_usec = limit_usec - used_usec
        if left_usec <= 0:
            self._end(StopCause.CPU_TIME)
            return
        # The kernel moves the counter at its tick, so looking sooner than that is in vain.
        soonest_ns = int(left_usec * _NS_PER_USEC / self.cpus) + _CPU_CHECK_SLACK_NS
        self._cpu_check = self.loop.at(
            time.monotonic_ns() + max(soonest_ns, _CPU_CHECK_FLOOR_NS), self._check_cpu_time
        )

    def change_cpus(self, cpus: float) -> None:
        """Go by another number of CPUs that the run can burn at once."""
        self.cpus = cpus
        if self._cpu_check is not None:
            self._cpu_check.cancel()
            self._check_cpu_time()

    def _end(self, cause: StopCause) -> None:
        """End the run for a limit: at once, or after the grace that the user asked for."""
        if self._cause is not None:
            return
        self._cause = cause
        self.emit("limit", {"cause": cause.value})
        grace_ns = self.spec.stop_timeout_ns
        if grace_ns and cause in {StopCause.TIMEOUT, StopCause.CPU_TIME}:
            self.child.signal(self.spec.stop_signal)
            self._wake()
            self.loop.at(time.monotonic_ns() + grace_ns, self._kill)
        else:
            self._kill()

    def _kill(self) -> None:
        self._killed = True
        self._end_pause()  # what is frozen dies too
        self.group.kill()

    # Out of memory

    def _oom_rings(self, alarm: Alarm) -> Callable[[], None]:
        def rings() -> None:
            alarm.drain()
            # On v1 the alarm precedes the kill, so the counter may still be the old one.
            self._watch_oom_counter(_OOM_RECHECKS)

        return rings

    def _watch_oom_counter(self, rechecks_left: int) -> None:
        if self._note_oom_kills():
            if not self.spec.oom_continue and self._cause is None:
                self._cause = StopCause.OOM
                self._kill()
        elif rechecks_left:
            self.loop.at(
                time.monotonic_ns() + _OOM_RECHECK_NS,
                lambda: self._watch_oom_counter(rechecks_left - 1),
            )

    def _note_oom_kills(self) -> bool:
        """Record a rise of the kernel's counter; return whether there was one."""
        count = self.group.oom_kills()
        if count is None or count <= self._oom_seen:
            return False
        self._oom_seen = count
        now_ns = time.monotonic_ns()
        cause = "limit" if self.group.oom_events() else "host"
        since_start_ns = now_ns - self.started_ns
        self._oom_kills.append(OomKill(time_ns=now_ns, since_start_ns=since_start_ns, cause=cause))
        self.emit("oom", {"oom_kills": count, "cause": cause, "since_start_ns": since_start_ns})
        return True

    # Signals and the caller

    def signal(self, info: SignalInfo) -> None:
        """Take one signal that was sent to the supervisor."""
        number = info.number
        if number not in {signal.SIGCONT, signal.SIGWINCH}:
            self.emit("signal", {"signal": number, "from_terminal": info.from_kernel})
        if info.from_kernel:
            # The terminal has sent it to the program as well: sending it again would be twice.
            self._terminal_signal(number)
            return
        self.child.signal(number)
        if number in ENDING_SIGNALS:
            self._stop_softly(StopCause.SIGNAL, number, info.sender_pid)

    def _terminal_signal(self, number: int) -> None:
        now_ns = time.monotonic_ns()
        if self.spec.root is not None:
            self.child.signal_from_terminal(number)
        if number == signal.SIGHUP:
            # A terminal that closes tells its session's leader first, which may be us alone.
            self.child.signal(number)
            self._stop_softly(StopCause.SIGNAL, number, None)
        if number not in {signal.SIGINT, signal.SIGQUIT}:
            return
        self._wake()
        self._interrupts_ns.append(now_ns)
        recent = [at for at in self._interrupts_ns if now_ns - at <= _INTERRUPT_WINDOW_NS]
        self._interrupts_ns = recent
        if len(recent) >= _INTERRUPTS_TO_KILL and self._cause is None:
            self._cause, self._cause_signal = StopCause.SIGNAL, number
            self._kill()

    def _stop_softly(self, cause: StopCause, number: int, sender_pid: int | None) -> None:
        """Give the program its grace after a signal that asks it to end, then kill the tree."""
        if self._cause is not None:
            if number != signal.SIGHUP:
                self._kill()  # asked twice
            return
        self._cause, self._cause_signal, self._cause_sender_pid = cause, number, sender_pid
        self._wake()
        grace_ns = self.spec.stop_timeout_ns
        if grace_ns is None:
            grace_ns = DEFAULT_STOP_TIMEOUT_NS
        self.loop.at(time.monotonic_ns() + grace_ns, self._kill)

    # Requests of commands

    def request_signal(self, number: int, by: str, pid: int) -> None:
        """Send a signal to the program; SIGKILL ends the whole tree. `by` and `pid` say who."""
        if number == signal.SIGKILL:
            if self._cause is None:
                self._note_request(number, by, pid)
            self._kill()
            return
        self._asked = number, by, pid
        self.child.signal(number)
        if number in ENDING_SIGNALS or number == self.spec.stop_signal:
            self._wake()

    def request_stop(self, number: int | None, grace_ns: int | None, by: str, pid: int) -> None:
        """Ask the program to end, and kill the tree if it has not after its grace.

        None takes the run's own stop signal, or its own grace.
        """
        if self._cause is None:
            self._note_request(number or self.spec.stop_signal, by, pid)
        if grace_ns is None:
            grace_ns = self.spec.stop_timeout_ns
        if grace_ns is None:
            grace_ns = DEFAULT_STOP_TIMEOUT_NS
        if grace_ns == 0:
            self._kill()
            return
        self.child.signal(number or self.spec.stop_signal)
        self._wake()
        self.loop.at(time.monotonic_ns() + grace_ns, self._kill)

    def _note_request(self, number: int, by: str, pid: int) -> None:
        self._cause, self._cause_signal = StopCause.SIGNAL, number
        self._cause_sender_pid, self._stop_by = pid or None, by

    @property
    def is_paused(self) -> bool:
        """Return whether the run was paused and not let go since."""
        return self._paused_at_ns is not None

    def pause(self, by: dict[str, int]) -> None:
        """Stop everything inside; raises KernelError."""
        self.group.freeze(frozen=True)
        self._paused_at_ns = time.monotonic_ns()
        self.pauses += 1
        self.emit("pause", {"by": by})

    def unpause(self, by: dict[str, int] | None = None) -> None:
        """Let it go on; raises KernelError. Without `by` it is us who do it, to end the run."""
        if self._paused_at_ns is not None:
            self.group.freeze(frozen=False)
            self._end_pause()
            self.emit("unpause", {"by": by})

    def _end_pause(self) -> None:
        if self._paused_at_ns is not None:
            self.paused_ns += time.monotonic_ns() - self._paused_at_ns
            self._paused_at_ns = None

    def _wake(self) -> None:
        """Let a paused program take the signal that asks it to end; if it cannot, it is killed."""
        with suppress(SandboxError):
            self.unpause()

    def _caller_stops(self) -> None:
        if self.stop_fd is not None:
            self.loop.forget(self.stop_fd)
        if self._cause is None:
            self._cause = StopCause.CALLER
        self._kill()
