"""A terminal of the program's own beside ours: it can put no words into what our shell reads.

Keys go from our terminal, which is raw meanwhile, to the program's, and its output comes back. What
`^C` means there is decided by the program's terminal, as in a window of its own.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import termios
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sandbox.kernel.libc import SignalInfo
from sandbox.records.enclosure import TerminalEnds
from sandbox.records.light import replace
from sandbox.records.program import Program
from sandbox.sampling.loop import Loop

_KEYS_BYTES = 1024
_CHUNK_BYTES = 1 << 16
_FULL_PAUSE_NS = 10_000_000
_JOIN_SEC = 2.0
_STDIO = (0, 1, 2)
_WINDOW_SIZE = bytes(8)
_LFLAG, _CONTROL_CHARACTERS = 3, 6


class Terminal:
    """Stands in for `Capturing` where the program gets a terminal of its own."""

    def __init__(self, loop: Loop, hear: Callable[[SignalInfo], None]) -> None:
        """Serve keys in `loop`; `hear` is told of those that mean a signal."""
        self.problems: list[str] = []
        self._loop = loop
        self._hear = hear
        self._ours, self._theirs = socket.socketpair()
        self._fds = tuple(fd for fd in _STDIO if os.isatty(fd))
        self._shown = next((fd for fd in (1, 2, 0) if fd in self._fds), 0)
        self._master = -1
        self._before: list[Any] | None = None
        self._thread: threading.Thread | None = None

    def adapt(self, program: Program) -> Program:
        """Return `program` with where to take its terminal from."""
        if program.enclosure is None:
            return program
        ends = TerminalEnds(socket_fd=self._theirs.fileno(), fds=self._fds)
        return replace(program, enclosure=replace(program.enclosure, terminal=ends))

    def start(self) -> None:
        """Take the terminal that the child has made, and pass on from now on."""
        self._theirs.close()
        _, fds, _, _ = socket.recv_fds(self._ours, 1, 1)
        self._ours.close()
        self._master = fds[0]
        self._resize()
        self._before = termios.tcgetattr(0)
        self._make_raw()
        self._loop.on_fd(0, select.EPOLLIN, self._keys)
        self._thread = threading.Thread(target=self._show, daemon=True)
        self._thread.start()

    def heed(self, number: int) -> None:
        """Follow what a signal says of our terminal."""
        if self._before is None:
            return
        if number == signal.SIGWINCH:
            self._resize()
        elif number == signal.SIGCONT:  # the shell has had the terminal meanwhile
            self._make_raw()

    def finish(self) -> None:
        """Wait until the last output is shown."""
        if self._thread is not None:
            self._thread.join(_JOIN_SEC)
            if self._thread.is_alive():
                self.problems.append("the end of the program's output was not read by anyone")
                self._master = -1  # the thread still has it
        self.close_files()

    def close_files(self) -> None:
        """Give our terminal back as it was; again is harmless."""
        self._ours.close()
        self._theirs.close()
        if self._before is not None:
            self._loop.forget(0)
            with suppress(termios.error):  # hung up
                termios.tcsetattr(0, termios.TCSADRAIN, self._before)
            self._before = None
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    def _resize(self) -> None:
        with suppress(OSError):
            size = fcntl.ioctl(0, termios.TIOCGWINSZ, _WINDOW_SIZE)
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def _make_raw(self) -> None:
        import tty

        with suppress(termios.error):
            tty.setraw(0, termios.TCSADRAIN)

    def _keys(self) -> None:
        writable = select.poll()
        writable.register(self._master, select.POLLOUT)
        if not writable.poll(0):
            # The program does not read: keys wait where they are.
            self._loop.forget(0)
            self._loop.at(time.monotonic_ns() + _FULL_PAUSE_NS, self._go_on)
            return
        try:
            keys = os.read(0, _KEYS_BYTES)
            os.write(self._master, keys)
        except OSError:
            keys = b""
        if not keys:
            self._loop.forget(0)
        for number in self._meant(keys):
            self._hear(SignalInfo(number=number, from_kernel=True, sender_pid=0))

    def _go_on(self) -> None:
        if self._before is not None:
            self._loop.on_fd(0, select.EPOLLIN, self._keys)

    def _meant(self, keys: bytes) -> list[int]:
        """Return the signals that the program's terminal makes of some keys."""
        try:
            settings = termios.tcgetattr(self._master)
        except termios.error:
            return []
        if not settings[_LFLAG] & termios.ISIG:
            return []
        characters = settings[_CONTROL_CHARACTERS]
        meanings = (
            (characters[termios.VINTR], signal.SIGINT),
            (characters[termios.VQUIT], signal.SIGQUIT),
        )
        return [number for character, number in meanings if character and character in keys]

    def _show(self) -> None:
        master = self._master
        while data := _read(master):
            view = memoryview(data)
            try:
                while view:
                    view = view[os.write(self._shown, view) :]
            except OSError:
                return


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, _CHUNK_BYTES)
    except OSError:  # nobody has its other end any more
        return b""
