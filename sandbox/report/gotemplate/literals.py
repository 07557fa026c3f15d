"""Numbers, characters and strings as they are written in a template, to what they mean."""

from __future__ import annotations

import math
import re

from sandbox.report.gotemplate.quoting import quote
from sandbox.report.gotemplate.values import TemplateProblem

_INTEGER = re.compile(
    r"(?P<sign>[+-]?)(?:0[xX](?P<hex>(?:_?[0-9a-fA-F])+)|0[bB](?P<bin>(?:_?[01])+)"
    r"|0[oO](?P<oct>(?:_?[0-7])+)|0(?P<old>(?:_?[0-7])+)|(?P<dec>0|[1-9](?:_?[0-9])*))"
)
_BASES = {"hex": 16, "bin": 2, "oct": 8, "old": 8, "dec": 10}
_FLOAT = re.compile(r"[+-]?(?:\d(?:_?\d)*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_HEX_FLOAT = re.compile(r"[+-]?0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]*[pP][+-]?\d{1,5}", re.ASCII)
_LONGEST = 400
"""Digits of the longest number that is looked at."""

_SIMPLE = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
}
_ESCAPE = re.compile(
    rb"\\(?:(?P<simple>[abfnrtv\\'\"])|(?P<octal>[0-7]{3})|x(?P<byte>[0-9a-fA-F]{2})"
    rb"|u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8}))"
)
_SURROGATES = range(0xD800, 0xE000)
_LAST_CHARACTER = 0x10FFFF


def number(written: str) -> int | float:
    """Return an int, or a float if a point or an exponent is written.

    Raises:
        TemplateProblem: it is no number, or one that does not fit.
    """
    integer = _INTEGER.fullmatch(written) if len(written) <= _LONGEST else None
    if integer is not None:
        name = next(name for name in _BASES if integer[name] is not None)
        value = int(integer[name].replace("_", ""), _BASES[name])
        value = -value if integer["sign"] == "-" else value
        if value >= 1 << 64 or value < -(1 << 63):
            raise TemplateProblem(f"integer overflow: {quote(written)}")
        return value
    meant = _float(written)
    if meant is None or not math.isfinite(meant):
        raise TemplateProblem(f"illegal number syntax: {quote(written)}")
    if not set(written) & set(".eEpP"):
        raise TemplateProblem(f"integer overflow: {quote(written)}")
    return meant


def _float(written: str) -> float | None:
    if len(written) > _LONGEST:
        return None
    if _FLOAT.fullmatch(written):
        return float(written)
    if _HEX_FLOAT.fullmatch(written):
        try:
            return float.fromhex(written)
        except (ValueError, OverflowError):
            return None
    return None


def character(written: str) -> int:
    """Return the number of the character in `'x'`.

    Raises:
        TemplateProblem: there is not exactly one character.
    """
    inner = written[1:-1]
    value = _unescape(inner, "'")
    if not value:
        raise TemplateProblem("invalid syntax")
    if len(value) != 1:
        raise TemplateProblem(f"malformed character constant: {written}")
    return ord(value)


def string(written: str) -> str:
    """Return what a quoted or raw string means.

    Raises:
        TemplateProblem: an escape in it has no meaning.
    """
    if written.startswith("`"):
        return written[1:-1].replace("\r", "")
    value = _unescape(written[1:-1], '"')
    if value is None:
        raise TemplateProblem("invalid syntax")
    return value


def _unescape(inner: str, mark: str) -> str | None:
    """Return the text with its escapes resolved, bytes put together to characters."""
    data, out, position = inner.encode("utf-8", "replace"), bytearray(), 0
    while position < len(data):
        if data[position] != ord("\\"):
            out.append(data[position])
            position += 1
            continue
        match = _ESCAPE.match(data, position)
        if match is None:
            return None
        piece = _meaning(match, mark)
        if piece is None:
            return None
        out += piece
        position = match.end()
    return out.decode("utf-8", "replace")


def _meaning(match: re.Match[bytes], mark: str) -> bytes | None:
    simple = match["simple"]
    if simple is not None:
        letter = simple.decode()
        return letter.encode() if letter == mark else _SIMPLE.get(letter, "").encode() or None
    if match["octal"] is not None:
        code = int(match["octal"], 8)
        return bytes([code]) if code < 256 else None  # noqa: PLR2004 - a byte
    if match["byte"] is not None:
        return bytes([int(match["byte"], 16)])
    code = int(match["short"] or match["long"], 16)
    if code > _LAST_CHARACTER or code in _SURROGATES:
        return None
    return chr(code).encode()
