"""COPY and ADD: files put into a new layer, at places that lead nowhere outside of the image."""

from __future__ import annotations

import stat
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import fsdecode

from sandbox.build.archive import ArchiveWriter, Member, member_of
from sandbox.build.stack import Node, Stack
from sandbox.errors import ImageError
from sandbox.records.light import dataclass, replace

_NEW_DIRECTORY = 0o755
_WHITEOUT = b".wh."


@dataclass(frozen=True, kw_only=True)
class Dressing:
    """How what is put differs from what it was."""

    owner: tuple[int, int] = (0, 0)
    keeps_owner: bool = False
    """Whether the entries' own owners hold, as of an archive that is unpacked."""
    mode: Callable[[int, bool], int] | None = None
    """What `--chmod` makes of a mode, of a file or (True) a directory."""
    now_sec: int
    """When directories are made that no source has."""


class Placement:
    """One new layer, while it is filled."""

    def __init__(self, stack: Stack, writer: ArchiveWriter, dressing: Dressing) -> None:
        """Put files on top of `stack` into the archive of `writer`."""
        self._stack = stack
        self._writer = writer
        self._dressing = dressing
        self._kinds: dict[bytes, bytes] = {}
        """What was put, by its path."""
        self._parents: dict[bytes, Node | None] = {}

    @contextmanager
    def as_it_is(self) -> Iterator[None]:
        """Let what is put meanwhile be as its archive has it, whatever the instruction says."""
        before = self._dressing
        self._dressing = Dressing(keeps_owner=True, now_sec=before.now_sec)
        try:
            yield
        finally:
            self._dressing = before

    def begin(self) -> None:
        """Write the top of the tree: a layer without it would have to invent one."""
        self._keep_directory(b"")

    def resolve(self, path: bytes) -> bytes:
        """Return where a destination of the user's really is.

        Raises:
            ImageError: links go in circles, or something on the way is a file.
        """
        return self._stack.resolve(path)[0]

    def _below(self, path: bytes) -> Node | None:
        """Return what lower layers have at a real path; its directories are looked up once."""
        if not path:
            return self._stack.top()
        parent, _, name = path.rpartition(b"/")
        if parent not in self._parents:
            self._parents[parent] = self._below(parent)
        node = self._parents[parent]
        return self._stack.child(node, name) if node is not None and node.is_directory else None

    def was_put(self, path: bytes) -> bool:
        """Return whether this layer has something at a real path."""
        return path in self._kinds

    def mode_below(self, path: bytes) -> int:
        """Return type and permissions of what lower layers have at a real path; 0 for nothing."""
        node = self._below(path)
        return 0 if node is None else node.found.st_mode

    def find(self, path: bytes) -> bytes | None:
        """Return the kind of what is at a real path now: of this layer, or of those below."""
        if path in self._kinds:
            return self._kinds[path]
        node = self._below(path)
        return None if node is None else _kind(node)

    def make_directory(self, path: bytes) -> None:
        """Have a directory at a real path, as it is if it is there, and all above it.

        Raises:
            ImageError: something else is there.
        """
        if self._kinds.get(path) == tarfile.DIRTYPE:
            return
        if path:
            self.make_directory(path.rpartition(b"/")[0])
        self._keep_directory(path)

    def _keep_directory(self, path: bytes) -> None:
        node = self._below(path)
        if path in self._kinds or (node is not None and not node.is_directory):
            raise ImageError(f"cannot copy into `/{fsdecode(path)}`: it is no directory")
        if node is not None:
            uid, gid = node.owner
            member = member_of(path, node.found, self._stack.xattrs(node))
            member = replace(member, uid=uid, gid=gid)
        else:
            uid, gid = self._dressing.owner if path else (0, 0)
            member = Member(
                path=path,
                kind=tarfile.DIRTYPE,
                mode=_NEW_DIRECTORY,
                uid=uid,
                gid=gid,
                mtime_sec=self._dressing.now_sec,
                xattrs={},
            )
        self._add(member)

    def put(self, member: Member, data: Iterator[bytes] | None = None) -> None:
        """Put one entry at its path, whose directory is made if it is not there.

        Raises:
            ImageError: a directory is in the way of a file, or the other way round.
        """
        parent, _, name = member.path.rpartition(b"/")
        if name.startswith(_WHITEOUT):
            raise ImageError(
                f"no layer can hold a file called `{fsdecode(name)}`",
                hint="names that begin with `.wh.` tell that a file of a lower layer is gone",
            )
        self.make_directory(parent)
        there = self.find(member.path)
        is_directory = member.kind == tarfile.DIRTYPE
        if there is not None and is_directory != (there == tarfile.DIRTYPE):
            what = "non-directory" if is_directory else "directory"
            raise ImageError(f"cannot copy to `/{fsdecode(member.path)}`: it is a {what} already")
        self._add(self._dress(member), data)

    def _dress(self, member: Member) -> Member:
        dressing = self._dressing
        if not dressing.keeps_owner:
            member = replace(member, uid=dressing.owner[0], gid=dressing.owner[1])
        if dressing.mode is not None and member.kind not in {tarfile.SYMTYPE, tarfile.LNKTYPE}:
            mode = dressing.mode(member.mode, member.kind == tarfile.DIRTYPE)
            member = replace(member, mode=stat.S_IMODE(mode))
        return member

    def _add(self, member: Member, data: Iterator[bytes] | None = None) -> None:
        self._kinds[member.path] = member.kind
        self._writer.add(member, data)


def _kind(node: Node) -> bytes:
    if node.is_directory:
        return tarfile.DIRTYPE
    return tarfile.SYMTYPE if node.is_link else tarfile.REGTYPE
