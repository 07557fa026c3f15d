"""The system calls that Python 3.11 does not offer, by ctypes.

Those of namespaces and mounts, which few runs need, are in `mount_calls` and `capabilities`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from sandbox.records.light import dataclass

# PyDLL keeps the GIL and the errno of the call; none of these calls blocks.
library = ctypes.PyDLL(None, use_errno=True)
"""The C library, opened once: every module that opens it for itself costs a start its part."""
_libc = library

CLOCK_MONOTONIC = 1
TFD_TIMER_ABSTIME = 1
TFD_CLOEXEC = os.O_CLOEXEC
TFD_NONBLOCK = os.O_NONBLOCK

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_TIMERSLACK = 29
PR_SET_CHILD_SUBREAPER = 36

# The numbers of system calls are the same on every architecture since 2019 (424 and up).
_SYS_CLONE3 = 435
_SYS_CLOSE_RANGE = 436
_SYS_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_VERSION = 1

# As on every architecture that Python runs on but MIPS and SPARC, where nothing is received then.
_AF_UNIX, _SOCK_DGRAM = 1, 2
_SOL_SOCKET, _SO_PASSCRED = 1, 16
_CLONE_PIDFD = 0x1000
_CLONE_INTO_CGROUP = 0x2_0000_0000
_CLOSE_RANGE_CLOEXEC = 4
_LARGEST_FD = (1 << 32) - 1

_NS_PER_SEC = 1_000_000_000
_SIGINFO = struct.Struct("<Iii II")  # signo, errno, code, pid, uid: the head of signalfd_siginfo
_SIGINFO_SIZE = 128


class _Timespec(ctypes.Structure):
    _fields_: ClassVar[Sequence[Any]] = [("sec", ctypes.c_long), ("nsec", ctypes.c_long)]


class _Itimerspec(ctypes.Structure):
    _fields_: ClassVar[Sequence[Any]] = [("interval", _Timespec), ("value", _Timespec)]


class _CloneArgs(ctypes.Structure):
    _fields_: ClassVar[Sequence[Any]] = [
        (name, ctypes.c_uint64)
        for name in (
            "flags",
            "pidfd",
            "child_tid",
            "parent_tid",
            "exit_signal",
            "stack",
            "stack_size",
            "tls",
            "set_tid",
            "set_tid_size",
            "cgroup",
        )
    ]


@dataclass(frozen=True)
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


def set_name(name: bytes) -> None:
    """Give the calling thread a name of at most 15 bytes, which `ps` and `top` show."""
    text = ctypes.create_string_buffer(name)
    prctl(PR_SET_NAME, ctypes.addressof(text))


def timerfd_create() -> int:
    """Return a CLOEXEC, non-blocking descriptor of a timer on CLOCK_MONOTONIC."""
    return _check(_libc.timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC))


def timerfd_settime(fd: int, first_ns: int, interval_ns: int = 0) -> None:
    """Arm a timer for an absolute CLOCK_MONOTONIC time, then every `interval_ns`; 0, 0 disarms."""
    spec = _Itimerspec(
        _Timespec(*divmod(interval_ns, _NS_PER_SEC)), _Timespec(*divmod(first_ns, _NS_PER_SEC))
    )
    _check(_libc.timerfd_settime(fd, TFD_TIMER_ABSTIME, ctypes.byref(spec), None))


class SignalSet:
    """A set of signals as the C library has it, built before it is needed in a hurry."""

    def __init__(self, signals: Iterable[int]) -> None:
        """Add each of `signals` to an empty set."""
        self._set = ctypes.create_string_buffer(128)
        _check(_libc.sigemptyset(self._set))
        for number in signals:
            _check(_libc.sigaddset(self._set, int(number)))

    def block_exactly(self) -> None:
        """Make this the calling thread's mask. `signal.pthread_sigmask` wakes far more memory."""
        _check(-_libc.pthread_sigmask(signal.SIG_SETMASK, self._set, None))

    def open_fd(self) -> int:
        """Return a CLOEXEC, non-blocking descriptor that yields these signals; block them first."""
        return _check(_libc.signalfd(-1, self._set, TFD_NONBLOCK | TFD_CLOEXEC))


def signalfd(signals: Iterable[int]) -> int:
    """Return a CLOEXEC, non-blocking descriptor that yields `signals`; block them first."""
    return SignalSet(signals).open_fd()


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


def fork() -> int:
    """Fork without Python's own handlers, which cost a third of a millisecond; 0 in the child.

    For a child of a process with one thread that does little more than `Image.execute`; with
    several threads the child would find the interpreter's locks held by threads that it has not.

    Raises:
        OSError: too many processes, or too little memory.
    """
    return _check(_libc.fork())


