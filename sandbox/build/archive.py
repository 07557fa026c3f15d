"""The archive of a layer: the same bytes for the same files, whenever it is written."""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from typing import BinaryIO

from sandbox.build.stack import read_xattrs
from sandbox.errors import ImageError
from sandbox.image.places import is_whiteout, opaque_name
from sandbox.records.light import dataclass, replace

_PIECE = 1 << 20
_BLOCK = 512
_END = bytes(2 * _BLOCK)
_DEPTH = 256
_WHITEOUT = b".wh."
_OPAQUE = b".wh..wh..opq"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ORIGIN = "user.overlay.origin"
"""What overlayfs notes, with `userxattr`, of what it has copied up."""

Judge = Callable[[bytes, tuple[int, int], bool], tuple[int, int]]
"""Returns whose an entry is: of its path, its owner on the disk, and whether it was copied up."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """One entry of an archive."""

    path: bytes
    """From the top; empty is the top itself."""
    kind: bytes = tarfile.REGTYPE
    mode: int = 0o755
    uid: int = 0
    gid: int = 0
    mtime_sec: int = 0
    size: int = 0
    link: bytes = b""
    device: tuple[int, int] = (0, 0)
    xattrs: dict[str, bytes]


class ArchiveWriter:
    """Writes an archive to a file, and hashes it."""

    def __init__(self, file: BinaryIO, latest_sec: int | None = None) -> None:
        """Write to `file`; nothing in it is to be younger than `latest_sec`."""
        self._file = file
        self._latest = latest_sec
        self._hash = hashlib.sha256()
        self.size = 0

    def add(self, member: Member, data: Iterator[bytes] | None = None) -> None:
        """Write an entry; `data` yields exactly its size.

        Raises:
            ImageError: there was more or less data: somebody writes to the file meanwhile.
            OSError: the archive cannot be written.
        """
        self._write(_header(member, self._latest))
        left = member.size
        for piece in data or ():
            left -= len(piece)
            if left < 0:
                break
            self._write(piece)
        if left:
            raise ImageError(f"`{os.fsdecode(member.path)}` has changed while it was read")
        self._write(bytes(-member.size % _BLOCK))

    def finish(self) -> str:
        """End the archive and return its digest."""
        self._write(_END)
        self._file.flush()
        return f"sha256:{self._hash.hexdigest()}"

    def _write(self, data: bytes) -> None:
        self._hash.update(data)
        self._file.write(data)
        self.size += len(data)


def _header(member: Member, latest_sec: int | None) -> bytes:
    info = tarfile.TarInfo(os.fsdecode(member.path) or ".")
    info.type = member.kind
    info.mode, info.uid, info.gid = member.mode, member.uid, member.gid
    info.mtime = member.mtime_sec if latest_sec is None else min(member.mtime_sec, latest_sec)
    info.size = member.size
    info.linkname = os.fsdecode(member.link)
    info.devmajor, info.devminor = member.device
    info.pax_headers = {
        f"SCHILY.xattr.{name}": value.decode("utf-8", "surrogateescape")
        for name, value in member.xattrs.items()
    }
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def pieces_of(fd: int, size: int) -> Iterator[bytes]:
    """Yield what a file holds, at most one byte more than `size`; the descriptor is closed."""
    try:
        left = size + 1
        while left > 0 and (piece := os.read(fd, min(left, _PIECE))):
            left -= len(piece)
            yield piece
    finally:
        os.close(fd)


def kind_of(mode: int) -> bytes | None:
    """Return an archive's word for a type of file; None for a socket, which it cannot hold."""
    return {
        stat.S_IFREG: tarfile.REGTYPE,
        stat.S_IFDIR: tarfile.DIRTYPE,
        stat.S_IFLNK: tarfile.SYMTYPE,
        stat.S_IFIFO: tarfile.FIFOTYPE,
        stat.S_IFCHR: tarfile.CHRTYPE,
        stat.S_IFBLK: tarfile.BLKTYPE,
    }.get(stat.S_IFMT(mode))


@dataclass(frozen=True, kw_only=True)
class Written:
    """What the tree of a run was found to hold."""

    entries: int
    size_bytes: int
    whiteouts: tuple[bytes, ...]
    """Directories that have whiteouts in them."""
    devices: int


def write_changes(
    top_fd: int, writer: ArchiveWriter, *, strip: bool, judge: Judge | None = None
) -> Written:
    """Archive what a run has written, which is in overlay form and which nobody writes to now.

    Args:
        top_fd: The directory.
        writer: Where to; it is not finished.
        strip: Also make the tree a layer's: without device nodes, sockets and notes of overlayfs's.
        judge: Says whose an entry is; the disk does, unless given.

    Raises:
        ImageError: it holds what no layer can.
        OSError: something cannot be read or written.
    """
    walk = _Changes(writer, judge, strip=strip)
    walk.directory(top_fd, b"", 0)
    return Written(
        entries=walk.entries,
        size_bytes=walk.size,
        whiteouts=tuple(sorted(walk.whiteouts)),
        devices=walk.devices,
    )


