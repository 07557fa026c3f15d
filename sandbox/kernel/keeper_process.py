"""The keeper: parent and subreaper of a run where no group holds it together.

The supervisor forks the keeper, which forks the program and only then leaves for a session of its
own: the program stays in the user's session and process group. Whatever the program leaves behind
becomes the keeper's child. When the supervisor asks, or is killed, the keeper ends all of it.
"""

from __future__ import annotations

import os
import select
import signal
import struct
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from sandbox.kernel import libc, lifeline
from sandbox.kernel.birth import Birth, become
from sandbox.kernel.ledger import Ledger, count_reaped
from sandbox.kernel.processes import end_children

MESSAGE = struct.Struct("=cxxxiqqq")
"""A mark; then for PROGRAM its pid, for FAILED an errno, for ENDED wait status and usage."""
PROGRAM, FAILED, ENDED = b"p", b"f", b"e"
END = b"k"

_FIRST_FREE_FD = 3
_END_TIMEOUT_MS = 12_000  # longer than the keeper's own patience
_USEC_PER_SEC = 1_000_000


class KeeperProcess:
    """The keeper's own side: what it does from its fork to its end."""

    def __init__(self, *, control_fd: int, status_fd: int, empty_fd: int, ledger: Ledger) -> None:
        """Take the ends of the pipes that are the keeper's."""
        self._control_fd = control_fd
        self._status_fd = status_fd
        self._empty_fd = empty_fd
        self._ledger = ledger
        self._program = 0
        self._reaped = 0
        self._is_empty = False
        self._ended = b""

    def live(self, birth: Birth, go_fd: int, report_fd: int) -> NoReturn:
        """Fork the program, keep it, end what it leaves. Never returns, runs no exit handler."""
        try:
            libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)
            if self._fork_program(birth, go_fd, report_fd):
                try:
                    self._withdraw()
                    self._keep()
                finally:
                    end_children(self._reap)
                    self._take_away(birth)
        finally:
            os._exit(0)

    def _take_away(self, birth: Birth) -> None:
        """Remove what the run has of its own besides processes; the supervisor may be gone."""
        enclosure = birth.program.enclosure
        if enclosure is not None and enclosure.in_place is None:
            from sandbox.kernel.scratch import remove_scratch

            remove_scratch(Path(enclosure.scratch), enclosure.ids)
        network = birth.program.own_network
        if network is not None and network.lease:
            from sandbox.kernel.forwarding import release

            with suppress(OSError):
                release(network.lease)

    def _fork_program(self, birth: Birth, go_fd: int, report_fd: int) -> bool:
        keeper_pid = os.getpid()
        try:
            self._program = _fork(birth)
        except OSError as exc:
            self._tell(FAILED, exc.errno or 0)
            return False
        if self._program == 0:
            become(birth, (), go_fd, report_fd, keeper_pid)
        # The supervisor waits for the end of the report: the exec of the program, not our closing.
        os.close(report_fd)
        os.close(go_fd)
        # The program may be meant to ignore it; the keeper lives by it.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._tell(PROGRAM, self._program)
        return True

    def _withdraw(self) -> None:
        """Leave the user's session, terminal, directory and descriptors."""
        os.setsid()
        os.chdir("/")
        libc.set_name(b"sandbox-keeper")
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(_FIRST_FREE_FD):
            os.dup2(null, fd)
        kept = {self._control_fd, self._status_fd, self._empty_fd, 0, 1, 2}
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - nothing here needs a Path
            if int(name) not in kept:
                with suppress(OSError):  # the listing's own
                    os.close(int(name))

    def _keep(self) -> None:
        """Serve until the supervisor has no more use for it, or is gone."""
        # All signals stay blocked, as they were for the fork: only SIGKILL can end a keeper.
        signals = libc.signalfd([signal.SIGCHLD])
        poll = select.poll()
        poll.register(self._control_fd, select.POLLIN)
        poll.register(signals, select.POLLIN)
        while True:
            self._reap()
            ready = {fd for fd, _ in poll.poll()}
            libc.read_signals(signals)
            if self._control_fd in ready:
                command = os.read(self._control_fd, 1)
                end_children(self._reap)
                if command != END:
                    return

    def _reap(self) -> bool:
        """Wait for all that has ended and record what they used; return whether none is left."""
        before = self._reaped
        is_empty = False
        try:
            while self._reap_one():
                self._reaped += 1
        except ChildProcessError:
            is_empty = True
        if self._reaped != before:
            self._ledger.record(count_reaped(self._reaped))
        if is_empty and not self._is_empty:
            self._is_empty = True
            self._ledger.record_empty()
            _send(self._empty_fd, b"e")
        if self._ended:
            # Only now, so that who reads it finds the ledger complete.
            _send(self._status_fd, self._ended)
            self._ended = b""
        return is_empty

    def _reap_one(self) -> bool:
        pid, status, usage = os.wait4(-1, os.WNOHANG)
        if pid == self._program != 0:
            user, system = (round(t * _USEC_PER_SEC) for t in (usage.ru_utime, usage.ru_stime))
            self._ended = MESSAGE.pack(ENDED, status, user, system, usage.ru_maxrss << 10)
        return pid != 0

    def _tell(self, mark: bytes, value: int) -> None:
        _send(self._status_fd, MESSAGE.pack(mark, value, 0, 0, 0))


def _fork(birth: Birth) -> int:
    if not birth.program.is_apart:
        return libc.fork()
    from sandbox.kernel.namespaces import flags_of

    pid, pidfd = libc.clone_into(None, flags_of(birth.program))
    if pid:
        os.close(pidfd)
    return pid


def _send(fd: int, data: bytes) -> None:
    with suppress(BrokenPipeError):  # the supervisor is gone: the end of the control pipe follows
        os.write(fd, data)


class Keeper:
    """The supervisor's side of a keeper."""

    def __init__(self, pid: int, control_fd: int, empty_fd: int, ledger: Ledger) -> None:
        """Take the ends of the pipes that are the supervisor's."""
        self.pid = pid
        self.empty_fd = empty_fd
        """Readable once no process of the run is left, or the keeper is lost."""
        self.ledger = ledger
        self.is_program_executed = False
        """Until then the program's process is a copy of this one, memory and all."""
        self._control_fd = control_fd
        self._is_ended = False

    def end_all(self) -> bool:
        """Have every process of the run killed and reaped; return whether none is left."""
        if self.ledger.is_empty():
            return True
        if self._is_ended:
            return False
        with suppress(BrokenPipeError):
            os.kill(self.pid, signal.SIGCONT)  # our own child, not yet reaped; perhaps stopped
            os.write(self._control_fd, END)
            poll = select.poll()
            poll.register(self.empty_fd, select.POLLIN)
            poll.poll(_END_TIMEOUT_MS)
        return self.ledger.is_empty()

    def is_lost(self) -> bool:
        """Return whether something has killed the keeper."""
        if self._is_ended:
            return False
        with suppress(ChildProcessError):
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self.pid, options) is not None
        return True

    def dismiss(self) -> None:
        """Let the keeper end what is left, and go; again is harmless."""
        if self._is_ended:
            return
        self.end_all()
        self._is_ended = True
        lifeline.cut(self._control_fd)
        if not self.ledger.is_empty():
            # It has tried for long enough; what is left is out of its reach.
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        os.close(self.empty_fd)
