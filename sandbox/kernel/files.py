"""Reading and writing control files: one system call each, every refusal named.

A control file is not an ordinary file: it takes one write(2), may refuse it, and must never be
created by us. A buffered `open(…, "w")` would lose the kernel's refusal, so it is not used.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from pathlib import Path

from sandbox.errors import KernelError

_CHUNK_BYTES = 16_384
# The kernel hands out a file of many records (cgroup.procs) in pieces of a page, the last record
# of a piece whole. A shorter answer than this is therefore the whole file: no known record is
# half a page long.
_WHOLE_BELOW_BYTES = 2_048
# Itself and its name in its parent; each directory in it adds a link, wherever these are counted.
_LINKS_OF_A_LEAF = 2
_FIRST_PAUSE_SEC = 0.000_2
_LONGEST_PAUSE_SEC = 0.02


def read_text(path: Path | str) -> str:
    """Return the content of one kernel file.

    Raises:
        KernelError: it cannot be opened or read.
    """
    try:
        return _read(path)
    except OSError as exc:
        raise KernelError.from_os(exc, doing="read", path=path) from exc


def find_text(path: Path | str) -> str | None:
    """Return the content of one kernel file, or None if there is none or it cannot be read."""
    try:
        return _read(path)
    except OSError:
        return None


def _read(path: Path | str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(fd, _CHUNK_BYTES):
            parts.append(part)
    finally:
        os.close(fd)
    return b"".join(parts).decode("utf-8", "surrogateescape")


def write_text(path: Path | str, text: str) -> None:
    """Write `text` to a control file that exists, in one write(2).

    An empty list is written as a line feed: a write of no bytes does nothing.

    Raises:
        KernelError: the file is missing, or the kernel refused the text; `errno` says why.
    """
    data = (text or "\n").encode("utf-8", "surrogateescape")
    try:
        # Never O_CREAT: cgroupfs would answer EACCES and hide that the file is missing.
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            written = os.write(fd, data)
        finally:
            os.close(fd)
    except OSError as exc:
        raise KernelError.from_os(exc, doing=f"write `{text}` to", path=path) from exc
    if written != len(data):
        raise KernelError(f"cannot write `{text}` to {path}: only {written} bytes were taken")


def write_and_read_back(path: Path | str, text: str) -> str:
    """Write `text`, then return what the file says, without the line's end.

    Raises:
        KernelError: either was refused.
    """
    write_text(path, text)
    return read_text(path).rstrip("\n")


class KeptFile:
    """A kernel file that is read again and again through one descriptor."""

    __slots__ = ("_size", "fd", "path")

    def __init__(self, path: Path | str) -> None:
        """Open the file.

        Raises:
            KernelError: it cannot be opened.
        """
        self.path = str(path)
        self._size = _CHUNK_BYTES
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as exc:
            raise KernelError.from_os(exc, doing="open", path=path) from exc

    def read(self) -> bytes:
        """Return the whole content as it is now.

        Raises:
            KernelError: it can no longer be read; ENODEV once its group was removed.
        """
        try:
            data = os.pread(self.fd, self._size, 0)
            if len(data) < _WHOLE_BELOW_BYTES:
                return data
            while part := os.pread(self.fd, self._size, len(data)):
                data += part
        except OSError as exc:
            raise KernelError.from_os(exc, doing="read", path=self.path) from exc
        if len(data) >= self._size:
            self._size = 2 * len(data)
        return data

    def close(self) -> None:
        """Close the descriptor; a second time does nothing."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def make_directory(path: Path) -> None:
    """Make one group.

    Raises:
        KernelError: it exists already, or the kernel refused.
    """
    try:
        path.mkdir(mode=0o755)
    except OSError as exc:
        raise KernelError.from_os(exc, doing="make the group", path=path) from exc


def remove_directory(path: Path | str, *, patience_sec: float = 1.0) -> None:
    """Remove one group; it is fine if there is none.

    A group stays busy for a moment after its last process has ended, so EBUSY is tried again
    until `patience_sec` is over.

    Raises:
        KernelError: it is still busy then, holds other groups, or the kernel refused.
    """
    deadline = time.monotonic() + patience_sec
    pause_sec = _FIRST_PAUSE_SEC
    while True:
        try:
            Path(path).rmdir()
        except FileNotFoundError:
            return
        except OSError as exc:
            if exc.errno != errno.EBUSY or time.monotonic() >= deadline:
                raise KernelError.from_os(exc, doing="remove the group", path=path) from exc
        else:
            return
        time.sleep(pause_sec)
        pause_sec = min(2 * pause_sec, _LONGEST_PAUSE_SEC)


def remove_tree(
    path: Path | str, *, known: tuple[str, ...] = (), patience_sec: float = 1.0
) -> None:
    """Remove a group and every group below it, deepest first; it is fine if there is none.

    The program may have made groups of its own, closed them to everybody (mode 000), and others
    may vanish while we look: none of that is an error.

    Args:
        path: The group.
        known: Groups in it that are probably all and empty: trying that first spares the walk.
        patience_sec: How long to try what is busy.

    Raises:
        KernelError: a group is still busy after `patience_sec`, or the kernel refused.
    """
    if known and _remove_at_once([*(f"{path}/{name}" for name in known), str(path)]):
        return
    deadline = time.monotonic() + patience_sec
    for directory in reversed(list_tree(path)):
        remove_directory(directory, patience_sec=max(0.0, deadline - time.monotonic()))


def _remove_at_once(directories: list[str]) -> bool:
    try:
        for directory in directories:
            os.rmdir(directory)  # noqa: PTH106 - at the end of every run
    except OSError:
        return False
    return True


def list_tree(path: Path | str) -> list[str]:
    """Return a group and every group below it, parents first; empty if there is none.

    Groups that were closed to us are opened first (owners may do so); those that vanish during
    the walk are left out.
    """
    found: list[str] = []
    waiting = [str(path)]
    while waiting:
        directory = waiting.pop()
        try:
            children = _subdirectories(directory)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as exc:
            if exc.errno == errno.ENODEV:  # removed between the open and the reading
                continue
            raise KernelError.from_os(exc, doing="list the group", path=directory) from exc
        found.append(directory)
        waiting.extend(children)
    return found


def _subdirectories(directory: str) -> list[str]:
    found = os.stat(directory)  # noqa: PTH116 - many times in every run
    if found.st_nlink == _LINKS_OF_A_LEAF and found.st_mode & stat.S_IRWXU == stat.S_IRWXU:
        return []
    try:
        return _scan(directory)
    except PermissionError:
        mode = stat.S_IMODE(Path(directory).stat().st_mode)
        Path(directory).chmod(mode | stat.S_IRWXU)
        return _scan(directory)


def _scan(directory: str) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]


def find_file_system(path: Path, mountinfo: str = "/proc/self/mountinfo") -> str:
    """Return the kind of file system that a directory is on, such as `ext4`; empty if unknown."""
    number = path.stat().st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    with open(mountinfo, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
        for line in file:
            fields, _, rest = line.partition(" - ")
            if fields.split()[2] == device:
                return rest.split()[0]
    return ""
