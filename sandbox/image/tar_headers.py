"""Fields of tar headers: numbers, names, PAX records."""

from __future__ import annotations

import base64
import binascii
import re
import struct
from typing import NamedTuple

from sandbox.errors import ImageError

BLOCK = 512
Pax = dict[bytes, bytes]

SPARSE_MAP_0 = b"GNU.sparse.map"
_XATTR = b"SCHILY.xattr."
_XATTR_BASE64 = b"LIBARCHIVE.xattr."
_LARGEST_ID = (1 << 32) - 2  # one more means "leave it" to chown
_LARGEST_TIME_NS = 1 << 62
_NS_PER_SEC = 1_000_000_000
_LARGEST_NUMBER = 20  # digits


class Attributes(NamedTuple):
    """What a header and the PAX records before it say together."""

    name: bytes
    link: bytes
    size: int
    uid: int
    gid: int
    mtime_ns: int
    xattrs: dict[bytes, bytes]

    @property
    def shown(self) -> str:
        """Return the name for a message."""
        return show(self.name)


def show(name: bytes) -> str:
    """Return a name as a message can show it: without control characters, and not too long."""
    return ascii(name.decode("utf-8", "surrogateescape"))[1:-1][:200]


def verify_checksum(header: bytes, position: int) -> None:
    """Compare a header with its own sum; old programs summed signed bytes.

    Raises:
        ImageError: it is damaged, or no header at all.
    """
    wanted = field_number(header, 148, 8, "checksum")
    rest = header[:148] + b"        " + header[156:]
    if sum(rest) != wanted and sum(struct.unpack(f"{BLOCK}b", rest)) != wanted:
        raise ImageError(f"the archive is damaged: a header at {position} has a wrong checksum")


def field_number(header: bytes, start: int, size: int, what: str) -> int:
    """Return a number of a header: octal digits, or GNU's binary form.

    Raises:
        ImageError: it is neither.
    """
    field = header[start : start + size]
    if field[0] & 0x80:
        value = int.from_bytes(field, "big", signed=True) if field[0] & 0x40 else -1
        if not field[0] & 0x40:
            value = int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
        return value
    digits = field.partition(b"\0")[0].strip(b" ")
    if not digits:
        return 0
    if digits.strip(b"01234567"):
        raise ImageError(f"the archive is damaged: a header has the {what} {field!r}")
    return int(digits, 8)


def field_text(header: bytes, start: int, size: int) -> bytes:
    """Return the text of a field, up to its first NUL."""
    return header[start : start + size].partition(b"\0")[0]


def parse_pax(data: bytes) -> Pax:
    """Return the records of a PAX header: each `length key=value`, with a newline.

    The pairs of GNU's first sparse form come as if they were of its second.

    Raises:
        ImageError: they are malformed.
    """
    found: Pax = {}
    pairs: list[bytes] = []
    start = 0
    while start < len(data):
        space = data.find(b" ", start, start + _LARGEST_NUMBER)
        digits = data[start:space]
        if space < 0 or not digits.isdigit():
            raise ImageError("the archive is damaged: a PAX record has no length")
        end = start + int(digits)
        record = data[space + 1 : end]
        key, equals, value = record[:-1].partition(b"=")
        if end > len(data) or end <= space or not record.endswith(b"\n") or not equals or not key:
            raise ImageError("the archive is damaged: a PAX record does not fit its length")
        if key in {b"GNU.sparse.offset", b"GNU.sparse.numbytes"}:
            pairs.append(value)
        else:
            found[key] = value
        start = end
    if pairs:
        found[SPARSE_MAP_0] = b",".join(pairs)
    return found


def decimal(pax: Pax, key: bytes) -> int:
    """Return a PAX number.

    Raises:
        ImageError: it is not one.
    """
    text = pax[key]
    if not text.isdigit() or len(text) > _LARGEST_NUMBER:
        raise ImageError(f"the archive is damaged: {show(key)} is {show(text)!r}")
    return int(text)


def apply_attributes(
    header: bytes, pax: Pax, long_name: bytes | None, long_link: bytes | None
) -> Attributes:
    """Return what holds for an entry: PAX records before GNU's headers before its own fields.

    Raises:
        ImageError: a value is malformed or out of its range.
    """
    name = long_name if long_name is not None else _name(header)
    link = long_link if long_link is not None else field_text(header, 157, 100)
    name = pax.get(b"GNU.sparse.name") or pax.get(b"path") or name
    link = pax.get(b"linkpath") or link
    if b"\0" in name or b"\0" in link:
        raise ImageError(f"`{show(name)}` has a NUL in its name or its link")
    return Attributes(
        name=name,
        link=link,
        size=_number(pax, b"size", header, 124, 12),
        uid=_id(_number(pax, b"uid", header, 108, 8), name),
        gid=_id(_number(pax, b"gid", header, 116, 8), name),
        mtime_ns=_mtime_ns(pax, header),
        xattrs=_xattrs(pax) if pax else {},
    )


def _name(header: bytes) -> bytes:
    name = field_text(header, 0, 100)
    if header[257:263] == b"ustar\0":  # GNU's own form has other fields there
        prefix = field_text(header, 345, 155)
        if prefix:
            return prefix + b"/" + name
    return name


def _number(pax: Pax, key: bytes, header: bytes, start: int, size: int) -> int:
    if pax.get(key):
        return decimal(pax, key)
    return field_number(header, start, size, key.decode())


def _id(number: int, name: bytes) -> int:
    if not 0 <= number <= _LARGEST_ID:
        raise ImageError(f"`{show(name)}` has an owner that cannot be: {number}")
    return number


def _mtime_ns(pax: Pax, header: bytes) -> int:
    text = pax.get(b"mtime")
    if not text:
        time_ns = field_number(header, 136, 12, "time") * _NS_PER_SEC
    else:
        match = re.fullmatch(rb"(-?)([0-9]{1,20})(?:\.([0-9]*))?", text)
        if match is None:
            raise ImageError(f"the archive is damaged: mtime is {show(text)!r}")
        fraction = int((match[3] or b"")[:9].ljust(9, b"0"))
        time_ns = int(match[2]) * _NS_PER_SEC + fraction
        time_ns = -time_ns if match[1] else time_ns
    return max(-_LARGEST_TIME_NS, min(time_ns, _LARGEST_TIME_NS))


def _xattrs(pax: Pax) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for key, value in pax.items():
        if key.startswith(_XATTR):
            found[key[len(_XATTR) :]] = value
        elif key.startswith(_XATTR_BASE64):
            name = key[len(_XATTR_BASE64) :]
            try:
                found.setdefault(name, base64.b64decode(value + b"=" * (-len(value) % 4)))
            except binascii.Error as exc:
                raise ImageError(f"the archive is damaged: {show(key)}") from exc
    return found
