"""The real launcher: fork, join, pause, baseline, go, exec; the program stays in our session.

The supervisor is a small process with one thread, so that a plain fork is both safe and fast.
"""

from __future__ import annotations

import os
import resource
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from sandbox.errors import KernelError, SandboxError
from sandbox.kernel import libc, lifeline
from sandbox.kernel.birth import GO, READY, REPORT_BYTES, Birth, become, read_failure
from sandbox.kernel.signals import FirstProcess, SignalState, keep_exit_statuses
from sandbox.records.light import dataclass
from sandbox.records.program import ExitStatus, Program

if TYPE_CHECKING:
    from pathlib import Path

    from sandbox.kernel.group import Group

# Joining takes a millisecond; a host in great trouble may need long, a frozen group for ever.
_READY_TIMEOUT_MS = 30_000
Connect = Callable[[int], None]
"""Gives the network namespace of a process its interfaces."""
RSS_SLACK_BYTES = 1 << 20  # the kernel counts pages by CPU and adds them up now and then


@dataclass(frozen=True)
class Paused:
    """The supervisor's side of a child that is not yet its program."""

    birth: Birth
    go_fd: int
    report_fd: int

    def wait_ready(self) -> None:
        """Wait until the child is inside its group.

        Raises:
            SandboxError: it could not get there, and has ended or soon will.
        """
        poll = select.poll()
        poll.register(self.report_fd, select.POLLIN)
        if not poll.poll(_READY_TIMEOUT_MS):
            raise KernelError(
                f"the new process did not enter its group within {_READY_TIMEOUT_MS // 1000} s",
                hint="is the group above it frozen, or the host out of memory?",
            )
        if self._read() != READY:
            raise KernelError(
                "the new process was killed before it could start the program",
                hint="a memory limit so small that nothing fits in it can do that",
            )

    def settle_apart(self, pid: int, connect: Connect | None) -> None:
        """Let a child in namespaces of its own settle there, now that it is in its group.

        Raises:
            SandboxError: it could not, and has ended or soon will.
        """
        program = self.birth.program
        if not program.is_apart:
            return
        if program.ids is not None:
            from sandbox.kernel.namespaces import write_maps

            write_maps(pid, program.ids)
        if connect is not None:
            connect(pid)
        with suppress(BrokenPipeError):
            os.write(self.go_fd, GO)
        self.wait_ready()

    def let_go(self) -> None:
        """Let the child execute its program, and return when it has or was killed instead.

        Raises:
            LaunchError: it could not.
        """
        with suppress(BrokenPipeError):  # killed while it was paused: its status will tell
            os.write(self.go_fd, GO)
        self._read()

    def _read(self) -> bytes:
        data = os.read(self.report_fd, REPORT_BYTES)
        failure = read_failure(data)
        if failure is not None:
            from sandbox.kernel.launch_error import to_error

            raise to_error(failure, self.birth.program, self.birth.candidates)
        return data

    def close(self) -> None:
        """Close both pipes: a child that is still paused ends."""
        lifeline.cut(self.go_fd)
        os.close(self.report_fd)