def clone_into(cgroup_fd: int | None, namespaces: int = 0) -> tuple[int, int]:
    """Fork so that the child is born in a v2 group; return its pid and a CLOEXEC pidfd.

    In the child both are 0; it is as bare as that of `fork`.

    Args:
        cgroup_fd: The group's directory; None leaves the child in ours.
        namespaces: CLONE_NEW* flags of those that the child gets for its own.

    Raises:
        OSError: the group refuses (EACCES, EBUSY …), or the kernel is older than 5.7 (ENOSYS,
            EINVAL, E2BIG), or a filter forbids the call (EPERM, ENOSYS).
    """
    pidfd = ctypes.c_int(-1)
    arguments = _CloneArgs(
        flags=_CLONE_PIDFD | namespaces | (0 if cgroup_fd is None else _CLONE_INTO_CGROUP),
        pidfd=ctypes.addressof(pidfd),
        exit_signal=signal.SIGCHLD,
        cgroup=0 if cgroup_fd is None else cgroup_fd,
    )
    size = ctypes.c_size_t(ctypes.sizeof(arguments))
    pid = _check(_libc.syscall(ctypes.c_long(_SYS_CLONE3), ctypes.byref(arguments), size))
    return (pid, pidfd.value) if pid else (0, 0)


def close_on_exec_from(first_fd: int) -> None:
    """Mark every descriptor from `first_fd` up to be closed by the next exec.

    Raises:
        OSError: the kernel is older than 5.11 (ENOSYS, EINVAL), or a filter forbids the call.
    """
    _check(
        _libc.syscall(
            ctypes.c_long(_SYS_CLOSE_RANGE),
            ctypes.c_uint(first_fd),
            ctypes.c_uint(_LARGEST_FD),
            ctypes.c_uint(_CLOSE_RANGE_CLOEXEC),
        )
    )


def open_mailbox(name: bytes) -> int:
    """Return a CLOEXEC, non-blocking socket that receives datagrams sent to an abstract name.

    Each comes with its sender's credentials. The module `socket` would cost a start a millisecond.

    Raises:
        OSError: the name is taken, or there are no such sockets.
    """
    fd = _check(_libc.socket(_AF_UNIX, _SOCK_DGRAM | os.O_CLOEXEC | os.O_NONBLOCK, 0))
    try:
        wanted = ctypes.c_int(1)
        size = ctypes.c_uint(ctypes.sizeof(wanted))
        _check(_libc.setsockopt(fd, _SOL_SOCKET, _SO_PASSCRED, ctypes.byref(wanted), size))
        address = struct.pack("=H", _AF_UNIX) + b"\0" + name
        _check(_libc.bind(fd, address, ctypes.c_uint(len(address))))
    except OSError:
        os.close(fd)
        raise
    return fd


def syncfs(fd: int) -> None:
    """Write all that a file system has not yet written to its disk; `fd` is on it.

    Raises:
        OSError: something could not be written (EIO, ENOSPC).
    """
    # By a library of its own: it may take seconds, in which other threads are to go on.
    library = ctypes.CDLL(None, use_errno=True)
    _check(library.syncfs(fd))


def has_clone3() -> bool:
    """Return whether clone3 can be called: the kernel has it, and no filter forbids it.

    Nothing is cloned: the call is refused for arguments of no size, if it gets that far.
    """
    result = _libc.syscall(ctypes.c_long(_SYS_CLONE3), None, ctypes.c_size_t(0))
    return result < 0 and ctypes.get_errno() == errno.EINVAL


def landlock_abi() -> int:
    """Return the version of the kernel's Landlock; 0 where it is absent, off or forbidden."""
    call, version = ctypes.c_long(_SYS_LANDLOCK_CREATE_RULESET), ctypes.c_uint(_LANDLOCK_VERSION)
    return max(0, int(_libc.syscall(call, None, ctypes.c_size_t(0), version)))


class Image:
    """Arguments and environment as the kernel wants them, built before the fork.

    What a child does before its exec is charged to its group, so it should find this ready.
    """

    def __init__(self, arguments: Sequence[bytes], environment: Mapping[bytes, bytes]) -> None:
        """Copy both; the first argument is the name that the program sees, not its path."""
        pairs = [key + b"=" + value for key, value in environment.items()]
        self._arguments = (ctypes.c_char_p * (len(arguments) + 1))(*arguments, None)
        self._environment = (ctypes.c_char_p * (len(pairs) + 1))(*pairs, None)

    def execute(self, path: bytes) -> int:
        """Become the program at `path`; return the errno if that cannot be."""
        _libc.execve(path, self._arguments, self._environment)
        return ctypes.get_errno()