class _Changes:
    def __init__(self, writer: ArchiveWriter, judge: Judge | None, *, strip: bool) -> None:
        self._writer = writer
        self._judge = judge
        self._strip = strip
        self._twins: dict[tuple[int, int], bytes] = {}
        self.entries = self.size = self.devices = 0
        self.whiteouts: set[bytes] = set()

    def directory(self, fd: int, path: bytes, depth: int) -> None:
        """Write a directory and all that is in it."""
        if depth > _DEPTH:
            raise ImageError(f"directories are more than {_DEPTH} deep")
        found = os.fstat(fd)
        is_old = not path or _is_copied_up(fd)
        self._put(member_of(path, found, read_xattrs(fd)), is_old=is_old)
        if _is_opaque(fd):
            self._writer.add(Member(path=_join(path, _OPAQUE), mode=0, xattrs={}))
        if self._strip:
            _strip_notes(fd)
        for text in sorted(os.listdir(fd), key=os.fsencode):
            self._entry(fd, os.fsencode(text), path, depth)
        if self._strip:
            os.utime(fd, ns=(found.st_atime_ns, found.st_mtime_ns))

    def _entry(self, fd: int, name: bytes, parent: bytes, depth: int) -> None:
        path = _join(parent, name)
        found = os.lstat(name, dir_fd=fd)
        if name.startswith(_WHITEOUT):
            raise ImageError(
                f"no layer can hold a file called `{os.fsdecode(name)}`",
                hint="names that begin with `.wh.` tell that a file of a lower layer is gone",
            )
        if is_whiteout(found):
            self._writer.add(Member(path=_join(parent, _WHITEOUT + name), mode=0, xattrs={}))
            self.whiteouts.add(parent)
        elif stat.S_ISDIR(found.st_mode):
            inner = os.open(name, _DIRECTORY, dir_fd=fd)
            try:
                self.directory(inner, path, depth + 1)
            finally:
                os.close(inner)
        elif stat.S_ISREG(found.st_mode):
            self._file(fd, name, path, found)
        else:
            self._special(fd, name, path, found)

    def _file(self, fd: int, name: bytes, path: bytes, found: os.stat_result) -> None:
        twin = self._twins.setdefault((found.st_dev, found.st_ino), path)
        if twin != path:
            self._put(replace(member_of(path, found, {}), kind=tarfile.LNKTYPE, link=twin))
            return
        file = os.open(name, _READ, dir_fd=fd)
        try:
            xattrs = read_xattrs(file)
            is_old = _is_copied_up(file)
            if self._strip:
                _strip_notes(file)
        except BaseException:
            os.close(file)
            raise
        self.size += found.st_size
        member = replace(member_of(path, found, xattrs), size=found.st_size)
        self._put(member, pieces_of(file, found.st_size), is_old=is_old)

    def _special(self, fd: int, name: bytes, path: bytes, found: os.stat_result) -> None:
        kind = kind_of(found.st_mode)
        if kind == tarfile.SYMTYPE:
            place = b"/proc/self/fd/%d/%s" % (fd, name)
            member = member_of(path, found, read_xattrs(place))
            self._put(replace(member, link=os.readlink(name, dir_fd=fd)))
            return
        if kind is not None:
            device = (os.major(found.st_rdev), os.minor(found.st_rdev))
            self._put(replace(member_of(path, found, {}), device=device))
        if kind != tarfile.FIFOTYPE:
            self.devices += kind is not None
            if self._strip:
                os.unlink(name, dir_fd=fd)

    def _put(
        self, member: Member, data: Iterator[bytes] | None = None, *, is_old: bool = False
    ) -> None:
        self.entries += 1
        if self._judge is not None:
            uid, gid = self._judge(member.path, (member.uid, member.gid), is_old)
            member = replace(member, uid=uid, gid=gid)
        self._writer.add(member, data)


def member_of(path: bytes, found: os.stat_result, xattrs: dict[str, bytes]) -> Member:
    """Return the entry of a file as it is; a link's target and a file's size are to be added."""
    uid, gid = owner_of(found)
    return Member(
        path=path,
        kind=kind_of(found.st_mode) or tarfile.REGTYPE,
        mode=stat.S_IMODE(found.st_mode),
        uid=uid,
        gid=gid,
        mtime_sec=found.st_mtime_ns // 1_000_000_000,
        xattrs=xattrs,
    )


def owner_of(found: os.stat_result) -> tuple[int, int]:
    """Return whose a file of the store's is in an image: what is ours is root's there."""
    uid = 0 if found.st_uid == os.geteuid() else found.st_uid
    return uid, 0 if found.st_gid == os.getegid() else found.st_gid


def _join(parent: bytes, name: bytes) -> bytes:
    return parent + b"/" + name if parent else name


def _is_opaque(fd: int) -> bool:
    try:
        return os.getxattr(fd, opaque_name()) == b"y"
    except OSError:
        return False


def _is_copied_up(fd: int) -> bool:
    try:
        os.getxattr(fd, _ORIGIN)
    except OSError:
        return False
    return True


def _strip_notes(fd: int) -> None:
    """Remove what overlayfs has noted for the mount that is gone."""
    kept = opaque_name()
    for name in os.listxattr(fd):
        if name.startswith(("trusted.overlay.", "user.overlay.")) and name != kept:
            os.removexattr(fd, name)
