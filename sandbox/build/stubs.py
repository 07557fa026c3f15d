"""Places that a run makes to mount on: they are no part of what the step has changed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from sandbox.build.stack import Stack
from sandbox.errors import ImageError

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


def remove_stubs(upper: Path, missing: Iterable[bytes]) -> None:
    """Remove those that were made and are still empty from what a run has written."""
    top = os.open(upper, _DIRECTORY)
    try:
        for path in missing:
            with suppress(OSError):  # not made, or not empty any more
                _remove(top, path)
    finally:
        os.close(top)


def _remove(top: int, path: bytes) -> None:
    *above, name = path.split(b"/")
    fd = os.dup(top)
    try:
        for part in above:
            inner = os.open(part, _DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = inner
        found = os.lstat(name, dir_fd=fd)
        times = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            os.rmdir(name, dir_fd=fd)
        elif stat.S_ISREG(found.st_mode) and not found.st_size:
            os.unlink(name, dir_fd=fd)
        os.utime(fd, ns=(times.st_atime_ns, times.st_mtime_ns))
    finally:
        os.close(fd)
