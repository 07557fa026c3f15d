"""What root may do in a root file system of its own: docker's fourteen capabilities, no more."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Sequence
from typing import Any, ClassVar

from sandbox.kernel.mount_calls import check

_libc = ctypes.PyDLL(None, use_errno=True)

_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_VERSION_3 = 0x20080522
_MOST_CAPABILITIES = 64

_SYS_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}
_KEYCTL_JOIN_SESSION_KEYRING = 1

KEPT = {
    "chown": 0,
    "dac_override": 1,
    "fowner": 3,
    "fsetid": 4,
    "kill": 5,
    "setgid": 6,
    "setuid": 7,
    "setpcap": 8,
    "net_bind_service": 10,
    "net_raw": 13,
    "sys_chroot": 18,
    "mknod": 27,
    "audit_write": 29,
    "setfcap": 31,
}
"""Docker's own choice for containers that are not privileged, with the kernel's numbers."""

_KEPT_MASK = sum(1 << number for number in KEPT.values())


class _Header(ctypes.Structure):
    _fields_: ClassVar[Sequence[Any]] = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Sets(ctypes.Structure):
    _fields_: ClassVar[Sequence[Any]] = [
        (name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable")
    ]


def bound() -> None:
    """Make sure that no program gets more than the fourteen, whatever file it executes.

    Raises:
        OSError: we may not give up capabilities.
    """
    for number in range(_MOST_CAPABILITIES):
        if not _KEPT_MASK >> number & 1:
            try:
                _prctl(_PR_CAPBSET_DROP, number)
            except OSError as exc:
                if exc.errno == errno.EINVAL:  # this kernel has no more
                    break
                raise


def reduce() -> None:
    """Give up what we hold beyond the fourteen; after a change of user nothing is held at all.

    Raises:
        OSError: the kernel refuses.
    """
    header = _Header(version=_VERSION_3)
    held = (_Sets * 2)()
    check(_libc.capget(ctypes.byref(header), held))
    for half, mask in zip(held, (_KEPT_MASK & 0xFFFFFFFF, _KEPT_MASK >> 32), strict=True):
        half.effective &= mask
        half.permitted &= mask
        half.inheritable = 0
    check(_libc.capset(ctypes.byref(header), held))
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)


def forbid_new_privileges() -> None:
    """Let no exec give privileges: set-user-ID bits and file capabilities are ignored.

    Raises:
        OSError: the kernel is older than 3.5.
    """
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def hide_from_tracers() -> None:
    """Close our memory and our files in /proc to processes of the same user.

    Raises:
        OSError: the kernel refuses.
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def find_keyring_call(machine: str) -> int | None:
    """Return the number of the system call for keyrings; None where it is not known."""
    return _SYS_KEYCTL.get(machine)


def leave_keyring(call: int) -> None:
    """Take a new session keyring: the caller's holds keys of the host."""
    _libc.syscall(ctypes.c_long(call), ctypes.c_long(_KEYCTL_JOIN_SESSION_KEYRING), None)


def _prctl(option: int, argument: int) -> None:
    check(_libc.prctl(option, ctypes.c_ulong(argument), 0, 0, 0))
