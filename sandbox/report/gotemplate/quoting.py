"""Strings and characters as Go writes them in its source."""

from __future__ import annotations

_ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
}
_LAST_CHARACTER = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)
_WIDE = 0x10000
_ALL_ONES = (1 << 64) - 1


def quote(text: str, mark: str = '"', *, ascii_only: bool = False) -> str:
    """Return `text` as a Go string literal; what cannot be printed becomes an escape."""
    return mark + "".join(_escaped(c, mark, ascii_only=ascii_only) for c in text) + mark


def _escaped(character: str, mark: str, *, ascii_only: bool) -> str:
    if character == mark:
        return "\\" + mark
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable() and (character.isascii() or not ascii_only):
        return character
    code = ord(character)
    if code < ord(" ") or code == 0x7F:  # noqa: PLR2004 - DEL
        return f"\\x{code:02x}"
    if code in _SURROGATES:
        return "\\ufffd"
    return f"\\u{code:04x}" if code < _WIDE else f"\\U{code:08x}"


def quote_character(character: str) -> str:
    """Return a character with its number, as messages show it: `U+007D '}'`."""
    return code_point(ord(character), sharp=True) if character else code_point(-1, sharp=False)


def code_point(code: int, *, sharp: bool) -> str:
    """Return `U+0041`, or with `sharp` the character as well, if it can be printed."""
    text = f"U+{code & _ALL_ONES:04X}"
    if sharp and 0 <= code <= _LAST_CHARACTER and chr(code).isprintable():
        text += f" '{chr(code)}'"
    return text
