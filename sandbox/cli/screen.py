"""A part of the terminal that is drawn over again, and the keys meanwhile; always restored.

The last picture stays, and so does what was above it: no other screen is switched to.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from types import FrameType, TracebackType
from typing import Any, Self, TextIO

_HIDE = "\033[?25l\033[?7l"  # the cursor, and the wrapping of long lines
_SHOW = "\033[?7h\033[?25h"


class Screen:
    """Draws on a terminal; a context manager."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = sys.stdout if out is None else out
        self._lines = 0
        self._keys_fd = _foreground_keys()
        self._settings: list[Any] | None = None
        self._handler: Any = None

    def __enter__(self) -> Self:
        """Take the keys as they are typed, and hide the cursor."""
        self._handler = signal.signal(signal.SIGTSTP, self._suspend)
        self._take()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the terminal back as it was."""
        self._give_back()
        signal.signal(signal.SIGTSTP, self._handler)

    def _take(self) -> None:
        if self._keys_fd is not None:
            import termios
            import tty

            self._settings = termios.tcgetattr(self._keys_fd)
            tty.setcbreak(self._keys_fd)
        self._write(_HIDE)

    def _give_back(self) -> None:
        self._write(_SHOW)
        if self._keys_fd is not None and self._settings is not None:
            import termios

            try:
                termios.tcsetattr(self._keys_fd, termios.TCSADRAIN, self._settings)
            except termios.error:
                return  # the terminal has gone: there is nothing to restore

    def _suspend(self, _number: int, _frame: FrameType | None) -> None:
        """Give the terminal to the shell for as long as it has stopped us."""
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._suspend)
        self._lines = 0  # the shell has written below
        self._take()

    def draw(self, text: str) -> None:
        """Show `text` in place of what was shown before; what is too long or wide is cut."""
        height = shutil.get_terminal_size().lines
        lines = text.splitlines()
        if len(lines) >= height > 1:
            more = len(lines) - height + 2
            lines = [*lines[:-more], f"... {more} more"]
        up = f"\033[{self._lines}A" if self._lines else ""
        self._write("\r" + up + "".join(f"{line}\033[K\n" for line in lines) + "\033[J")
        self._lines = len(lines)

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except BrokenPipeError:
            raise
        except OSError:
            return  # the terminal has gone; the signal that says so comes

    def wait(self, until: float) -> str | None:
        """Wait for a key until a moment of the monotonic clock; return it, or None."""
        while (left := until - time.monotonic()) > 0:
            if self._keys_fd is None:
                time.sleep(left)
            elif select.select([self._keys_fd], [], [], left)[0]:
                data = os.read(self._keys_fd, 64)
                if data:
                    return data.decode("ascii", "replace")
                self._keys_fd = None  # it was closed
        return None


def _foreground_keys() -> int | None:
    """Return the terminal that keys are typed at; None in the background, where it is not ours."""
    try:
        fd = sys.stdin.fileno()
        is_ours = os.isatty(fd) and os.tcgetpgrp(fd) == os.getpgrp()
    except (OSError, ValueError, AttributeError):
        return None
    return fd if is_ours else None
