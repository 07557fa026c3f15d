"""The terminal: what it can show, how errors look; nothing about what is printed."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, TextIO

if TYPE_CHECKING:
    from sandbox.errors import SandboxError

_DEFAULT_WIDTH = 80
_MAX_WIDTH = 100


class CommandExit(Exception):  # noqa: N818 - it ends a command, it is no error
    """A command has ended with this exit status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Interrupted(BaseException):
    """A signal asked the command to end."""

    def __init__(self, number: int, *, hint: str | None = None) -> None:
        super().__init__(number)
        self.number = number
        self.hint = hint


def open_missing_streams() -> None:
    """Give this process the standard streams that it was started without: they lead nowhere.

    Otherwise the next files that are opened would take their numbers, and be the program's output.
    """
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            fd = os.open(os.devnull, os.O_RDWR)
            if fd != number:
                os.dup2(fd, number)
                os.close(fd)
            os.set_inheritable(number, True)
            mode = "r" if number == 0 else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def is_output_lost(error: Exception) -> bool:
    """Return whether an error is about a stream that we print to, and not about a file."""
    import errno

    full = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
    return isinstance(error, OSError) and error.filename is None and error.errno in full


def raise_on_ending_signals() -> None:
    """Let ^C, SIGTERM and SIGHUP raise Interrupted: what was begun is undone on the way out.

    Not KeyboardInterrupt, which typer takes for itself. What we were started to ignore stays so,
    and a signal that comes a second time ends us at once.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) in {signal.SIG_DFL, signal.default_int_handler}:
            signal.signal(number, _interrupt)


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)
    raise Interrupted(number)


def has_color(stream: TextIO) -> bool:
    """Return whether to colour: NO_COLOR, then FORCE_COLOR, then whether it is a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def has_unicode(stream: TextIO) -> bool:
    """Return whether the stream can carry `│` and `µ`."""
    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "")
    return encoding in {"utf8", "utf16", "utf32"}


def width_of(stream: TextIO) -> int:
    """Return the columns to fill: the terminal's, at most 100; 80 where there is none."""
    if not stream.isatty():
        return _DEFAULT_WIDTH
    import shutil

    return min(shutil.get_terminal_size((_DEFAULT_WIDTH, 24)).columns, _MAX_WIDTH)


def say(text: str, stream: TextIO | None = None) -> None:
    """Print a line for people on stderr; an unwritable stderr is no reason to fail."""
    target = sys.stderr if stream is None else stream
    if has_unicode(target):
        text = text.encode("utf-8", "backslashreplace").decode()  # bytes of a file that are none
    else:
        text = text.encode("ascii", "replace").decode()
    try:
        print(text, file=target, flush=True)
    except OSError:
        return


def print_error(error: SandboxError) -> None:
    """Print what went wrong and what to do next."""
    color = has_color(sys.stderr)
    label = "\033[31;1merror:\033[0m" if color else "error:"
    say(f"sandbox: {label} {error}")
    if error.hint:
        _print_hint(error.hint)


def print_interrupted(stop: Interrupted) -> None:
    """Print that a command has ended before its time, and what to do next."""
    say(f"sandbox: stopped by {signal.Signals(stop.number).name}")
    if stop.hint:
        _print_hint(stop.hint)


def _print_hint(text: str) -> None:
    hint = "\033[36mhint:\033[0m" if has_color(sys.stderr) else "hint:"
    say(f"{hint} {text}")
