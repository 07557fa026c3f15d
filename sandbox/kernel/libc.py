"""The system calls that Python 3.11 does not offer, by ctypes; no other module declares one."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

# PyDLL keeps the GIL and the errno of the call; none of these calls blocks.
_libc = ctypes.PyDLL(None, use_errno=True)

CLOCK_MONOTONIC = 1
TFD_TIMER_ABSTIME = 1
TFD_CLOEXEC = os.O_CLOEXEC
TFD_NONBLOCK = os.O_NONBLOCK

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_TIMERSLACK = 29
PR_SET_CHILD_SUBREAPER = 36

_NS_PER_SEC = 1_000_000_000
_SIGINFO = struct.Struct("<Iii II")  # signo, errno, code, pid, uid: the head of signalfd_siginfo
_SIGINFO_SIZE = 128


class _Timespec(ctypes.Structure):
    _fields_: ClassVar = [("sec", ctypes.c_long), ("nsec", ctypes.c_long)]


class _Itimerspec(ctypes.Structure):
    _fields_: ClassVar = [("interval", _Timespec), ("value", _Timespec)]


@dataclass(frozen=True, slots=True)
class SignalInfo:
    """One signal that was received: who sent it matters more than that it came."""

    number: int
    from_kernel: bool
    """True for the terminal's ^C, ^\\ and ^Z: the program has received it too."""
    sender_pid: int


def _check(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def prctl(option: int, argument: int) -> None:
    """Set one attribute of the calling process or thread."""
    _check(_libc.prctl(option, ctypes.c_ulong(argument), 0, 0, 0))


def timerfd_create() -> int:
    """Return a CLOEXEC, non-blocking descriptor of a timer on CLOCK_MONOTONIC."""
    return _check(_libc.timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC))


def timerfd_settime(fd: int, first_ns: int, interval_ns: int = 0) -> None:
    """Arm a timer for an absolute CLOCK_MONOTONIC time, then every `interval_ns`; 0, 0 disarms."""
    spec = _Itimerspec(
        _Timespec(*divmod(interval_ns, _NS_PER_SEC)), _Timespec(*divmod(first_ns, _NS_PER_SEC))
    )
    _check(_libc.timerfd_settime(fd, TFD_TIMER_ABSTIME, ctypes.byref(spec), None))


def signalfd(signals: Iterable[int]) -> int:
    """Return a CLOEXEC, non-blocking descriptor that yields `signals`; block them first."""
    mask = ctypes.create_string_buffer(128)  # glibc's sigset_t
    _check(_libc.sigemptyset(mask))
    for number in signals:
        _check(_libc.sigaddset(mask, int(number)))
    return _check(_libc.signalfd(-1, mask, TFD_NONBLOCK | TFD_CLOEXEC))


def read_signals(fd: int) -> list[SignalInfo]:
    """Return every signal that waits on a signalfd; empty when none does."""
    try:
        data = os.read(fd, 32 * _SIGINFO_SIZE)
    except BlockingIOError:
        return []
    infos = []
    for start in range(0, len(data), _SIGINFO_SIZE):
        number, _, code, pid, _ = _SIGINFO.unpack_from(data, start)
        infos.append(SignalInfo(number=number, from_kernel=code > 0, sender_pid=pid))
    return infos
