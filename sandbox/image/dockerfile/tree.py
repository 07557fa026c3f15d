"""Trees that COPY takes files from, and the one that a build's context is.

The context is only looked into by descriptors below its own: a link in it means a place in it,
whatever it says, and nobody who swaps a directory for a link meanwhile leads out of it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol, Self, TypeVar

from sandbox.errors import ImageError, SpecError
from sandbox.image.dockerfile.globs import PathPatterns
from sandbox.image.dockerfile.ignore import NAME, parse_ignore

_MOST_LINKS = 40
_LARGEST_IGNORE_BYTES = 1 << 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR})


class Entry(Protocol):
    """Something in a tree."""

    @property
    def path(self) -> bytes:
        """Return where it really is: from the top, without a slash in front or links on the way."""

    @property
    def found(self) -> os.stat_result:
        """Return what lstat(2) says of it."""

    @property
    def owner(self) -> tuple[int, int]:
        """Return whose it is there: uid and gid."""

    @property
    def is_directory(self) -> bool:
        """Return whether it has entries."""

    @property
    def is_link(self) -> bool:
        """Return whether it is a symbolic link."""


E = TypeVar("E", bound=Entry)


class Tree(Protocol[E]):
    """Files from a top that nothing leads out of."""

    def find(self, path: bytes, *, follow: bool = True) -> E | None:
        """Return what is at a path, links on the way followed within the tree; None for nothing."""

    def children(self, node: E, /) -> Iterator[E]:
        """Yield the entries of a directory, in order."""

    def read_link(self, node: E, /) -> bytes:
        """Return what a link says."""

    def open(self, node: E, /) -> int:
        """Return a descriptor of a file's data."""


class ContextEntry(NamedTuple):
    """Something in a context."""

    path: bytes
    found: os.stat_result

    @property
    def owner(self) -> tuple[int, int]:
        """Return whose it is on the host."""
        return self.found.st_uid, self.found.st_gid

    @property
    def is_directory(self) -> bool:
        """Return whether it has entries."""
        return stat.S_ISDIR(self.found.st_mode)

    @property
    def is_link(self) -> bool:
        """Return whether it is a symbolic link."""
        return stat.S_ISLNK(self.found.st_mode)


class Context:
    """The directory that a build takes its files from."""

    def __init__(self, root: Path) -> None:
        """Open the directory.

        Raises:
            SpecError: it cannot be opened, or is no directory.
        """
        self.root = root
        try:
            self._fd = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as exc:
            hint = "a context is a directory, such as `.`"
            raise SpecError(f"cannot use {root} as context: {exc.strerror}", hint=hint) from exc

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """Let go of the directory."""
        os.close(self._fd)

    def find(self, path: bytes, *, follow: bool = True) -> ContextEntry | None:
        """Return what is at a path, links on the way followed within the context.

        Raises:
            ImageError: links go in circles.
        """
        waiting = [part for part in reversed(path.split(b"/")) if part and part != b"."]
        real: list[bytes] = []
        links = 0
        while waiting:
            part = waiting.pop()
            if part == b"..":
                del real[-1:]
                continue
            entry = self._lstat(b"/".join([*real, part]))
            if entry is None:
                return None
            if not entry.is_link or (not waiting and not follow):
                real.append(part)
                continue
            links += 1
            if links > _MOST_LINKS:
                raise ImageError(f"`{os.fsdecode(path)}`: links go in circles")
            target = self.read_link(entry)
            waiting += [each for each in reversed(target.split(b"/")) if each and each != b"."]
            if target.startswith(b"/"):
                real = []
        return self._lstat(b"/".join(real))

    def _lstat(self, path: bytes) -> ContextEntry | None:
        try:
            fd = self._open_below(path, os.O_PATH | os.O_NOFOLLOW)
        except OSError as exc:
            if exc.errno in _ABSENT:
                return None
            raise self._trouble("look at", path, exc) from exc
        try:
            return ContextEntry(path, os.fstat(fd))
        finally:
            os.close(fd)

    def _open_below(self, path: bytes, flags: int) -> int:
        from sandbox.kernel.mount_calls import open_in

        directory, _, name = path.rpartition(b"/")
        parent = open_in(self._fd, directory or b".", os.O_PATH | os.O_DIRECTORY, follow=False)
        try:
            return os.open(name or b".", flags | os.O_CLOEXEC, dir_fd=parent)
        finally:
            os.close(parent)

    def children(self, node: ContextEntry, /) -> Iterator[ContextEntry]:
        """Yield the entries of a directory, in order of their names.

        Raises:
            ImageError: it cannot be read.
        """
        try:
            fd = self._open_below(node.path, _DIRECTORY)
            try:
                names = os.listdir(fd)  # noqa: PTH208 - of a descriptor
                found = [(os.fsencode(name), os.lstat(name, dir_fd=fd)) for name in names]
            finally:
                os.close(fd)
        except OSError as exc:
            raise self._trouble("read", node.path, exc) from exc
        for name, each in sorted(found, key=lambda pair: pair[0]):
            yield ContextEntry(b"/".join(filter(None, (node.path, name))), each)

    def read_link(self, node: ContextEntry, /) -> bytes:
        """Return what a link says.

        Raises:
            ImageError: it is none any more.
        """
        try:
            fd = self._open_below(node.path, os.O_PATH | os.O_NOFOLLOW)
            try:
                return os.readlink(b"", dir_fd=fd)
            finally:
                os.close(fd)
        except OSError as exc:
            raise self._trouble("read the link", node.path, exc) from exc

    def open(self, node: ContextEntry, /) -> int:
        """Return a descriptor of a file's data.

        Raises:
            ImageError: it cannot be read.
        """
        try:
            # Not to wait for somebody to open the other end, if it has become a pipe meanwhile.
            return self._open_below(node.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as exc:
            raise self._trouble("read", node.path, exc) from exc

    def _trouble(self, doing: str, path: bytes, exc: OSError) -> ImageError:
        place = self.root / os.fsdecode(path)
        return ImageError(
            f"cannot {doing} {place}: {exc.strerror}",
            hint=f"if the build does not need it, name it in {self.root / NAME}",
        )


def read_ignored(context: Context, dockerfile: Path | None) -> tuple[PathPatterns, str | None]:
    """Return what the build is not to see, and the name of the file that says so.

    `Dockerfile.dockerignore`, beside the Dockerfile, wins over the context's `.dockerignore`.

    Raises:
        SpecError: a line of it is no pattern, with file and line.
        ImageError: it cannot be read.
    """
    if dockerfile is not None:
        own = dockerfile.with_name(f"{dockerfile.name}{NAME}")
        try:
            return parse_ignore(own.read_bytes(), str(own)), str(own)
        except FileNotFoundError:
            pass
        except OSError as exc:
            raise ImageError(f"cannot read {own}: {exc.strerror}") from exc
    entry = context.find(os.fsencode(NAME))
    if entry is None:
        return PathPatterns(()), None
    name = str(context.root / NAME)
    if not stat.S_ISREG(entry.found.st_mode) or entry.found.st_size > _LARGEST_IGNORE_BYTES:
        raise ImageError(f"{name} is no file of patterns")
    with os.fdopen(context.open(entry), "rb") as file:
        return parse_ignore(file.read(_LARGEST_IGNORE_BYTES), name), name
