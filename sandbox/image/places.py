"""Paths inside a tree that is not to be trusted: no walk can lead out of it.

A walk opens one component after the other, by descriptors and without following links. What a link
says is taken apart here and begun again at the top of the tree, so `/etc` and `../../etc` both mean
the tree's own. Nobody else writes to the tree meanwhile: it lies in a directory of the store's
owner, mode 0700.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from sandbox.errors import ImageError
from sandbox.image.tar_headers import show

LONGEST_PATH = 4096

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40
_KEPT_DESCRIPTORS = 32
_ALL_IDS = "4294967295"
_CAP_SYS_ADMIN = 21
_NEW_DIRECTORY = 0o700  # until its real mode is set: it has to be filled


def split(path: bytes) -> list[bytes]:
    """Return the components of a path as an archive has it; none for the tree's own top.

    Raises:
        ImageError: it goes up, or is longer than any path may be.
    """
    parts = [part for part in path.split(b"/") if part and part != b"."]
    if b".." in parts:
        raise ImageError(f"`{show(path)}` goes up in the archive, which no honest one does")
    if len(path) > LONGEST_PATH:
        raise ImageError(f"the archive has a path of {len(path)} bytes: `{show(path)[:40]}…`")
    return parts


class Tree:
    """The directories of a tree, by descriptors; a few of them stay open."""

    def __init__(self, fd: int, *, depth: int) -> None:
        """Use the directory `fd` as the top; it stays the caller's to close."""
        self._top = fd
        self._depth = depth
        self._open: dict[bytes, tuple[int, bytes]] = {}
        self._stale: list[int] = []
        self.opaque: set[bytes] = set()
        """Real paths of the directories that hide the ones below them."""
        self.made: set[bytes] = set()
        """Real paths of the directories that had to be made on the way to others."""

    def close(self) -> None:
        """Close all descriptors that were kept."""
        self.forget()
        for fd in self._stale:
            os.close(fd)
        self._stale.clear()

    def forget(self) -> None:
        """Look every path up anew: an entry was removed, so they may lead elsewhere.

        Descriptors that were returned stay open until the next call of `directory`.
        """
        self._stale.extend(fd for fd, _ in self._open.values())
        self._open.clear()

    def hide_lower(self, fd: int, path: bytes) -> None:
        """Make a directory opaque, in the one of two ways that the owner may use.

        Raises:
            OSError: the file system has no extended attributes.
        """
        os.setxattr(fd, opaque_name(), b"y")
        self.opaque.add(path)

    def directory(self, parts: list[bytes], *, make: bool) -> tuple[int, bytes]:
        """Return a descriptor of a directory, and the real path it has within the tree.

        The descriptor is valid until the next call of this object.

        Args:
            parts: Components; links among them are followed, within the tree.
            make: Make what is missing.

        Raises:
            ImageError: something else than a directory is in the way, or links go in circles.
            OSError: as `open`; FileNotFoundError if something is missing and is not to be made.
        """
        if not parts:
            return self._top, b""
        key = b"/".join(parts)
        kept = self._open.get(key)
        if kept is not None:
            return kept
        if self._stale or len(self._open) >= _KEPT_DESCRIPTORS:
            self.close()
        found = self._walk(parts, make=make)
        self._open[key] = found
        return found

    def _walk(self, parts: list[bytes], *, make: bool) -> tuple[int, bytes]:
        waiting = list(reversed(parts))
        real: list[bytes] = []
        links = 0
        fd = os.dup(self._top)
        try:
            while waiting:
                part = waiting.pop()
                if part == b"..":
                    # Up from where we really are; the top is its own parent.
                    waiting.extend(reversed(real[:-1]))
                    fd = self._restart(fd, real)
                    continue
                target = self._enter(fd, part, real, make=make)
                if isinstance(target, int):
                    os.close(fd)
                    fd = target
                    real.append(part)
                    continue
                links = _count_link(links, parts)
                waiting.extend(p for p in reversed(target.split(b"/")) if p and p != b".")
                if target.startswith(b"/"):
                    fd = self._restart(fd, real)
        except BaseException:
            os.close(fd)
            raise
        return fd, b"/".join(real)

    def _restart(self, fd: int, real: list[bytes]) -> int:
        real.clear()
        top = os.dup(self._top)
        os.close(fd)
        return top

    def _enter(self, fd: int, part: bytes, real: list[bytes], *, make: bool) -> int | bytes:
        """Return a descriptor of the directory `part`, or what it says if it is a link."""
        try:
            return os.open(part, _DIRECTORY, dir_fd=fd)
        except FileNotFoundError:
            if not make:
                raise
        except OSError as exc:
            if exc.errno not in {errno.ENOTDIR, errno.ELOOP}:
                raise
            found = os.lstat(part, dir_fd=fd)
            if stat.S_ISLNK(found.st_mode):
                return os.readlink(part, dir_fd=fd)
            if not (make and is_whiteout(found)):
                shown = show(b"/".join([*real, part]))
                raise ImageError(f"`{shown}` is no directory, but something is in it") from exc
            # Something new below a name that was hidden: nothing old may show through.
            os.unlink(part, dir_fd=fd)
            os.mkdir(part, _NEW_DIRECTORY, dir_fd=fd)
            inner = os.open(part, _DIRECTORY, dir_fd=fd)
            path = b"/".join([*real, part])
            self.made.add(path)
            self.hide_lower(inner, path)
            return inner
        if len(real) >= self._depth:
            raise ImageError(f"the archive has directories more than {self._depth} deep")
        os.mkdir(part, _NEW_DIRECTORY, dir_fd=fd)
        self.made.add(b"/".join([*real, part]))
        return os.open(part, _DIRECTORY, dir_fd=fd)


