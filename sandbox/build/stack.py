"""What a stack of layers shows, without mounting it: looked up as overlayfs would.

No link in a layer is ever followed by the kernel: what it says is taken apart here and begun again
at the top of the stack, so that nothing leads out of it. A build's context is a stack of one.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sandbox.errors import ImageError
from sandbox.image.owners import read_owners
from sandbox.image.places import is_whiteout, keeps_owners, opaque_name

_MOST_LINKS = 40
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NONE = frozenset({errno.ENOENT, errno.ENOTDIR})


class Node(NamedTuple):
    """One entry of the stack."""

    path: bytes
    """From the top, without a slash in front, and without links on the way."""
    levels: tuple[int, ...]
    """Layers that it comes from, the topmost first; several only for a directory."""
    found: os.stat_result
    owner: tuple[int, int]
    """uid and gid in the image; in a plain user's store the file itself has others."""

    @property
    def is_directory(self) -> bool:
        """Return whether it has entries."""
        return stat.S_ISDIR(self.found.st_mode)

    @property
    def is_link(self) -> bool:
        """Return whether it is a symbolic link."""
        return stat.S_ISLNK(self.found.st_mode)


class Stack:
    """Some layers in overlay form."""

    def __init__(self, layers: Sequence[Path]) -> None:
        """Look into `layers`, bottom first; none at all is an empty root."""
        self._layers = [os.fsencode(layer) for layer in reversed(layers)]
        self._opaque = opaque_name()
        self._owners = None if keeps_owners() else [read_owners(tree) for tree in reversed(layers)]

    def top(self) -> Node | None:
        """Return the root; None if there are no layers."""
        if not self._layers:
            return None
        levels = tuple(range(len(self._layers)))
        found = os.lstat(self._layers[0])
        return Node(b"", levels, found, self._owner(0, b"", found))

    def _owner(self, level: int, path: bytes, found: os.stat_result) -> tuple[int, int]:
        if self._owners is None:
            return found.st_uid, found.st_gid
        return self._owners[level].get(path, (0, 0))

    def resolve(self, path: bytes, *, follow: bool = True) -> tuple[bytes, Node | None]:
        """Return where a path leads to, and what is there.

        Of what does not exist the rest is taken as it is written, as a directory to be made.

        Args:
            path: From the top; `..` goes up from where links have led to.
            follow: Whether a link at its end is followed.

        Raises:
            ImageError: links go in circles, or something is below a file.
        """
        waiting = [part for part in reversed(path.split(b"/")) if part and part != b"."]
        real: list[bytes] = []
        nodes: list[Node | None] = [self.top()]
        links = 0
        while waiting:
            part = waiting.pop()
            if part == b"..":
                if real:
                    real.pop()
                    nodes.pop()
                continue
            node = self._enter(nodes[-1], real, part)
            if node is not None and node.is_link and (waiting or follow):
                links += 1
                if links > _MOST_LINKS:
                    raise ImageError(f"`/{os.fsdecode(path)}`: links go in circles")
                target = self.read_link(node)
                waiting += [p for p in reversed(target.split(b"/")) if p and p != b"."]
                if target.startswith(b"/"):
                    real, nodes = [], nodes[:1]
                continue
            real.append(part)
            nodes.append(node)
        return b"/".join(real), nodes[-1]

    def _enter(self, parent: Node | None, real: list[bytes], part: bytes) -> Node | None:
        if parent is None:
            return None
        if not parent.is_directory:
            raise ImageError(f"`/{os.fsdecode(b'/'.join(real))}` is no directory in the image")
        return self.child(parent, part)

    def find(self, path: bytes, *, follow: bool = True) -> Node | None:
        """Return what is at a path, None if there is nothing.

        Raises:
            ImageError: links go in circles.
        """
        try:
            return self.resolve(path, follow=follow)[1]
        except ImageError as exc:
            if "circles" in str(exc):
                raise
            return None

    def child(self, parent: Node, name: bytes) -> Node | None:
        """Return an entry of a directory; a link is not followed."""
        path = parent.path + b"/" + name if parent.path else name
        levels: list[int] = []
        top: os.stat_result | None = None
        for level in parent.levels:
            place = self._place(level, path)
            try:
                found = os.lstat(place)
            except OSError as exc:
                if exc.errno not in _NONE:
                    raise
                continue
            if is_whiteout(found) or (levels and not stat.S_ISDIR(found.st_mode)):
                break
            levels.append(level)
            top = top or found
            if not stat.S_ISDIR(found.st_mode) or self._hides_lower(place):
                break
        if top is None:
            return None
        return Node(path, tuple(levels), top, self._owner(levels[0], path, top))

    def _hides_lower(self, place: bytes) -> bool:
        try:
            return os.getxattr(place, self._opaque, follow_symlinks=False) == b"y"
        except OSError:
            return False

    def _place(self, level: int, path: bytes) -> bytes:
        return self._layers[level] + b"/" + path if path else self._layers[level]

    def place(self, node: Node) -> bytes:
        """Return where an entry is on the disk: of a directory, in the topmost layer."""
        return self._place(node.levels[0], node.path)

    def read_link(self, node: Node) -> bytes:
        """Return what a link says."""
        return os.readlink(self.place(node))  # noqa: PTH115 - bytes

    def open(self, node: Node) -> int:
        """Return a descriptor of a file's data; a link that was put on the way is an error."""
        from sandbox.kernel.mount_calls import open_in

        top = os.open(self._layers[node.levels[0]], _DIRECTORY)
        try:
            return open_in(top, node.path, os.O_RDONLY | os.O_NONBLOCK, follow=False)
        finally:
            os.close(top)

    def xattrs(self, node: Node) -> dict[str, bytes]:
        """Return the attributes that an image can have."""
        return read_xattrs(self.place(node))

    def names(self, node: Node) -> list[bytes]:
        """Return what is in a directory, in order."""
        seen: dict[bytes, bool] = {}
        for level in node.levels:
            with os.scandir(self._place(level, node.path)) as entries:
                for entry in entries:
                    if entry.name not in seen:
                        seen[entry.name] = not is_whiteout(entry.stat(follow_symlinks=False))
        return sorted(name for name, is_there in seen.items() if is_there)

    def children(self, node: Node) -> Iterator[Node]:
        """Yield the entries of a directory, in order."""
        for name in self.names(node):
            child = self.child(node, name)
            if child is not None:
                yield child


_KEPT = ("security.capability", "user.")


def read_xattrs(place: bytes | int) -> dict[str, bytes]:
    """Return the attributes of a file that mean something on another machine, in order."""
    follow = {} if isinstance(place, int) else {"follow_symlinks": False}
    try:
        names = os.listxattr(place, **follow)
    except OSError:
        return {}  # a file system that has none
    return {
        name: os.getxattr(place, name, **follow)
        for name in sorted(names)
        if name.startswith(_KEPT) and not name.startswith("user.overlay.")
    }
