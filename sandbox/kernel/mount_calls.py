"""The system calls of namespaces and mounts, by ctypes; only runs in a root of their own load it.

The mount calls are those by descriptors (Linux 5.2, mount_setattr 5.12): a path that is looked up
twice may lead to two places.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Iterable
from typing import Any

from sandbox.kernel.libc import library as _libc

# Their numbers are the same on every architecture.
_SYS_OPEN_TREE = 428
_SYS_MOVE_MOUNT = 429
_SYS_FSOPEN = 430
_SYS_FSCONFIG = 431
_SYS_FSMOUNT = 432
_SYS_OPENAT2 = 437
_SYS_MOUNT_SETATTR = 442

_AT_EMPTY_PATH = 0x1000
_AT_RECURSIVE = 0x8000
_OPEN_TREE_CLONE = 1
_OPEN_TREE_CLOEXEC = os.O_CLOEXEC
_MOVE_MOUNT_F_EMPTY_PATH = 0x4
_MOVE_MOUNT_T_EMPTY_PATH = 0x40
_FSOPEN_CLOEXEC = 1
_FSMOUNT_CLOEXEC = 1
_FSCONFIG_SET_FLAG = 0
_FSCONFIG_SET_STRING = 1
_FSCONFIG_CMD_CREATE = 6

RDONLY = 0x1
NOSUID = 0x2
NODEV = 0x4
NOEXEC = 0x8
"""MOUNT_ATTR_*."""

_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_IN_ROOT = 0x10
_RESOLVE_IN_ROOT_ALONE = _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS

_MS_REC = 0x4000
_MS_SLAVE = 0x80000
_MNT_DETACH = 2

_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914


# Packed by hand: to define a structure of ctypes takes longer than all that is done with it.
_OPEN_HOW = struct.Struct("=QQQ")
"""flags, mode, resolve."""
_MOUNT_ATTR = struct.Struct("=QQQQ")
"""attr_set, attr_clr, propagation, userns_fd."""


def _call(number: int, *arguments: Any) -> int:
    result = int(_libc.syscall(ctypes.c_long(number), *arguments))
    return check(result)


def check(result: int) -> int:
    """Return the result of a call.

    Raises:
        OSError: it is negative.
    """
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def find_in(root_fd: int, path: bytes, flags: int) -> int | None:
    """Do as `open_in` without links; return None if nothing is there.

    Raises:
        OSError: likewise, for other reasons.
    """
    result = _open_in(root_fd, path, flags, _RESOLVE_IN_ROOT_ALONE | _RESOLVE_NO_SYMLINKS)
    return None if result < 0 and ctypes.get_errno() == errno.ENOENT else check(result)


def open_in(root_fd: int, path: bytes, flags: int, *, follow: bool = True) -> int:
    """Open `path` with the directory `root_fd` as its root: neither links nor `..` lead out of it.

    Args:
        root_fd: The directory.
        path: Absolute or relative, which means the same.
        flags: As for `os.open`; CLOEXEC is added.
        follow: Whether links may be in it at all.

    Raises:
        OSError: as of `open`; ELOOP for a link of /proc that leads elsewhere.
    """
    resolve = _RESOLVE_IN_ROOT_ALONE | (0 if follow else _RESOLVE_NO_SYMLINKS)
    return check(_open_in(root_fd, path, flags, resolve))


def _open_in(root_fd: int, path: bytes, flags: int, resolve: int) -> int:
    how = _OPEN_HOW.pack(flags | os.O_CLOEXEC, 0, resolve)
    size = ctypes.c_size_t(len(how))
    return int(_libc.syscall(ctypes.c_long(_SYS_OPENAT2), root_fd, path, how, size))


def unshare(flags: int) -> None:
    """Leave namespaces for new ones.

    Raises:
        OSError: not allowed, or too many of them.
    """
    check(_libc.unshare(ctypes.c_int(flags)))


def new_mount(kind: bytes, options: Iterable[tuple[bytes, bytes | None]], attributes: int) -> int:
    """Return a descriptor of a new mount that is nowhere yet.

    Args:
        kind: The file system, such as `tmpfs`.
        options: Names with their values; None for a flag.
        attributes: RDONLY, NOSUID, NODEV, NOEXEC.

    Raises:
        OSError: there is no such file system, or it refuses an option or us.
    """
    fd = _call(_SYS_FSOPEN, ctypes.c_char_p(kind), _FSOPEN_CLOEXEC)
    try:
        for name, value in options:
            command = _FSCONFIG_SET_FLAG if value is None else _FSCONFIG_SET_STRING
            _call(_SYS_FSCONFIG, fd, command, ctypes.c_char_p(name), ctypes.c_char_p(value), 0)
        _call(_SYS_FSCONFIG, fd, _FSCONFIG_CMD_CREATE, None, None, 0)
        return _call(_SYS_FSMOUNT, fd, _FSMOUNT_CLOEXEC, attributes)
    finally:
        os.close(fd)


def mount_by_text(kind: bytes, target: bytes, options: bytes) -> None:
    """Mount as `mount` does, for options that the kernel takes as one text only.

    Raises:
        OSError: it refuses.
    """
    check(_libc.mount(kind, target, kind, ctypes.c_ulong(0), options))


def copy_mount(fd: int, *, recursive: bool) -> int:
    """Return a descriptor of a copy of what `fd` is open on, that is nowhere yet.

    Raises:
        OSError: not allowed, or the mount may not be copied.
    """
    flags = _AT_EMPTY_PATH | _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC
    if recursive:
        flags |= _AT_RECURSIVE
    return _call(_SYS_OPEN_TREE, fd, ctypes.c_char_p(b""), ctypes.c_uint(flags))


def place_mount(mount_fd: int, target_fd: int) -> None:
    """Put a mount that is nowhere yet on what `target_fd` is open on.

    Raises:
        OSError: a directory on a file, or the other way round.
    """
    flags = _MOVE_MOUNT_F_EMPTY_PATH | _MOVE_MOUNT_T_EMPTY_PATH
    empty = ctypes.c_char_p(b"")
    _call(_SYS_MOVE_MOUNT, mount_fd, empty, target_fd, empty, flags)


def put_mount(mount_fd: int, target_fd: int) -> None:
    """Place a mount, and close both descriptors.

    Raises:
        OSError: a directory on a file, or the other way round.
    """
    try:
        place_mount(mount_fd, target_fd)
    finally:
        os.close(mount_fd)
        os.close(target_fd)


def restrict_mount(mount_fd: int, attributes: int, *, recursive: bool = False) -> None:
    """Add attributes to a mount.

    Raises:
        OSError: the kernel is older than 5.12, or refuses.
    """
    how = _MOUNT_ATTR.pack(attributes, 0, 0, 0)
    flags = _AT_EMPTY_PATH | (_AT_RECURSIVE if recursive else 0)
    size = ctypes.c_size_t(len(how))
    _call(_SYS_MOUNT_SETATTR, mount_fd, b"", ctypes.c_uint(flags), how, size)


def make_mounts_private() -> None:
    """Let none of our mounts be seen by others; what others unmount goes here too.

    Raises:
        OSError: not allowed.
    """
    check(_libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None))


def pivot_to_here() -> None:
    """Make the working directory, a mount of its own, the root, and let the old one go.

    Raises:
        OSError: not allowed, or it is no mount.
    """
    check(_libc.pivot_root(b".", b"."))
    # The old root now lies on top of the new one, and the working directory is in it.
    check(_libc.umount2(b".", _MNT_DETACH))


def set_hostname(name: bytes) -> None:
    """Set the host name of the UTS namespace.

    Raises:
        OSError: not allowed, or too long.
    """
    check(_libc.sethostname(name, ctypes.c_size_t(len(name))))


def raise_loopback() -> None:
    """Set `lo` up, in a new network namespace the only interface.

    Raises:
        OSError: not allowed.
    """
    fd = check(_libc.socket(2, 2 | os.O_CLOEXEC, 0))  # AF_INET, SOCK_DGRAM
    try:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(fd, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(fd, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | 1))
    finally:
        os.close(fd)
