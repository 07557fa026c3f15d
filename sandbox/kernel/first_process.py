"""The first process of a PID namespace: what it does not hear, and one of ours that takes its part.

The kernel keeps from a first process every signal that it does not handle. So a program that would
end by SIGTERM anywhere else would go on; we do to it what the kernel does elsewhere.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import NoReturn

from sandbox.kernel import capabilities, libc
from sandbox.records.light import replace
from sandbox.records.program import ExitStatus

_ENDING = frozenset(
    {
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGTERM,
        signal.SIGUSR1,
        signal.SIGUSR2,
    }
)
_MASKS = (b"SigBlk", b"SigIgn", b"SigCgt")
_SIGNAL_BASE = 128
_LOST = 255


class FirstProcess:
    """The supervisor's view of a program that is the first process of its namespace."""

    def __init__(self, pid: int) -> None:
        """Take its pid as the supervisor sees it."""
        self._pid = pid
        self._meant: int | None = None

    def translate(self, number: int) -> int:
        """Return what has to be sent for a signal to have its usual effect."""
        if number not in _ENDING or self._minds(number):
            return number
        self._meant = number
        return signal.SIGKILL

    def _minds(self, number: int) -> bool:
        """Return whether the program handles, ignores or blocks a signal; or is gone."""
        from sandbox.kernel.processes import read_file

        lines = read_file(f"/proc/{self._pid}/status").splitlines()
        masks = [int(line[7:], 16) for line in lines if line[:6] in _MASKS]
        return not masks or any(mask >> (number - 1) & 1 for mask in masks)

    def as_meant(self, status: ExitStatus) -> ExitStatus:
        """Return the end of the program by the signal that it was ended for."""
        if self._meant is not None and status.signal == signal.SIGKILL:
            return replace(status, signal=self._meant)
        return status


class Init:
    """What is the first process in place of the program: it passes signals on and reaps."""

    def __init__(self, *, waits_for_all: bool) -> None:
        """Prepare what is needed after the fork."""
        self._waits_for_all = waits_for_all
        self._code: int | None = None
        self._all = signal.valid_signals()
        self._everything = libc.SignalSet(self._all)

    def stand_in(self) -> None:
        """Fork the program off and return in it; the first process never returns.

        Raises:
            OSError: too many processes, or too little memory.
        """
        program = libc.fork()
        if program != 0:
            try:
                self._live(program)
            finally:
                os._exit(_LOST)

    def _live(self, program: int) -> NoReturn:
        self._everything.block_exactly()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        # It is the host's Python, and root inside must not get at it through /proc/1.
        capabilities.hide_from_tracers()
        libc.set_name(b"sandbox-init")
        while True:
            self._reap(program)
            info = signal.sigwaitinfo(self._all)
            # What the kernel sends comes from the terminal, which has told the program as well.
            if info.si_signo != signal.SIGCHLD and info.si_code <= 0 and self._code is None:
                with suppress(ProcessLookupError):
                    os.kill(program, info.si_signo)

    def _reap(self, program: int) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                os._exit(_LOST if self._code is None else self._code)
            if pid == 0:
                return
            if pid == program:
                code = os.waitstatus_to_exitcode(status)
                self._code = code if code >= 0 else _SIGNAL_BASE - code
                if not self._waits_for_all:
                    os._exit(self._code)
