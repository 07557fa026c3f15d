"""Files with holes in tar archives: GNU's old form, and its three in PAX records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sandbox.errors import ImageError
from sandbox.image.stream import ByteStream
from sandbox.image.tar_headers import BLOCK, SPARSE_MAP_0, Pax, decimal, field_number

Segments = tuple[tuple[int, int], ...]
"""Offset and length of each part that holds data, ascending and apart."""

_MOST_SEGMENTS = 1 << 20
_LONGEST_NUMBER = 20


def read_old_map(header: bytes, stream: ByteStream) -> tuple[int, Segments]:
    """Return the size and the map of an entry of type S; further blocks of it are read.

    Raises:
        ImageError: the map makes no sense.
    """
    size = field_number(header, 483, 12, "size")
    numbers = list(_pairs(header, 386, 4))
    more = header[482]
    while more:
        block = stream.read(BLOCK)
        numbers += _pairs(block, 0, 21)
        more = block[504]
        if len(numbers) > 2 * _MOST_SEGMENTS:
            raise ImageError("a sparse file in the archive has too many parts")
    return size, _segments(numbers, size)


def _pairs(block: bytes, start: int, count: int) -> Iterator[int]:
    for position in range(start, start + 24 * count, 24):
        if not block[position]:
            return
        yield field_number(block, position, 12, "offset")
        yield field_number(block, position + 12, 12, "length")


def read_pax_map(pax: Pax, stream: ByteStream, stored: int) -> tuple[int, Segments]:
    """Return the size and the map that PAX records tell, or that the data begins with (1.0).

    Raises:
        ImageError: the map makes no sense.
    """
    key = b"GNU.sparse.realsize" if b"GNU.sparse.realsize" in pax else b"GNU.sparse.size"
    if key not in pax:
        raise ImageError("a sparse file in the archive has no size")
    size = decimal(pax, key)
    if pax.get(b"GNU.sparse.major") == b"1":
        return size, _segments(_read_text_map(stream, stored), size)
    text = pax.get(SPARSE_MAP_0, b"")
    return size, _segments([_number(part) for part in text.split(b",") if part], size)


def _read_text_map(stream: ByteStream, stored: int) -> list[int]:
    """Read decimal lines, the first with how many pairs follow, padded to a block."""
    data = b""
    numbers: list[int] = []
    wanted = 1
    while len(numbers) < wanted:
        if b"\n" not in data:
            stored -= BLOCK
            if stored < 0 or len(data) > BLOCK:
                raise ImageError("a sparse file's map is longer than its data")
            data += stream.read(BLOCK)
            continue
        line, _, data = data.partition(b"\n")
        numbers.append(_number(line))
        if numbers[0] > _MOST_SEGMENTS:
            raise ImageError("a sparse file in the archive has too many parts")
        wanted = 1 + 2 * numbers[0]
    return numbers[1:]


def _number(text: bytes) -> int:
    if not text.isdigit() or len(text) > _LONGEST_NUMBER:
        raise ImageError("a sparse file in the archive has a malformed map")
    return int(text)


def _segments(numbers: Sequence[int], size: int) -> Segments:
    if len(numbers) % 2:
        raise ImageError("a sparse file in the archive has half a part")
    segments = tuple(zip(numbers[::2], numbers[1::2], strict=True))
    end = 0
    for offset, length in segments:
        if offset < end or length < 0:
            raise ImageError("the parts of a sparse file in the archive overlap")
        end = offset + length
    if end > size or size < 0:
        raise ImageError("a sparse file in the archive is larger than it says")
    return segments