class ProcessChild:
    """A child of this process: the program itself once it is released."""

    def __init__(self, pid: int, pidfd: int, paused: Paused) -> None:
        """Take over what the launcher has made; `abandon` gives it all back."""
        self.pid = pid
        self.fd = pidfd
        self._paused: Paused | None = paused
        self._fork_rss_bytes = read_own_rss_bytes()
        self._first = find_first(pid, paused.birth.program)
        self._root_fd = hold_root(pid) if paused.birth.program.has_own_root else None
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
        self._paused.close()
        self._paused = None

    def signal(self, signal_number: int) -> None:
        """Send a signal to the program; nothing happens if it has ended."""
        if self._status is None:
            number = signal_number if self._first is None else self._first.translate(signal_number)
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.fd, number)

    def signal_from_terminal(self, signal_number: int) -> None:
        """Do what is left to do once the terminal has sent a signal to the program as well."""
        if self._first is not None and self._first.translate(signal_number) != signal_number:
            self.signal(signal_number)

    def reap(self) -> ExitStatus | None:
        """Return how it ended, or None if it is still alive; again returns the same."""
        if self._status is None:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid:
                self._status = to_exit_status(
                    status,
                    user_usec=round(usage.ru_utime * 1_000_000),
                    system_usec=round(usage.ru_stime * 1_000_000),
                    max_rss_bytes=usage.ru_maxrss << 10,
                    fork_rss_bytes=self._fork_rss_bytes,
                )
                if self._first is not None:
                    self._status = self._first.as_meant(self._status)
        return self._status

    def abandon(self) -> None:
        """Kill and reap what has not ended yet, and close every descriptor; again is harmless."""
        if not self._is_open:
            return
        self._is_open = False
        if self._status is None:
            kill_and_reap(self.pid, self.fd)
        if self._paused is not None:
            self._paused.close()
            self._paused = None
        if self._root_fd is not None:
            os.close(self._root_fd)
        os.close(self.fd)


class ProcessLauncher:
    """Starts programs as children of this process, in its session and process group."""

    def __init__(  # noqa: PLR0913 - all that may differ between runs
        self,
        *,
        signals: SignalState | None = None,
        keep_descriptors: bool = False,
        death_signal: int | None = None,
        bring_in: Callable[[int], None] | None = None,
        adapt: Callable[[Program], Program] | None = None,
        connect: Connect | None = None,
    ) -> None:
        """Take what programs inherit beside their stdio.

        Args:
            signals: what is blocked and ignored; a supervisor that blocks signals for itself
                captures it before. None captures it now.
            keep_descriptors: leave open what this process was started with, such as the
                `/dev/fd/63` of a shell's `<(…)`. Our own are closed in any case.
            death_signal: sent to the program when the *thread* that starts it ends.
            bring_in: moves a paused child into its group, where it may not enter by itself.
            adapt: gives a program what its group cannot hold.
            connect: gives a program's own network its interfaces.
        """
        self._signals = SignalState.capture() if signals is None else signals
        self._keep_descriptors = keep_descriptors
        self._death_signal = death_signal
        self._bring_in = bring_in
        self._adapt = adapt
        self._connect = connect

    def start(self, program: Program, group: Group) -> ProcessChild:
        """Return a child that is inside `group` and waits to be released."""
        keep_exit_statuses()
        birth = Birth.prepare(
            program if self._adapt is None else self._adapt(program),
            blocked=self._signals.blocked,
            keep_descriptors=self._keep_descriptors,
            death_signal=self._death_signal,
        )
        go_read, go_write = lifeline.open_lifeline()
        report_read, report_write = lifeline.open_pipe()
        paused = Paused(birth, go_write, report_read)
        parent_pid = os.getpid()
        pid = pidfd = -1
        try:
            with self._signals.during_fork():
                pid, pidfd, entrances = _fork(None if self._bring_in else group, program)
                if pid == 0:
                    become(birth, entrances, go_read, report_write, parent_pid)
        finally:
            os.close(go_read)
            os.close(report_write)
            if pid < 0:
                paused.close()
        try:
            paused.wait_ready()
            if self._bring_in is not None:
                self._bring_in(pid)
            paused.settle_apart(pid, self._connect)
            return ProcessChild(pid, pidfd, paused)
        except BaseException:
            kill_and_reap(pid, pidfd)
            paused.close()
            os.close(pidfd)
            raise


def hold_root(pid: int) -> int | None:
    """Return a descriptor that keeps the root file system of a process alive after its end.

    Else the last process of the run would unmount it in its own end, and an overlay that goes has
    the whole disk below it written out: all that other programs wrote would be counted as the
    run's, and the time it takes as well.
    """
    try:
        return os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # it has ended already, or is another user's now
        return None


