"""Places inside a root file system that is not to be trusted: found, or made, never outside it."""

from __future__ import annotations

import errno
import os
import stat

from sandbox.kernel.mount_calls import open_in

_MOST_LINKS = 40
_NEW_DIRECTORY = 0o755


def find_place(root_fd: int, path: bytes, *, directory: bool) -> int:
    """Return an O_PATH descriptor of a place to mount on, which is made if it is not there.

    A link in `path` means a place inside, whatever it says; one that leads to nothing has its
    target made, as a write through it would.

    Args:
        root_fd: The top of the root file system.
        path: From there.
        directory: Whether to make a directory, or an empty file.

    Raises:
        OSError: something else is in the way, or nothing can be made there.
    """
    for _ in range(_MOST_LINKS):
        try:
            return open_in(root_fd, path, os.O_PATH)
        except FileNotFoundError:
            path = _make_next(root_fd, path, directory=directory)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def own_place(root_fd: int, path: bytes) -> int:
    """Return the place of a directory of the system's, which may be no link at all.

    Raises:
        OSError: one is, or nothing can be made there.
    """
    try:
        return open_in(root_fd, path, os.O_PATH | os.O_DIRECTORY, follow=False)
    except FileNotFoundError:
        os.close(find_place(root_fd, path, directory=True))
        return open_in(root_fd, path, os.O_PATH | os.O_DIRECTORY, follow=False)


def _make_next(root_fd: int, path: bytes, *, directory: bool) -> bytes:
    """Make the first part of a path that is missing; return the path to go on with."""
    parts = [part for part in path.split(b"/") if part and part != b"."]
    for count in range(1, len(parts) + 1):
        here = b"/" + b"/".join(parts[:count])
        try:
            os.close(open_in(root_fd, here, os.O_PATH))
        except FileNotFoundError:
            above, rest = b"/" + b"/".join(parts[: count - 1]), parts[count:]
            return _make(root_fd, above, parts[count - 1], rest, directory=directory)
    return path


def _make(root_fd: int, above: bytes, name: bytes, rest: list[bytes], *, directory: bool) -> bytes:
    fd = open_in(root_fd, above, os.O_PATH | os.O_DIRECTORY)
    try:
        if rest or directory:
            os.mkdir(name, _NEW_DIRECTORY, dir_fd=fd)
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            os.close(os.open(name, flags, 0o644, dir_fd=fd))
    except FileExistsError:
        # A link that leads to nothing: what it says, looked up from where it is.
        name = os.readlink(name, dir_fd=fd)
    finally:
        os.close(fd)
    beginning = name if name.startswith(b"/") else above + b"/" + name
    return b"/".join([beginning, *rest])


def read_file_in(root_fd: int, path: bytes, most_bytes: int) -> bytes | None:
    """Return what a file inside holds, at most so much; None if there is no regular file.

    Raises:
        OSError: it cannot be read.
    """
    try:
        place = open_in(root_fd, path, os.O_PATH)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        # To open a device can do something already.
        if not stat.S_ISREG(os.fstat(place).st_mode):
            return None
        fd = os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(place)
    try:
        parts = []
        while most_bytes > 0 and (part := os.read(fd, most_bytes)):
            parts.append(part)
            most_bytes -= len(part)
        return b"".join(parts)
    finally:
        os.close(fd)
