"""The tree that overlayfs would show, made by copying: for where it cannot be mounted.

What a layer hides is told as overlayfs tells it: a character device 0:0 is a whiteout, and a
directory with the attribute `trusted.overlay.opaque=y` (or `user.`) hides those below it. No path
is followed through a link, whoever changes a layer meanwhile.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from sandbox.kernel.mount_calls import open_in
from sandbox.records.light import dataclass

Step = Callable[["Copied"], None]
"""Told after each entry how much was copied so far; what it raises ends the copy."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SOURCE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FICLONE = 0x4004_9409
_CHUNK_BYTES = 8 << 20
_CANNOT = frozenset({errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EINVAL, errno.ENODATA})
_NOT_ACROSS = frozenset({errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM})


@dataclass(frozen=True, kw_only=True)
class Copied:
    """What a copy came to."""

    entries: int = 0
    size_bytes: int = 0
    """Of the files, holes included."""
    unreadable: int = 0
    """Entries that we may not read or make: they are left out, or empty directories."""
    foreign: int = 0
    """Owners and attributes that could not be kept."""


class _Entry:
    """What is seen at one name: from the topmost layer that has it."""

    def __init__(self, level: int, found: os.stat_result) -> None:
        self.level = level
        self.found = found
        self.levels = [level]
        """Of a directory: the layers that it is merged from, the topmost first."""
        self.is_closed = not stat.S_ISDIR(found.st_mode)
        """Whether no lower layer can add to it."""


def copy_merged(layers: Sequence[Path], target: Path, *, userxattr: bool, step: Step) -> Copied:
    """Fill the empty directory `target` with what a stack of layers shows.

    Names, types, modes, owners, times, links, holes and attributes are the topmost layer's that has
    them, as overlayfs shows them. Files are cloned where the file system can, else copied; never
    shared. What is mounted inside a layer is left out, as overlayfs leaves it out.

    Args:
        layers: Bottom first.
        target: A directory that nobody else writes to.
        userxattr: Whether opaque directories are marked in `user.`, not in `trusted.`.
        step: Told after each entry.

    Raises:
        OSError: something cannot be read or written, for another reason than a lack of rights.
    """
    with ExitStack() as undo:
        fds = [os.open(path, _DIRECTORY) for path in (target, *reversed(layers))]
        for fd in fds:
            undo.callback(os.close, fd)
        copy = _Copy(fds[0], fds[1:], "user.overlay." if userxattr else "trusted.overlay.", step)
        copy.run()
        return copy.copied()


