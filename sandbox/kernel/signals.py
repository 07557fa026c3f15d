"""What a program inherits of our signals: what it would have had without us."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any

from sandbox.errors import KernelError
from sandbox.kernel.libc import SignalSet
from sandbox.records.light import dataclass, replace
from sandbox.records.program import ExitStatus

_Handler = Callable[[int, FrameType | None], Any] | int | signal.Handlers | None

# Python ignores these when it starts, whatever its parent did; a program would not expect that.
_IGNORED_BY_PYTHON = frozenset({int(signal.SIGPIPE), int(signal.SIGXFSZ)})
_STATUS = "/proc/self/status"
_STATUS_BYTES = 1 << 14


@dataclass(frozen=True)
class SignalState:
    """The signals that are blocked and those that are ignored in a new program."""

    blocked: frozenset[int]
    ignored: frozenset[int]

    @classmethod
    def capture(cls) -> SignalState:
        """Return the state of this process, which should not have changed it yet.

        Raises:
            KernelError: there is no /proc.
        """
        masks = _read_masks()
        ignored = frozenset(_numbers(masks[b"SigIgn"])) - _IGNORED_BY_PYTHON
        return cls(blocked=frozenset(_numbers(masks[b"SigBlk"])), ignored=ignored)

    @contextmanager
    def during_fork(self) -> Iterator[None]:
        """Have, inside the block, what a forked child shall start with, and all signals blocked.

        The parent does it because a child that touches much memory is slow. What is caught is
        made default as well: a handler of ours must not run in the child.
        """
        masks = _read_masks()
        before = SignalSet(_numbers(masks[b"SigBlk"]))
        changed: dict[int, _Handler] = {}
        _everything().block_exactly()
        try:
            for number, action in self._changes(masks).items():
                changed[number] = signal.signal(number, action)
            yield
        finally:
            for number, handler in changed.items():
                signal.signal(number, handler)
            before.block_exactly()

    def _changes(self, masks: dict[bytes, int]) -> dict[int, signal.Handlers]:
        caught = set(_numbers(masks[b"SigCgt"]))
        ignored = set(_numbers(masks[b"SigIgn"]))
        changes = {
            number: signal.SIG_DFL
            for number in caught | ignored
            # What is not Python's own, such as the C library's, an exec resets anyway.
            if number not in self.ignored and signal.getsignal(number) is not None
        }
        changes.update(dict.fromkeys(self.ignored - ignored, signal.SIG_IGN))
        return changes


def keep_exit_statuses() -> None:
    """Make the kernel keep the statuses of our children, whatever our own parent left us with."""
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


@cache
def _everything() -> SignalSet:
    return SignalSet(signal.valid_signals())


def _read_masks() -> dict[bytes, int]:
    try:
        fd = os.open(_STATUS, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as exc:
        raise KernelError.from_os(exc, doing="open", path=_STATUS) from exc
    try:
        lines = os.read(fd, _STATUS_BYTES).splitlines()
    finally:
        os.close(fd)
    return {
        line[:6]: int(line[7:], 16)
        for line in lines
        if line.startswith(b"Sig") and line[3:4] in b"BIC"
    }


def _numbers(mask: int) -> list[int]:
    return [number for number in range(1, mask.bit_length() + 1) if mask >> (number - 1) & 1]


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
"""Those that end a program which does nothing about them, and may be sent to it."""
_MASKS = (b"SigBlk", b"SigIgn", b"SigCgt")


class FirstProcess:
    """The supervisor's view of a program that is the first process of its namespace.

    The kernel keeps from a first process every signal that it does not handle. So a program that
    would end by SIGTERM anywhere else would go on; we do to it what the kernel does elsewhere.
    """

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