def find_first(pid: int, program: Program) -> FirstProcess | None:
    """Return what a program needs that is the first process of a namespace; None for others."""
    enclosure = program.enclosure
    if enclosure is None or enclosure.has_init or not enclosure.has_own_processes:
        return None
    return FirstProcess(pid)


def _fork(group: Group | None, program: Program) -> tuple[int, int, list[bytes]]:
    """Return pid and pidfd, both 0 in the child, and the entrances that the child has to take."""
    if program.is_apart:
        return _fork_apart(group, program)
    born_in = None if group is None else group.birth_directory()
    entrances = () if group is None else group.entrances()
    if born_in is not None and _is_single_threaded():
        others = [os.fsencode(path) for path in entrances if path.parent != born_in]
        try:
            return (*_clone_into(born_in), others)
        except OSError:
            pass  # an old kernel or a filter; where the group itself refuses, joining will say so
    files = [os.fsencode(path) for path in entrances]
    pid = fork()
    return (pid, open_pidfd(pid), files) if pid else (0, 0, files)


def _fork_apart(group: Group | None, program: Program) -> tuple[int, int, list[bytes]]:
    """Do as `_fork`, with namespaces of the child's own: it is the first process in them."""
    from sandbox.kernel.namespaces import clone_error, flags_of

    if not _is_single_threaded():
        raise KernelError(
            "a process with several threads cannot start a run in namespaces of its own"
        )
    flags = flags_of(program)
    entrances = () if group is None else group.entrances()
    born_in = None if group is None else group.birth_directory()
    if born_in is not None:
        others = [os.fsencode(path) for path in entrances if path.parent != born_in]
        with suppress(OSError):
            return (*_clone_into(born_in, flags), others)
    try:
        return (*libc.clone_into(None, flags), [os.fsencode(path) for path in entrances])
    except OSError as exc:
        raise clone_error(exc, program.ids) from exc


def _clone_into(directory: Path, namespaces: int = 0) -> tuple[int, int]:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return libc.clone_into(fd, namespaces)
    finally:
        os.close(fd)


def fork() -> int:
    """Fork a child that will only prepare and execute a program; return 0 in the child.

    Raises:
        KernelError: too many processes, or too little memory.
    """
    try:
        return libc.fork() if _is_single_threaded() else os.fork()
    except OSError as exc:
        raise KernelError.from_os(exc, doing="fork", path="a process for the program") from exc


def _is_single_threaded() -> bool:
    return len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208 - on the way of every start


def open_pidfd(pid: int) -> int:
    """Return a descriptor of a child of ours, which is killed if there can be none.

    Raises:
        KernelError: no descriptor is left, or the kernel is older than 5.3.
    """
    try:
        return os.pidfd_open(pid)
    except OSError as exc:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise KernelError.from_os(exc, doing="open a pidfd of", path=f"process {pid}") from exc


def kill_and_reap(pid: int, pidfd: int) -> None:
    """End a child of ours for good."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


def read_own_rss_bytes() -> int:
    """Return the resident memory of this process: the most that a fork of it can come to."""
    try:
        fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        return int(os.read(fd, 128).split()[1]) * resource.getpagesize()
    finally:
        os.close(fd)


def to_exit_status(
    status: int, *, user_usec: int, system_usec: int, max_rss_bytes: int, fork_rss_bytes: int
) -> ExitStatus:
    """Return what a wait status says.

    The kernel counts the fork's memory too, so a peak below that says nothing of the program.
    """
    signaled = os.WIFSIGNALED(status)
    return ExitStatus(
        status=None if signaled else os.WEXITSTATUS(status),
        signal=os.WTERMSIG(status) if signaled else None,
        cpu_user_usec=user_usec,
        cpu_system_usec=system_usec,
        max_rss_bytes=max_rss_bytes if max_rss_bytes > fork_rss_bytes + RSS_SLACK_BYTES else None,
    )
