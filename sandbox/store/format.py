"""The `samples` file, byte by byte: a header, then blocks that each stand on their own.

    header  magic, schema, length and CRC32 of a JSON text: columns of both tables, both clocks
    block   sync mark, table, codec, columns, rows, lengths, CRC32, payload
    payload a kind for each column, the first value of each, then the differences of each

All numbers are little-endian. A block's CRC covers all of it but the mark and the CRC itself.
Differences are stored in the narrowest integers that hold them, and not at all where a column
never changed, which is smaller and faster than leaving that to the compression alone.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from functools import cache
from importlib import import_module
from itertools import accumulate
from operator import sub
from typing import Any

from sandbox.errors import StoreError
from sandbox.records.light import dataclass
from sandbox.records.sample import Table

SCHEMA = 1
SYNC = b"\xabSB\x0a"
MAX_ROWS = 4096
"""In one block, so that a damaged length is never believed and reading stays in bounds."""
MAX_COLUMNS = 255
MAX_PAYLOAD_BYTES = MAX_ROWS * MAX_COLUMNS * 8 + MAX_COLUMNS * 9

_MAGIC = b"sandbox-samples\n"
_HEADER = struct.Struct("<16sHHII")  # magic, schema, 0, length, CRC32
_MAX_HEADER_BYTES = 1 << 20
_BLOCK = struct.Struct("<4sBBHIIII")  # sync, table, codec, columns, rows, raw, stored, CRC32
HEAD_BYTES = _BLOCK.size
_CRC_FROM, _CRC_TO = 4, _BLOCK.size - 4
_TABLES = (Table.FAST, Table.SLOW)
_CODES = {table: code for code, table in enumerate(_TABLES)}
_CONSTANT, _RAW = ord("c"), ord("r")
_WIDTHS = "bhiq"  # the array module's codes of 1, 2, 4 and 8 bytes
_WIDTH_CODES = {ord(width): width for width in _WIDTHS}
_WORTH_COMPRESSING_BYTES = 512
_BIG_ENDIAN = sys.byteorder == "big"


class FormatError(ValueError):
    """A block or a header that is not as it was written."""


class Codec(IntEnum):
    """How a block's payload is stored."""

    STORED = 0
    ZLIB = 1
    ZSTD = 2


@dataclass(frozen=True, kw_only=True)
class Header:
    """What stands before the blocks."""

    columns: dict[Table, tuple[str, ...]]
    """Names in the order of a row, `time_ns` first."""
    clock_ns: int
    """CLOCK_MONOTONIC when the file was made …"""
    clock_utc_ns: int
    """… and the wall clock at the same moment."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """The fixed part of a block."""

    table: Table
    codec: int
    columns: int
    rows: int
    raw_bytes: int
    stored_bytes: int
    crc: int
    seed: int
    """CRC32 of the head alone, to be continued over the payload."""


def encode_header(header: Header) -> bytes:
    """Return the bytes that a file starts with."""
    text = json.dumps(
        {
            "columns": {table.value: names for table, names in header.columns.items()},
            "clock_ns": header.clock_ns,
            "clock_utc_ns": header.clock_utc_ns,
        }
    ).encode()
    return _HEADER.pack(_MAGIC, SCHEMA, 0, len(text), zlib.crc32(text)) + text


def decode_header(read: Callable[[int, int], bytes]) -> tuple[Header, int] | None:
    """Return the header and where the blocks begin, or None if it was not wholly written.

    Raises:
        StoreError: it is no samples file, it is damaged, or a newer version wrote it.
    """
    head = read(0, _HEADER.size)
    if len(head) < _HEADER.size and _MAGIC.startswith(head[: len(_MAGIC)]):
        return None
    if not head.startswith(_MAGIC):
        raise StoreError("this is not a samples file")
    _, schema, _, length, crc = _HEADER.unpack(head)
    if schema > SCHEMA:
        raise StoreError(
            f"the samples were written by a newer version (format {schema}, known is {SCHEMA})",
            hint="upgrade: `pip install --upgrade cgroup-sandbox`",
        )
    if length <= _MAX_HEADER_BYTES:
        text = read(_HEADER.size, length)
        if len(text) < length:
            return None
        if zlib.crc32(text) == crc:
            try:
                return _header_of(json.loads(text)), _HEADER.size + length
            except (ValueError, KeyError, TypeError, AttributeError):
                pass  # intact, and still not what this version writes
    raise StoreError("the samples cannot be read: the file's header is damaged")


def _header_of(plain: Mapping[str, Any]) -> Header:
    columns = plain["columns"]
    return Header(
        columns={table: tuple(columns[table.value]) for table in Table if table.value in columns},
        clock_ns=plain["clock_ns"],
        clock_utc_ns=plain["clock_utc_ns"],
    )


class Encoder:
    """Makes blocks; keeps one compressor, which is much cheaper than one for each block."""

    def __init__(self) -> None:
        self._codec = Codec.STORED
        self._compress: Callable[[bytes], bytes] | None = None

    def block(self, table: Table, columns: Sequence[array[int]]) -> bytes:
        """Return a block of one to `MAX_ROWS` rows, given column by column."""
        payload = _encode_columns(columns)
        stored, codec = payload, Codec.STORED
        if len(payload) >= _WORTH_COMPRESSING_BYTES:
            if self._compress is None:
                # Here and not at the start: it takes 3 ms, which a short run never has to pay.
                self._codec, self._compress = _open_compressor()
            smaller = self._compress(payload)
            if len(smaller) < len(payload):
                stored, codec = smaller, self._codec
        head = _BLOCK.pack(
            SYNC,
            _CODES[table],
            codec,
            len(columns),
            len(columns[0]),
            len(payload),
            len(stored),
            0,
        )
        crc = zlib.crc32(stored, zlib.crc32(head[_CRC_FROM:_CRC_TO]))
        return head[:_CRC_TO] + crc.to_bytes(4, "little") + stored


def _encode_columns(columns: Sequence[array[int]]) -> bytes:
    kinds = bytearray()
    firsts: array[int] = array("q", [values[0] for values in columns])
    parts = [b"", _little_endian(firsts)]
    for values in columns:
        if values.tobytes() == values[:1].tobytes() * len(values):
            kinds.append(_CONSTANT)
            continue
        kind, data = _narrowest(list(map(sub, values[1:], values)))
        kinds.append(kind)
        parts.append(_little_endian(values) if data is None else data)
    parts[0] = bytes(kinds)
    return b"".join(parts)


def _narrowest(differences: list[int]) -> tuple[int, bytes | None]:
    for width in _WIDTHS:
        try:
            return ord(width), _little_endian(array(width, differences))
        except OverflowError:
            continue
    return _RAW, None  # such as from ABSENT to a large counter


def _little_endian(values: array[int]) -> bytes:
    if _BIG_ENDIAN:
        values = values[:]
        values.byteswap()
    return values.tobytes()


def decode_head(data: bytes) -> Head | None:
    """Return a block's head, or None if these bytes cannot be one."""
    sync, code, codec, columns, rows, raw, stored, crc = _BLOCK.unpack(data)
    if sync != SYNC or code >= len(_TABLES) or not 0 < columns <= MAX_COLUMNS:
        return None
    if not 0 < rows <= MAX_ROWS or max(raw, stored) > MAX_PAYLOAD_BYTES:
        return None
    return Head(
        table=_TABLES[code],
        codec=codec,
        columns=columns,
        rows=rows,
        raw_bytes=raw,
        stored_bytes=stored,
        crc=crc,
        seed=zlib.crc32(data[_CRC_FROM:_CRC_TO]),
    )


