"""Places that a run makes to mount on: they are no part of what the step has changed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from sandbox.build.archive import owner_of
from sandbox.build.stack import Node, Stack, read_xattrs
from sandbox.errors import ImageError
from sandbox.image.places import opaque_name

SYSTEM_PLACES = ("/proc", "/sys", "/dev", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def find_missing(stack: Stack, places: Iterable[str]) -> tuple[bytes, ...]:
    """Return what would have to be made for these places, the deepest first."""
    missing: set[bytes] = set()
    for place in places:
        try:
            path, node = stack.resolve(os.fsencode(place))
        except ImageError:
            continue  # the run will say what is in the way
        while node is None and path:
            missing.add(path)
            path = path.rpartition(b"/")[0]
            node = stack.find(path, follow=False) if path else stack.top()
    return tuple(sorted(missing, key=lambda path: (-path.count(b"/"), path)))


def remove_stubs(upper: Path, missing: Sequence[bytes], below: Stack) -> None:
    """Remove those that were made and are still empty from what a run has written.

    So are directories of lower layers that are only there because a place was made in them.
    """
    top = os.open(upper, _DIRECTORY)
    try:
        for path in missing:
            with suppress(OSError):  # not made, or not empty any more
                _remove(top, path)
        for path in sorted({above for each in missing for above in _above(each)}, reverse=True):
            with suppress(OSError):
                _remove_if_old(top, path, below)
    finally:
        os.close(top)


def _above(path: bytes) -> Iterator[bytes]:
    while path := path.rpartition(b"/")[0]:
        yield path


def changes_nothing(upper: Path, below: Stack) -> bool:
    """Return whether a run has written nothing at all.

    When something was changed does not count: a file that is made and taken away is no change.

    Args:
        upper: What it has written, in overlay form; nobody writes to it now.
        below: What it was to change.
    """
    try:
        fd = os.open(upper, _DIRECTORY)
    except OSError:
        return False  # closed to us, so the run has changed it
    try:
        return _is_old(fd, below, below.top())
    finally:
        os.close(fd)


def _is_old(fd: int, below: Stack, node: Node | None) -> bool:
    """Return whether an empty directory of a run's is as the one of lower layers."""
    found = os.fstat(fd)
    if node is None or found.st_mode != node.found.st_mode or owner_of(found) != node.owner:
        return False
    with suppress(OSError):
        if os.getxattr(fd, opaque_name()) == b"y":
            return False
    return read_xattrs(fd) == below.xattrs(node) and not os.listdir(fd)


def _remove_if_old(top: int, path: bytes, below: Stack) -> None:
    parent, name = _enter(top, path)
    try:
        fd = os.open(name, _DIRECTORY, dir_fd=parent)
        try:
            is_old = _is_old(fd, below, below.find(path, follow=False))
        finally:
            os.close(fd)
        if is_old:
            os.rmdir(name, dir_fd=parent)
    finally:
        os.close(parent)


def _enter(top: int, path: bytes) -> tuple[int, bytes]:
    """Return a descriptor of an entry's directory, and its name; no link is followed."""
    *above, name = path.split(b"/")
    fd = os.dup(top)
    try:
        for part in above:
            inner = os.open(part, _DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = inner
    except BaseException:
        os.close(fd)
        raise
    return fd, name


def _remove(top: int, path: bytes) -> None:
    fd, name = _enter(top, path)
    try:
        found = os.lstat(name, dir_fd=fd)
        times = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            os.rmdir(name, dir_fd=fd)
        elif stat.S_ISREG(found.st_mode) and not found.st_size:
            os.unlink(name, dir_fd=fd)
        os.utime(fd, ns=(times.st_atime_ns, times.st_mtime_ns))
    finally:
        os.close(fd)
