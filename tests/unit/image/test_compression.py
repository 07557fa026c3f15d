"""Compressed layers: recognised by their bytes, and read to the very last member or frame."""

from __future__ import annotations

import gzip
import importlib
import io
import sys
import tarfile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import ImageError
from sandbox.image.compression import Counter, kind_of, unpacked_pieces

ZSTD: Any = importlib.import_module(
    "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
)
PARTS = st.lists(st.binary(max_size=300), min_size=1, max_size=5)
TAR = tarfile.TarInfo("name").tobuf()


class Dripping(io.RawIOBase):
    """A file that gives few bytes at a time, so that any boundary is met in the middle."""

    def __init__(self, data: bytes, step: int) -> None:
        self._data, self._step, self._at = data, step, 0

    def read(self, size: int = -1) -> bytes:
        count = self._step if size < 0 else min(self._step, size)
        piece = self._data[self._at : self._at + count]
        self._at += len(piece)
        return piece


def unpacked(data: bytes, step: int = 1 << 20) -> bytes:
    return b"".join(unpacked_pieces(Counter(Dripping(data, step))))  # type: ignore[arg-type]


def skippable(content: bytes, number: int = 0) -> bytes:
    """A frame of zstd that carries a note, as zstd:chunked has."""
    return bytes([0x50 + number]) + b"\x2a\x4d\x18" + len(content).to_bytes(4, "little") + content


@given(PARTS, st.integers(20, 400))
def test_every_member_of_a_gzip_file_counts(parts: list[bytes], step: int) -> None:
    packed = b"".join(gzip.compress(part, mtime=0) for part in parts)

    assert unpacked(packed, step) == b"".join(parts)


@given(PARTS, st.integers(20, 400), st.integers(0, 15))
def test_every_frame_of_a_zstd_file_counts(parts: list[bytes], step: int, number: int) -> None:
    packed = b"".join(skippable(b"note", number) + ZSTD.compress(part) for part in parts)

    assert unpacked(packed, step) == b"".join(parts)
    assert unpacked(packed + skippable(b"table of contents"), step) == b"".join(parts)


@pytest.mark.parametrize("compress", [gzip.compress, ZSTD.compress])
def test_a_file_cut_in_its_second_part_is_an_error(compress: Any) -> None:
    first, second = compress(b"first"), compress(b"second" * 50)

    assert unpacked(first) == b"first"
    for length in range(1, len(second)):
        with pytest.raises(ImageError):
            unpacked(first + second[:length])


@pytest.mark.parametrize("compress", [gzip.compress, ZSTD.compress])
def test_damaged_data_is_an_error(compress: Any) -> None:
    with pytest.raises(ImageError, match="damaged"):
        unpacked(compress(b"x" * 1000) + b"what is this")


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (gzip.compress(b""), "gzip"),
        (ZSTD.compress(b""), "zstd"),
        (skippable(b"", 15), "zstd"),
        (TAR, "tar"),
        (b"", "tar"),
    ],
)
def test_a_layer_is_what_its_bytes_say(head: bytes, kind: str) -> None:
    assert kind_of(head) == kind


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"\xfd7zXZ\0", "with xz"),
        (b"BZh9", "with bzip2"),
        (b"PK\x03\x04", "with zip"),
        (b"\x04\x22\x4d\x18", "with lz4"),
        (b"hello", "no tar archive"),
    ],
)
def test_what_images_do_not_use_is_named(head: bytes, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        kind_of(head)
