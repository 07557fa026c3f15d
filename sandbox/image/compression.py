"""Compressed layers: recognised by their first bytes, read to their very last member or frame.

A gzip file may have several members and a zstd file several frames, some of them to be skipped;
whoever stops after the first has a part of the layer and no error.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any, BinaryIO

from sandbox.errors import ImageError
from sandbox.image.tar import is_tar

_READ = 256 << 10
_PIECE = 1 << 20
_GZIP_WINDOW = 31  # zlib's word for: with a gzip header
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = b"\x2a\x4d\x18"  # after a byte from 0x50 to 0x5f
_OTHERS = {b"\xfd7zXZ": "xz", b"BZh": "bzip2", b"\x04\x22\x4d\x18": "lz4", b"PK\x03\x04": "zip"}


class Counter:
    """How many compressed bytes were read."""

    def __init__(self, file: BinaryIO) -> None:
        """Count what is read from `file`."""
        self._file = file
        self.bytes_read = 0

    def read(self) -> bytes:
        """Return the next bytes; none at the end."""
        data = self._file.read(_READ)
        self.bytes_read += len(data)
        return data


def kind_of(head: bytes) -> str:
    """Return `gzip`, `zstd` or `tar` for the first block of a layer.

    Raises:
        ImageError: it is something else.
    """
    if head.startswith(_GZIP):
        return "gzip"
    if head.startswith(_ZSTD) or (head[1:4] == _SKIPPABLE and head[0] >> 4 == 5):  # noqa: PLR2004
        return "zstd"
    if not head or is_tar(head):
        return "tar"
    for magic, name in _OTHERS.items():
        if head.startswith(magic):
            raise ImageError(
                f"the layer is compressed with {name}, which images do not use",
                hint="compress it with gzip or zstd",
            )
    raise ImageError("the layer is no tar archive, and not compressed with gzip or zstd")


def unpacked_pieces(source: Counter) -> Iterator[bytes]:
    """Yield the uncompressed bytes of a layer.

    Raises:
        ImageError: it is cut short, damaged or of an unknown kind.
        OSError: it cannot be read.
    """
    head = source.read()
    kind = kind_of(head)
    if kind == "tar":
        while head:
            yield head
            head = source.read()
    elif kind == "gzip":
        yield from _members(head, source)
    else:
        yield from _frames(head, source)


def _members(data: bytes, source: Counter) -> Iterator[bytes]:
    while data:
        member = zlib.decompressobj(_GZIP_WINDOW)
        while not member.eof:
            try:
                piece = member.decompress(data, _PIECE)
            except zlib.error as exc:
                raise ImageError(f"the layer's compressed data is damaged: {exc}") from exc
            data = member.unconsumed_tail
            if piece:
                yield piece
            elif not data and not member.eof:
                data = _more(source)
        data = member.unused_data or source.read()


def _frames(data: bytes, source: Counter) -> Iterator[bytes]:
    while data:
        frame = _zstd().ZstdDecompressor()
        while not frame.eof:
            if not data and frame.needs_input:
                data = _more(source)
            try:
                piece = frame.decompress(data, _PIECE)
            except _zstd().ZstdError as exc:
                raise ImageError(f"the layer's compressed data is damaged: {exc}") from exc
            data = b""
            if piece:
                yield piece
        data = frame.unused_data or source.read()


def _more(source: Counter) -> bytes:
    data = source.read()
    if not data:
        raise ImageError("the layer is cut short: its compressed data ends too early")
    return data


def _zstd() -> Any:
    for name in ("compression.zstd", "backports.zstd"):  # of Python 3.14, and for those before
        with suppress(ImportError):
            return import_module(name)
    raise ImageError(
        "the layer is compressed with zstd, which this Python cannot read",
        hint="`pip install backports.zstd`",
    )
