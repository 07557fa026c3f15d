"""The terminal: what it can show, how errors look; nothing about what is printed."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from sandbox.errors import SandboxError

_DEFAULT_WIDTH = 80
_MAX_WIDTH = 100


class CommandExit(Exception):  # noqa: N818 - it ends a command, it is no error
    """A command has ended with this exit status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


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
    return min(shutil.get_terminal_size((_DEFAULT_WIDTH, 24)).columns, _MAX_WIDTH)


def say(text: str, stream: TextIO | None = None) -> None:
    """Print a line for people on stderr; an unwritable stderr is no reason to fail."""
    target = sys.stderr if stream is None else stream
    if not has_unicode(target):
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
        hint = "\033[36mhint:\033[0m" if color else "hint:"
        say(f"{hint} {error.hint}")