def is_intact(head: Head, stored: bytes) -> bool:
    """Return whether the block is as it was written."""
    return zlib.crc32(stored, head.seed) == head.crc


def decode_payload(head: Head, stored: bytes) -> tuple[array[int], ...]:
    """Return the columns of an intact block.

    Raises:
        FormatError: the block was not made by `Encoder`.
        StoreError: what it takes to decompress it is not installed.
    """
    data = _decompress(head, stored)
    at = head.columns + 8 * head.columns
    if len(data) != head.raw_bytes or len(data) < at:
        raise FormatError("a block's length is wrong")
    firsts = _array("q", data[head.columns : at])
    found = []
    for place in range(head.columns):
        kind = data[place]
        if kind == _CONSTANT:
            found.append(firsts[place : place + 1] * head.rows)
            continue
        width = "q" if kind == _RAW else _WIDTH_CODES.get(kind, "")
        length = (head.rows if kind == _RAW else head.rows - 1) * array(width or "b").itemsize
        if not width or at + length > len(data):
            raise FormatError("a block's column is wrong")
        values = _array(width, data[at : at + length])
        found.append(values if kind == _RAW else _sums(values, firsts[place]))
        at += length
    return tuple(found)


def _sums(differences: Iterable[int], first: int) -> array[int]:
    try:
        return array("q", accumulate(differences, initial=first))
    except OverflowError:
        raise FormatError("a block's column is out of range") from None


def _array(width: str, data: bytes) -> array[int]:
    values: array[int] = array(width)
    values.frombytes(data)
    if _BIG_ENDIAN:
        values.byteswap()
    return values


def _decompress(head: Head, stored: bytes) -> bytes:
    try:
        if head.codec == Codec.STORED:
            return stored
        if head.codec == Codec.ZLIB:
            return zlib.decompressobj().decompress(stored, max(head.raw_bytes, 1))
    except zlib.error as exc:
        raise FormatError(str(exc)) from exc
    zstd = _find_zstd()
    if head.codec != Codec.ZSTD or zstd is None:
        raise StoreError(
            f"the samples cannot be read: their compression ({head.codec}) is not known here",
            hint="install it: `pip install backports.zstd`",
        )
    try:
        data: bytes = zstd.ZstdDecompressor().decompress(stored, max_length=head.raw_bytes)
    except zstd.ZstdError as exc:
        raise FormatError(str(exc)) from exc
    return data


def _open_compressor() -> tuple[Codec, Callable[[bytes], bytes]]:
    zstd = _find_zstd()
    if zstd is None:
        return Codec.ZLIB, lambda data: zlib.compress(data, 1)
    compressor = zstd.ZstdCompressor(level=3)
    return Codec.ZSTD, lambda data: compressor.compress(data, compressor.FLUSH_FRAME)


@cache
def _find_zstd() -> Any:
    for name in ("compression.zstd", "backports.zstd"):  # of Python 3.14, and for those before
        try:
            return import_module(name)
        except ImportError:
            continue
    return None