class _Copy:
    """One copy under way."""

    def __init__(self, target: int, tops: list[int], marks: str, step: Step) -> None:
        self._target = target
        self._tops = tops
        self._devices = [os.fstat(top).st_dev for top in tops]
        self._marks = marks
        self._step = step
        self._entries = self._size = self._unreadable = self._foreign = 0
        self._can_clone = True
        self._twins: dict[tuple[int, int, int], bytes] = {}
        self._made: list[tuple[bytes, int]] = []

    def copied(self) -> Copied:
        return Copied(
            entries=self._entries,
            size_bytes=self._size,
            unreadable=self._unreadable,
            foreign=self._foreign,
        )

    def run(self) -> None:
        waiting: list[tuple[bytes, list[int]]] = [(b"", [*range(len(self._tops))])]
        while waiting:
            path, levels = waiting.pop()
            self._made.append((path, levels[0]))
            waiting += self._fill(path, levels)
        for path, level in reversed(self._made):  # filling changes times, and may need a mode
            self._dress_directory(path, level)

    # --- one directory ----------------------------------------------------------------------------

    def _fill(self, path: bytes, levels: list[int]) -> list[tuple[bytes, list[int]]]:
        """Put all but directories into a directory; return those, made but empty."""
        with ExitStack() as undo:
            fds: dict[int, int] = {}
            seen: dict[str, _Entry] = {}
            for level in levels:
                fd = self._open(level, path)
                if fd is None:
                    break
                undo.callback(os.close, fd)
                fds[level] = fd
                self._look(level, fd, seen)
                if self._is_opaque(fd):
                    break
            target = open_in(self._target, b"/" + path, _DIRECTORY, follow=False)
            undo.callback(os.close, target)
            below = []
            for name, entry in seen.items():
                if _is_whiteout(entry.found):
                    continue
                inner = path + b"/" + os.fsencode(name) if path else os.fsencode(name)
                if stat.S_ISDIR(entry.found.st_mode):
                    os.mkdir(name, stat.S_IRWXU, dir_fd=target)
                    below.append((inner, entry.levels))
                else:
                    self._put(fds[entry.level], target, name, inner, entry)
                self._entries += 1
                self._step(self.copied())
            return below

    def _open(self, level: int, path: bytes) -> int | None:
        """Return a layer's directory; None where it is closed to us, or something is mounted."""
        try:
            fd = open_in(self._tops[level], b"/" + path, _DIRECTORY, follow=False)
        except PermissionError:
            self._unreadable += 1
            return None
        if self._is_mounted(fd, level):
            os.close(fd)
            return None
        return fd

    def _is_mounted(self, fd: int, level: int) -> bool:
        """Return whether something is open that only lies on top of the layer."""
        if os.fstat(fd).st_dev == self._devices[level]:
            return False
        return _mount_id(fd) != _mount_id(self._tops[level])  # a subvolume is no mount

    def _look(self, level: int, fd: int, seen: dict[str, _Entry]) -> None:
        """Add what a layer has in a directory to what those above it show."""
        for name in os.listdir(fd):
            found = os.lstat(name, dir_fd=fd)
            entry = seen.get(name)
            if entry is None:
                seen[name] = _Entry(level, found)
            elif entry.is_closed:
                continue
            elif stat.S_ISDIR(found.st_mode):
                entry.levels.append(level)
            else:
                entry.is_closed = True

    def _is_opaque(self, fd: int) -> bool:
        try:
            return os.getxattr(fd, self._marks + "opaque") == b"y"
        except OSError:
            return False

    # --- one entry --------------------------------------------------------------------------------

    def _put(self, source: int, target: int, name: str, path: bytes, entry: _Entry) -> None:
        found = entry.found
        twin = (entry.level, found.st_dev, found.st_ino)
        if found.st_nlink > 1 and twin in self._twins:
            os.link(
                self._twins[twin],
                name,
                src_dir_fd=self._target,
                dst_dir_fd=target,
                follow_symlinks=False,
            )
            return
        try:
            self._make(source, target, name, entry)
        except PermissionError:
            self._unreadable += 1
            return
        if found.st_nlink > 1:
            self._twins[twin] = path
        self._dress(source, target, name, found)

    def _make(self, source: int, target: int, name: str, entry: _Entry) -> None:
        found = entry.found
        if stat.S_ISLNK(found.st_mode):
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
        elif not stat.S_ISREG(found.st_mode):
            os.mknod(name, stat.S_IFMT(found.st_mode) | stat.S_IRUSR, found.st_rdev, dir_fd=target)
        else:
            fd = os.open(name, _SOURCE, dir_fd=source)
            try:
                self._copy_file(fd, target, name, entry.level)
            finally:
                os.close(fd)

    def _copy_file(self, source: int, target: int, name: str, level: int) -> None:
        found = os.fstat(source)
        if not stat.S_ISREG(found.st_mode) or self._is_mounted(source, level):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        fd = os.open(name, _NEW_FILE, stat.S_IRUSR | stat.S_IWUSR, dir_fd=target)
        try:
            if not (found.st_size and self._clone(source, fd)):
                self._copy_data(source, fd, found.st_size)
            else:
                self._size += found.st_size
        finally:
            os.close(fd)

    def _clone(self, source: int, target: int) -> bool:
        if self._can_clone:
            try:
                fcntl.ioctl(target, _FICLONE, source)
            except OSError:
                self._can_clone = False
        return self._can_clone

    def _copy_data(self, source: int, target: int, size: int) -> None:
        """Copy what is no hole, and give the file its size."""
        at = 0
        while at < size:
            try:
                at = os.lseek(source, at, os.SEEK_DATA)
                end = min(os.lseek(source, at, os.SEEK_HOLE), size)
            except OSError as exc:
                if exc.errno != errno.ENXIO:  # nothing but a hole is left
                    raise
                break
            while at < end:
                count = _copy_range(source, target, at, min(end - at, _CHUNK_BYTES))
                if count == 0:  # it has become shorter
                    break
                at += count
                self._size += count
                self._step(self.copied())
            else:
                continue
            break
        os.ftruncate(target, size)

    # --- attributes -------------------------------------------------------------------------------

    def _dress(self, source: int, target: int, name: str, found: os.stat_result) -> None:
        self._try(lambda: self._own(target, name, found))
        if not stat.S_ISLNK(found.st_mode):
            self._try(lambda: os.chmod(name, stat.S_IMODE(found.st_mode), dir_fd=target))
        self._copy_attributes(
            b"/proc/self/fd/%d/%s" % (source, os.fsencode(name)),
            b"/proc/self/fd/%d/%s" % (target, os.fsencode(name)),
        )
        times = (found.st_atime_ns, found.st_mtime_ns)
        os.utime(name, ns=times, dir_fd=target, follow_symlinks=False)

    def _own(self, target: int, name: str, found: os.stat_result) -> None:
        now = os.lstat(name, dir_fd=target)
        if (now.st_uid, now.st_gid) != (found.st_uid, found.st_gid):
            os.chown(name, found.st_uid, found.st_gid, dir_fd=target, follow_symlinks=False)

    def _dress_directory(self, path: bytes, level: int) -> None:
        source = open_in(self._tops[level], b"/" + path, os.O_PATH, follow=False)
        target = open_in(self._target, b"/" + path, _DIRECTORY, follow=False)
        try:
            found = os.fstat(source)
            now = os.fstat(target)
            if (now.st_uid, now.st_gid) != (found.st_uid, found.st_gid):
                self._try(lambda: os.fchown(target, found.st_uid, found.st_gid))
            self._try(lambda: os.fchmod(target, stat.S_IMODE(found.st_mode)))
            names = (b"/proc/self/fd/%d" % fd for fd in (source, target))
            self._copy_attributes(*names, follow=True)
            os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))
        finally:
            os.close(source)
            os.close(target)

    def _copy_attributes(self, source: bytes, target: bytes, *, follow: bool = False) -> None:
        try:
            names = os.listxattr(source, follow_symlinks=follow)
        except OSError:
            return  # a file system without any
        for name in names:
            if not name.startswith(self._marks):
                self._try(lambda name=name: self._set(source, target, name, follow=follow))  # type: ignore[misc]

    @staticmethod
    def _set(source: bytes, target: bytes, name: str, *, follow: bool) -> None:
        value = os.getxattr(source, name, follow_symlinks=follow)
        os.setxattr(target, name, value, follow_symlinks=follow)

    def _try(self, act: Callable[[], None]) -> None:
        """Do what may take more rights than we have, and count what could not be kept."""
        try:
            act()
        except OSError as exc:
            if exc.errno not in _CANNOT:
                raise
            self._foreign += 1


def _copy_range(source: int, target: int, at: int, count: int) -> int:
    try:
        return os.copy_file_range(source, target, count, at, at)
    except OSError as exc:
        if exc.errno not in _NOT_ACROSS:
            raise
    data = os.pread(source, count, at)
    return os.pwrite(target, data, at) if data else 0


def _mount_id(fd: int) -> bytes:
    info = os.open(f"/proc/self/fdinfo/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return next(line for line in os.read(info, 4096).split(b"\n") if line[:7] == b"mnt_id:")
    finally:
        os.close(info)


def _is_whiteout(found: os.stat_result) -> bool:
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0
