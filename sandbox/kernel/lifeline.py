"""Pipes whose end of file means that the supervisor is gone: nobody else may hold their far end.

A child that is forked anywhere in the supervisor's process, by a library or by the user's own
code, would hold it as well and so hide the supervisor's death; such children close it first.
"""

from __future__ import annotations

import fcntl
import os

_STANDARD_FDS = 3
_held: set[int] = set()


def open_pipe() -> tuple[int, int]:
    """Return a CLOEXEC pipe, the end to read first, whose descriptors are none of stdio's.

    A supervisor may have been started with stdin closed; a pipe in its place would be lost when
    the child takes its own stdin.
    """
    read_fd, write_fd = os.pipe()
    return _above_stdio(read_fd), _above_stdio(write_fd)


def open_lifeline() -> tuple[int, int]:
    """Return such a pipe whose writing end forked children close."""
    read_fd, write_fd = open_pipe()
    _held.add(write_fd)
    return read_fd, write_fd


def cut(write_fd: int) -> None:
    """Close the writing end of a lifeline: whoever reads it sees the end of file."""
    _held.discard(write_fd)
    os.close(write_fd)


def drop_all() -> None:
    """Close the writing ends that were inherited; for a child that no fork handler has run in."""
    for fd in _held:
        os.close(fd)
    _held.clear()


def _above_stdio(fd: int) -> int:
    if fd >= _STANDARD_FDS:
        return fd
    moved: int = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _STANDARD_FDS)
    os.close(fd)
    return moved


os.register_at_fork(after_in_child=drop_all)
