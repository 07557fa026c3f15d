"""Landlock: a process gives up the right to change files outside of some directories, for good.

It takes no privilege. What it cannot hold back is what is not about opening, making or removing
files: modes, owners, times and attributes; mounts that are read-only can. The numbers are those of
linux/landlock.h; what an older kernel does not know is left out.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Iterable
from contextlib import suppress

from sandbox.kernel.libc import library as _libc
from sandbox.kernel.mount_calls import check

_CREATE_RULESET = 444
_ADD_RULE = 445
_RESTRICT_SELF = 446
"""The same on every architecture."""
_PATH_BENEATH = 1

EXECUTE = 1 << 0
WRITE_FILE = 1 << 1
READ_FILE = 1 << 2
READ_DIR = 1 << 3
REFER = 1 << 13
TRUNCATE = 1 << 14
IOCTL_DEV = 1 << 15
_FIRST_ABI = (1 << 13) - 1
"""All of the rights that the first version had: those above, and to make and remove."""
_REFER_ABI, _TRUNCATE_ABI, _IOCTL_ABI, _SCOPE_ABI = 2, 3, 5, 6
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2

_READ = EXECUTE | READ_FILE | READ_DIR
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV


_RULESET = struct.Struct("=QQQ")
"""handled_access_fs, handled_access_net, scoped."""
_OLD_RULESET_BYTES = 8
_BENEATH = struct.Struct("=Qi")
"""allowed_access and parent_fd, next to each other."""


def handled_by(abi: int) -> int:
    """Return the rights on files that a version knows."""
    rights = _FIRST_ABI
    if abi >= _REFER_ABI:
        rights |= REFER
    if abi >= _TRUNCATE_ABI:
        rights |= TRUNCATE
    if abi >= _IOCTL_ABI:
        rights |= IOCTL_DEV
    return rights


def describe_gaps(abi: int) -> str:
    """Return what a version leaves open, in words; empty if nothing that we ask for."""
    gaps = []
    if abi < _TRUNCATE_ABI:
        gaps.append("truncating files")
    if abi < _IOCTL_ABI:
        gaps.append("controlling devices")
    if abi < _SCOPE_ABI:
        gaps.append("signals and abstract sockets")
    return ", ".join(gaps)


def confine(abi: int, writable: Iterable[str], devices: Iterable[str]) -> None:
    """Let this process and its children read everything, and change only what is named.

    Args:
        abi: The version that the kernel has.
        writable: Files, and directories with all that is below them.
        devices: Likewise; they may be written to and controlled, but none be made.

    Raises:
        OSError: the kernel refuses; places that are not there are passed over.
    """
    handled = handled_by(abi)
    scoped = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if abi >= _SCOPE_ABI else 0
    rules = _RULESET.pack(handled, 0, scoped)
    size = ctypes.c_size_t(len(rules) if scoped else _OLD_RULESET_BYTES)
    ruleset = check(_libc.syscall(ctypes.c_long(_CREATE_RULESET), rules, size, 0))
    try:
        _allow(ruleset, "/", _READ & handled)
        for path in writable:
            _allow(ruleset, path, handled & ~IOCTL_DEV)
        for path in devices:
            _allow(ruleset, path, handled & (_READ | WRITE_FILE | IOCTL_DEV))
        check(_libc.syscall(ctypes.c_long(_RESTRICT_SELF), ruleset, 0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISDIR(os.fstat(fd).st_mode):
                rights &= _OF_FILES
            rule = _BENEATH.pack(rights, fd)
            check(_libc.syscall(ctypes.c_long(_ADD_RULE), ruleset, _PATH_BENEATH, rule, 0))
        except OSError as exc:
            # A place in a file system of the kernel's own cannot be ruled on.
            if exc.errno != errno.EBADFD:
                raise
        finally:
            os.close(fd)
