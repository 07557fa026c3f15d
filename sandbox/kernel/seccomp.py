"""Filters of system calls, ready to be put in force.

The two that most runs have are built beforehand (`prebuilt_filters`): to compile one takes a
millisecond, and its modules another.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Collection

from sandbox.kernel.capabilities import KEPT
from sandbox.kernel.libc import library as _libc
from sandbox.kernel.prebuilt_filters import DOCKERS, POWERLESS

_CALLS = {"x86_64": 317, "aarch64": 277}
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_SECCOMP_SET_MODE_FILTER = 1
_SECCOMP_FILTER_FLAG_SPEC_ALLOW = 4


_PROGRAM = struct.Struct("@HP")
"""`struct sock_fprog`: how many instructions, and where they are."""


def default_filter(capabilities: Collection[str]) -> bytes | None:
    """Return docker's default filter for this machine; None where we know no system calls.

    Args:
        capabilities: What the program may hold, as `sys_admin`.
    """
    machine = os.uname().machine
    names = frozenset(capabilities)
    prebuilt = {frozenset(KEPT): DOCKERS, frozenset[str](): POWERLESS}.get(names, {}).get(machine)
    if prebuilt is not None:
        return bytes.fromhex(prebuilt)
    from sandbox.kernel.seccomp_policy import assemble_policy, default_policy
    from sandbox.kernel.syscalls import find_architecture

    architecture = find_architecture(machine)
    return None if architecture is None else assemble_policy(default_policy(architecture, names))


def ownerless_filter(capabilities: Collection[str]) -> bytes | None:
    """Return the default filter, but calls that change owners or users do nothing and succeed."""
    from sandbox.kernel.seccomp_policy import assemble_policy, ownerless_policy
    from sandbox.kernel.syscalls import find_architecture

    architecture = find_architecture(os.uname().machine)
    if architecture is None:
        return None
    return assemble_policy(ownerless_policy(architecture, capabilities))


def without_network() -> bytes | None:
    """Return the filter of a program with no capability that may make only AF_UNIX sockets."""
    from sandbox.kernel.seccomp_policy import assemble_policy, local_policy
    from sandbox.kernel.syscalls import find_architecture

    architecture = find_architecture(os.uname().machine)
    return None if architecture is None else assemble_policy(local_policy(architecture))


def count_instructions(code: bytes) -> int:
    """Return how long a filter is."""
    return len(code) // 8


class Filter:
    """A filter ready to be put in force: nothing is looked up any more."""

    def __init__(self, code: bytes) -> None:
        """Take the program as `assemble` returns it."""
        self._code = ctypes.create_string_buffer(code, len(code))
        self._program = _PROGRAM.pack(count_instructions(code), ctypes.addressof(self._code))
        self._call = _CALLS.get(os.uname().machine)

    def enforce(self) -> None:
        """Put it in force for this process and all that come of it, for good.

        Raises:
            OSError: the kernel has no filters, or privileges can still be gained.
        """
        program = self._program
        if self._call is not None:
            # Before Linux 5.16 a filter would slow the program down (SSBD) unless told not to.
            result = _libc.syscall(
                ctypes.c_long(self._call),
                ctypes.c_uint(_SECCOMP_SET_MODE_FILTER),
                ctypes.c_uint(_SECCOMP_FILTER_FLAG_SPEC_ALLOW),
                program,
            )
            if result == 0:
                return
        mode = ctypes.c_ulong(_SECCOMP_MODE_FILTER)
        if _libc.prctl(_PR_SET_SECCOMP, mode, program, 0, 0) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
