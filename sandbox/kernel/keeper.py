"""Launching where no group can hold a run: the program becomes a child of a keeper."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from sandbox.errors import KernelError, SandboxError
from sandbox.kernel import lifeline
from sandbox.kernel.bare import BareGroup
from sandbox.kernel.birth import Birth
from sandbox.kernel.group import Group
from sandbox.kernel.keeper_process import (
    ENDED,
    FAILED,
    MESSAGE,
    PROGRAM,
    Keeper,
    KeeperProcess,
)
from sandbox.kernel.launch import Connect, Paused, find_first, read_own_rss_bytes, to_exit_status
from sandbox.kernel.signals import SignalState, keep_exit_statuses
from sandbox.records.program import ExitStatus, Program


class KeptChild:
    """A program whose parent is a keeper."""

    def __init__(
        self, pid: int, pidfd: int, status_fd: int, paused: Paused, keeper: Keeper
    ) -> None:
        """Take over what the launcher has made; `abandon` gives it all back."""
        self.pid = pid
        self.fd = status_fd
        os.set_blocking(status_fd, False)
        self._pidfd = pidfd
        self._paused: Paused | None = paused
        self._keeper = keeper
        self._fork_rss_bytes = read_own_rss_bytes()
        self._first = find_first(pid, paused.birth.program)
        self._status: ExitStatus | None = None
        self._is_open = True

    def release(self) -> None:
        """Let the child execute the program."""
        if self._paused is None:
            return
        try:
            self._paused.let_go()
        except SandboxError:
            self.abandon()
            raise
        self._keeper.is_program_executed = True
        self._paused.close()
        self._paused = None

    def signal(self, signal_number: int) -> None:
        """Send a signal to the program; nothing happens if it has ended."""
        number = signal_number if self._first is None else self._first.translate(signal_number)
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def signal_from_terminal(self, signal_number: int) -> None:
        """Do what is left to do once the terminal has sent a signal to the program as well."""
        if self._first is not None and self._first.translate(signal_number) != signal_number:
            self.signal(signal_number)

    def reap(self) -> ExitStatus | None:
        """Return how it ended, or None if it is still alive; again returns the same."""
        if self._status is None:
            try:
                data = os.read(self.fd, MESSAGE.size)
            except BlockingIOError:
                return None
            self._status = self._understand(data)
            if self._first is not None:
                self._status = self._first.as_meant(self._status)
        return self._status

    def _understand(self, data: bytes) -> ExitStatus:
        if len(data) == MESSAGE.size:
            mark, status, user_usec, system_usec, rss_bytes = MESSAGE.unpack(data)
            if mark == ENDED:
                return to_exit_status(
                    status,
                    user_usec=user_usec,
                    system_usec=system_usec,
                    max_rss_bytes=rss_bytes,
                    fork_rss_bytes=self._fork_rss_bytes,
                )
        # The keeper is lost, and its death has killed the program.
        return ExitStatus(signal=signal.SIGKILL)

    def abandon(self) -> None:
        """End everything if the program has not ended yet, and close; again is harmless."""
        if not self._is_open:
            return
        self._is_open = False
        if self._status is None:
            self._keeper.dismiss()
        if self._paused is not None:
            self._paused.close()
            self._paused = None
        os.close(self._pidfd)
        os.close(self.fd)


class KeeperLauncher:
    """Starts programs as children of a keeper, in the session and process group of this process."""

    def __init__(
        self,
        *,
        signals: SignalState | None = None,
        keep_descriptors: bool = False,
        connect: Connect | None = None,
    ) -> None:
        """Take what programs inherit beside their stdio, as `ProcessLauncher` does."""
        self._signals = SignalState.capture() if signals is None else signals
        self._keep_descriptors = keep_descriptors
        self._connect = connect

    def start(self, program: Program, group: Group) -> KeptChild:
        """Return a child that is held by a keeper and waits to be released."""
        if not isinstance(group, BareGroup):
            raise KernelError(f"a keeper cannot launch into a group of mode {group.mode.value}")
        keep_exit_statuses()
        birth = Birth.prepare(
            group.adapt(program),
            blocked=self._signals.blocked,
            keep_descriptors=self._keep_descriptors,
            # The program must not survive its keeper; the keeper has one thread and stays.
            death_signal=signal.SIGKILL,
        )
        keeper, status_fd, paused = self._fork_keeper(birth, group)
        try:
            pid = _read_pid(status_fd, program)
            pidfd = os.pidfd_open(pid)
            try:
                paused.wait_ready()
                paused.settle_apart(pid, self._connect)
                child = KeptChild(pid, pidfd, status_fd, paused, keeper)
            except BaseException:
                os.close(pidfd)
                raise
        except BaseException:
            keeper.dismiss()
            paused.close()
            os.close(status_fd)
            raise
        group.attach(keeper, pid)
        return child

    def _fork_keeper(self, birth: Birth, group: BareGroup) -> tuple[Keeper, int, Paused]:
        go_read, go_write = lifeline.open_lifeline()
        control_read, control_write = lifeline.open_lifeline()
        report_read, report_write = lifeline.open_pipe()
        status_read, status_write = lifeline.open_pipe()
        empty_read, empty_write = lifeline.open_pipe()
        paused = Paused(birth, go_write, report_read)
        pid = -1
        try:
            with self._signals.during_fork():
                pid = _fork()
                if pid == 0:
                    KeeperProcess(
                        control_fd=control_read,
                        status_fd=status_write,
                        empty_fd=empty_write,
                        ledger=group.ledger,
                    ).live(birth, go_read, report_write)
        finally:
            for fd in (go_read, control_read, report_write, status_write, empty_write):
                os.close(fd)
            if pid < 0:
                paused.close()
                lifeline.cut(control_write)
                os.close(status_read)
                os.close(empty_read)
        return Keeper(pid, control_write, empty_read, group.ledger), status_read, paused


def _fork() -> int:
    try:
        return os.fork()
    except OSError as exc:
        raise KernelError.from_os(exc, doing="fork", path="a keeper for the program") from exc


def _read_pid(status_fd: int, program: Program) -> int:
    data = os.read(status_fd, MESSAGE.size)
    if len(data) == MESSAGE.size:
        mark, value, *_ = MESSAGE.unpack(data)
        if mark == PROGRAM:
            return int(value)
        if mark == FAILED:
            exc = OSError(value, "")
            if program.is_apart:
                from sandbox.kernel.namespaces import clone_error

                raise clone_error(exc, program.ids)
            raise KernelError.from_os(exc, doing="fork", path="a process for the program")
    raise KernelError("the keeper of the run was killed before it could start the program")