def _count_link(links: int, parts: list[bytes]) -> int:
    if links >= _MOST_LINKS:
        raise ImageError(f"`{show(b'/'.join(parts))}`: links go in circles")
    return links + 1


def is_whiteout(found: os.stat_result) -> bool:
    """Return whether this is how a whiteout is stored: a character device 0:0."""
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def opaque_name() -> str:
    """Return the attribute that marks an opaque directory in a store of ours."""
    return f"{'user' if uses_userxattr() else 'trusted'}.overlay.opaque"


def keeps_owners() -> bool:
    """Return whether files can belong to whom an archive says: for root of the machine only."""
    if os.geteuid() != 0:
        return False
    with suppress(OSError), open("/proc/self/uid_map", encoding="ascii") as file:  # noqa: PTH123
        return file.read().split()[-1] == _ALL_IDS
    return True


def uses_userxattr() -> bool:
    """Return whether trees that we write need `userxattr`, as we may set nothing in `trusted.`."""
    if not keeps_owners():
        return True
    with open("/proc/self/status", encoding="ascii") as file:  # noqa: PTH123
        effective = next(line.split()[1] for line in file if line.startswith("CapEff:"))
    return not int(effective, 16) >> _CAP_SYS_ADMIN & 1


def remove_entry(fd: int, name: bytes) -> None:
    """Remove an entry of a directory, whatever it is, with all that is in it.

    Raises:
        OSError: it cannot be removed.
    """
    found = os.lstat(name, dir_fd=fd)
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(name, dir_fd=fd)
        return
    if found.st_mode & stat.S_IRWXU != stat.S_IRWXU:
        os.chmod(name, _NEW_DIRECTORY, dir_fd=fd)  # it is a directory, so no link is followed
    inner = os.open(name, _DIRECTORY, dir_fd=fd)
    try:
        for entry in os.listdir(inner):  # noqa: PTH208 - a descriptor
            remove_entry(inner, os.fsencode(entry))
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=fd)


def remove_tree(path: Path) -> None:
    """Remove a directory with all that is in it; that it is not there is no error.

    Raises:
        OSError: it cannot be removed.
    """
    parent = os.open(path.parent, _DIRECTORY)
    try:
        remove_entry(parent, os.fsencode(path.name))
    except FileNotFoundError:
        pass
    finally:
        os.close(parent)
