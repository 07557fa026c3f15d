"""COPY and ADD: what their sources are, whether they are the same as before, and the new layer."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sandbox.build.archive import ArchiveWriter, Member, kind_of, pieces_of
from sandbox.build.fetching import Fetched, fetch, name_of
from sandbox.build.placing import Dressing, Placement
from sandbox.build.stack import Stack, read_xattrs
from sandbox.build.state import ImageState
from sandbox.build.unpacking import is_archive, put_archive
from sandbox.environment.accounts import find_account
from sandbox.environment.rootfs import find_file
from sandbox.errors import ImageError, SpecError
from sandbox.image.dockerfile.copies import is_address
from sandbox.image.dockerfile.fields import change_mode
from sandbox.image.dockerfile.placement import Item, content_digest, place
from sandbox.image.dockerfile.selection import View, is_directory_name, select
from sandbox.image.dockerfile.syntax import Add, Copy, Heredoc
from sandbox.image.ingest import Ingest
from sandbox.records.light import dataclass, replace

_FETCHED_MODE = 0o600
_HEREDOC_MODE = 0o644


@dataclass(frozen=True, kw_only=True)
class Download:
    """What an address of ADD has given."""

    address: str
    file: Fetched


class Copying:
    """One COPY or ADD, expanded."""

    def __init__(
        self,
        instruction: Copy | Add,
        view: View[Any],
        state: ImageState,
        *,
        now_sec: int,
        keeps_owner: bool,
    ) -> None:
        """Find the sources in `view` and their places in the image.

        Args:
            instruction: What to do.
            view: The context, or a stage.
            state: The image so far.
            now_sec: When directories are made that no source has.
            keeps_owner: Whether the owners of the sources mean something in the image.

        Raises:
            SandboxError: a source is missing, or does not fit the destination.
        """
        self._instruction = instruction
        self._view = view
        self._trees = tuple(state.trees)
        self._stack = Stack(state.trees)
        self._top = _absolute(state.workdir, instruction.destination)
        self._now_sec = now_sec
        self._keeps_owner = keeps_owner and instruction.chown is None
        sources = select(instruction, view)
        self._items: list[Item[Any]] = list(
            place(instruction, view, sources, self._top, self._is_directory)
        )
        self._downloads: list[Download] = []

    def _is_directory(self, path: bytes) -> bool:
        node = self._stack.find(path)
        return node is not None and node.is_directory

    def said(self) -> list[object]:
        """Return what the instruction says of its layer, beside the content of its sources."""
        instruction = self._instruction
        return [
            type(instruction).__name__,
            self._top,
            [(each.name, each.text()) for each in instruction.heredocs],
            [instruction.chown, instruction.chmod, instruction.sources, instruction.excludes],
            instruction.unpack if isinstance(instruction, Add) else None,
        ]

    def content(self) -> str:
        """Return what says whether the sources are the same again.

        Raises:
            ImageError: one cannot be read.
        """
        return content_digest(self._view, self._items, owners=self._keeps_owner)

    @contextmanager
    def downloads(self, ingest: Ingest, insecure: frozenset[str]) -> Iterator[list[str]]:
        """Fetch the addresses of ADD and give their digests; the files go at the end.

        Raises:
            ImageError: one cannot be fetched, or is not the one that is meant.
        """
        instruction = self._instruction
        checksum = instruction.checksum if isinstance(instruction, Add) else None
        with ExitStack() as undo:
            for address in filter(is_address, instruction.sources):
                file = fetch(ingest, address, insecure)
                undo.callback(file.path.unlink, missing_ok=True)
                if checksum is not None and file.digest != checksum:
                    raise ImageError(
                        f"{address} is not the file that is meant: its digest is {file.digest}",
                        hint="is it damaged, or was it replaced by another?",
                    )
                self._downloads.append(Download(address=address, file=file))
            yield [download.file.digest for download in self._downloads]

    # --- the layer --------------------------------------------------------------------------------

    def write(self, writer: ArchiveWriter) -> None:
        """Write the archive of the new layer.

        Raises:
            ImageError: something is in the way, or a source has changed meanwhile.
            OSError: something cannot be read or written.
        """
        placement = Placement(self._stack, writer, self._dressing())
        placement.begin()
        self._bases: dict[bytes, bytes] = {}
        for item in self._items:
            self._put(item, placement)
        for heredoc in self._instruction.heredocs:
            self._put_heredoc(heredoc, placement)
        for download in self._downloads:
            self._put_download(download, placement)

    def _dressing(self) -> Dressing:
        text = self._instruction.chmod
        mode: Callable[[int, bool], int] | None = None
        if text is not None:
            chmod = text

            def mode(before: int, is_directory: bool) -> int:  # noqa: FBT001 - as `Dressing` has it
                return change_mode(chmod, before, is_directory=is_directory)

        owner = (0, 0)
        if self._instruction.chown is not None:
            owner = find_owner(self._instruction.chown, self._trees)
        return Dressing(
            owner=owner, keeps_owner=self._keeps_owner, mode=mode, now_sec=self._now_sec
        )

    def _put(self, item: Item[Any], placement: Placement) -> None:
        entry, path = item.entry, item.destination
        if item.is_named and entry.is_directory:
            self._bases[path] = placement.resolve(path)
            placement.make_directory(self._bases[path])
            return
        if item.is_named and self._unpacks(item):
            self._unpack(item, placement)
            return
        if item.is_inside:
            parent, _, name = path.rpartition(b"/")
            base = self._bases.get(parent)
            if base is None:
                base = placement.resolve(parent)
            real = _below(base, name)
        else:
            real = placement.resolve(path)
        if entry.is_directory:
            self._bases[path] = real
        self._put_entry(entry, real, placement)

    def _put_entry(self, entry: Any, real: bytes, placement: Placement) -> None:
        found: os.stat_result = entry.found
        kind = kind_of(found.st_mode)
        if kind is None:
            return  # a socket
        uid, gid = entry.owner
        member = Member(
            path=real,
            kind=kind,
            mode=stat.S_IMODE(found.st_mode),
            uid=uid,
            gid=gid,
            mtime_sec=found.st_mtime_ns // 1_000_000_000,
            device=(os.major(found.st_rdev), os.minor(found.st_rdev)),
            xattrs={},
        )
        if kind == tarfile.SYMTYPE:
            placement.put(replace(member, link=self._view.tree.read_link(entry)))
        elif kind == tarfile.REGTYPE:
            fd = self._view.tree.open(entry)
            opened = os.fstat(fd)
            member = replace(member, size=opened.st_size, xattrs=read_xattrs(fd))
            placement.put(member, pieces_of(fd, opened.st_size))
        else:
            placement.put(member)

    # --- archives ---------------------------------------------------------------------------------

    def _unpacks(self, item: Item[Any]) -> bool:
        instruction = self._instruction
        if not isinstance(instruction, Add) or instruction.unpack is False:
            return False
        if not stat.S_ISREG(item.entry.found.st_mode):
            return False
        fd = self._view.tree.open(item.entry)
        try:
            return is_archive(fd)
        finally:
            os.close(fd)

    def _unpack(self, item: Item[Any], placement: Placement) -> None:
        with placement.as_it_is():
            put_archive(self._view.tree.open(item.entry), placement, os.fsencode(self._top))

    # --- what is no file of the tree --------------------------------------------------------------

    def _place(self, name: Callable[[], bytes], placement: Placement) -> bytes:
        """Return where a file really goes, which has a name of its own only in a directory."""
        top = os.fsencode(self._top)
        if is_directory_name(self._top) or self._is_directory(top):
            return _below(placement.resolve(top), name())
        return placement.resolve(top)

    def _put_heredoc(self, heredoc: Heredoc, placement: Placement) -> None:
        data = heredoc.text().encode("utf-8", "surrogateescape")
        member = Member(
            path=self._place(lambda: os.fsencode(heredoc.name), placement),
            mode=_HEREDOC_MODE,
            mtime_sec=self._now_sec,
            size=len(data),
            xattrs={},
        )
        placement.put(member, iter([data]))

    def _put_download(self, download: Download, placement: Placement) -> None:
        instruction = self._instruction
        fd = os.open(download.file.path, os.O_RDONLY | os.O_CLOEXEC)
        if isinstance(instruction, Add) and instruction.unpack and is_archive(fd):
            with placement.as_it_is():
                put_archive(fd, placement, os.fsencode(self._top))
            return
        size = os.fstat(fd).st_size
        changed_sec = download.file.mtime_sec
        member = Member(
            path=self._place(lambda: name_of(download.address), placement),
            mode=_FETCHED_MODE,
            mtime_sec=self._now_sec if changed_sec is None else changed_sec,
            size=size,
            xattrs={},
        )
        placement.put(member, pieces_of(fd, size))


def _below(directory: bytes, name: bytes) -> bytes:
    return directory + b"/" + name if directory else name


def _absolute(workdir: str, destination: str) -> str:
    """Return a destination from the top; whether it ends with a slash stays to be seen."""
    if destination.startswith("/"):
        return destination
    inner = "" if destination in {".", "./"} else destination
    return workdir.rstrip("/") + "/" + inner


def find_owner(text: str, trees: Sequence[Path]) -> tuple[int, int]:
    """Return uid and gid of `--chown`, by the image's own passwd and group.

    A number alone is both; a name alone brings the group of that name, else its own first one.

    Raises:
        SandboxError: there is no such user or group.
    """
    layers = tuple(map(str, trees))
    passwd, group = (
        find_file(layers, name).decode("utf-8", "surrogateescape")
        for name in ("/etc/passwd", "/etc/group")
    )
    user, colon, wanted = text.partition(":")
    if not user:
        raise SpecError(f"`--chown={text}` names no user", hint="write `user` or `user:group`")
    if not colon and user.isascii() and user.isdecimal():
        return int(user), int(user)
    account = find_account(f"{user}:{wanted}" if wanted else user, passwd, group)
    return account.uid, account.gid
