"""ADD of an archive: its entries put below the destination, whatever they try."""

from __future__ import annotations

import os
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from os import fsdecode
from typing import IO

from sandbox.build.archive import Member, pieces_of
from sandbox.build.placing import Placement
from sandbox.errors import ImageError
from sandbox.image import tar
from sandbox.image.compression import Counter, unpacked_pieces
from sandbox.image.places import split
from sandbox.image.stream import ByteStream
from sandbox.image.tar import Entry, TarReader, is_tar
from sandbox.records.light import replace

_BLOCK = 512
_PIECE = 1 << 20
_IN_MEMORY = 1 << 20
_LINK_MODE = 0o777
_BZIP2 = b"BZh"
_XZ = b"\xfd7zXZ\x00"
_KINDS = {
    tar.FILE: tarfile.REGTYPE,
    tar.HARD_LINK: tarfile.LNKTYPE,
    tar.LINK: tarfile.SYMTYPE,
    tar.CHARACTER: tarfile.CHRTYPE,
    tar.BLOCK_DEVICE: tarfile.BLKTYPE,
    tar.DIRECTORY: tarfile.DIRTYPE,
    tar.FIFO: tarfile.FIFOTYPE,
}
_KEPT = (b"security.capability", b"user.")


def is_archive(fd: int) -> bool:
    """Return whether a file is an archive by what it begins with; its offset is 0 afterwards."""
    try:
        with os.fdopen(os.dup(fd), "rb") as file:
            head = b""
            for piece in _pieces(file):
                head += piece
                if len(head) >= _BLOCK:
                    break
            return is_tar(head[:_BLOCK]) and head[:_BLOCK] != bytes(_BLOCK)
    except (ImageError, OSError, EOFError, ValueError, _lzma_error()):
        return False
    finally:
        os.lseek(fd, 0, os.SEEK_SET)


def _lzma_error() -> type[Exception]:
    try:
        from lzma import LZMAError
    except ImportError:
        return ValueError
    return LZMAError


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the uncompressed bytes of a file, which may be compressed in any way docker knows."""
    head = file.read(len(_XZ))
    file.seek(0)
    if head.startswith(_BZIP2):
        import bz2

        with bz2.BZ2File(file) as inner:
            yield from _read(inner)
    elif head == _XZ:
        import lzma

        with lzma.LZMAFile(file) as inner:
            yield from _read(inner)
    else:
        yield from unpacked_pieces(Counter(file))  # type: ignore[arg-type]


def _read(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece


def put_archive(fd: int, placement: Placement, destination: bytes) -> None:
    """Put what an archive holds below a directory.

    A link of the image that leads to a directory is taken for that; one of the archive's own is
    never followed.

    Args:
        fd: The archive; closed at the end.
        placement: The new layer.
        destination: The directory, from the top of the image.

    Raises:
        ImageError: the archive is damaged, or leads out of the destination.
        OSError: it cannot be read.
    """
    top = placement.resolve(destination)
    placement.make_directory(top)
    with os.fdopen(fd, "rb") as file, tempfile.TemporaryFile() as room:
        try:
            reader = TarReader(ByteStream(_pieces(file)), must_end=False)
            for entry in reader:
                _put(entry, reader, placement, top, room.fileno())
        except (EOFError, ValueError, _lzma_error()) as exc:
            raise ImageError(f"the archive is damaged: {exc}") from exc


def _put(entry: Entry, reader: TarReader, placement: Placement, top: bytes, room_fd: int) -> None:
    parts = split(entry.name)
    if not parts:
        return  # the destination itself stays as it is
    *above, name = parts
    path = _join(_enter(placement, _join(top, *above)), name)
    if entry.kind == tar.DIRECTORY:
        path = _enter(placement, path)
    member = Member(
        path=path,
        kind=_KINDS[entry.kind],
        mode=entry.mode,
        uid=entry.uid,
        gid=entry.gid,
        mtime_sec=entry.mtime_ns // 1_000_000_000,
        device=entry.device,
        xattrs={
            fsdecode(key): value for key, value in entry.xattrs.items() if key.startswith(_KEPT)
        },
    )
    if entry.kind == tar.HARD_LINK:
        *above, name = split(entry.link) or [b""]
        link = _join(_enter(placement, _join(top, *above)), name)
        placement.put(replace(member, link=link))
    elif entry.kind == tar.LINK:
        placement.put(replace(member, link=entry.link, mode=_LINK_MODE))
    elif entry.kind == tar.FILE:
        _put_file(replace(member, size=entry.size), entry, reader, placement, room_fd)
    else:
        placement.put(member)


def _put_file(
    member: Member, entry: Entry, reader: TarReader, placement: Placement, room_fd: int
) -> None:
    if entry.segments is None and entry.size <= _IN_MEMORY:
        placement.put(member, iter([reader.read(entry)]))
        return
    os.ftruncate(room_fd, 0)
    os.lseek(room_fd, 0, os.SEEK_SET)
    reader.copy(entry, room_fd)
    os.lseek(room_fd, 0, os.SEEK_SET)
    placement.put(member, pieces_of(os.dup(room_fd), entry.size))


def _enter(placement: Placement, path: bytes) -> bytes:
    """Return where a directory is, through links of the image, but not of this layer."""
    if placement.was_put(path):
        return path
    with suppress(ImageError):  # `put` says what is in the way
        real = placement.resolve(path)
        if stat.S_ISDIR(placement.mode_below(real)):
            return real
    return path


def _join(*parts: bytes) -> bytes:
    return b"/".join(filter(None, parts))
