"""A process of ours that is the first of a PID namespace, in the place of the program."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import NoReturn

from sandbox.kernel import capabilities, libc

_SIGNAL_BASE = 128
_LOST = 255


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
