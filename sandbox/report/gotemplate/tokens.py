"""The tokens of a template, and how messages show them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from sandbox.report.gotemplate.quoting import quote

_SHOWN = 10


class Kind(Enum):
    """What a token is."""

    ERROR = auto()
    ASSIGN = auto()
    BOOL = auto()
    CHARACTER = auto()
    """A printable character with no meaning of its own, such as a comma."""
    CHARACTER_CONSTANT = auto()
    DECLARE = auto()
    EOF = auto()
    FIELD = auto()
    IDENTIFIER = auto()
    LEFT_DELIMITER = auto()
    LEFT_PAREN = auto()
    NUMBER = auto()
    PIPE = auto()
    RAW_STRING = auto()
    RIGHT_DELIMITER = auto()
    RIGHT_PAREN = auto()
    SPACE = auto()
    STRING = auto()
    TEXT = auto()
    VARIABLE = auto()
    DOT = auto()
    BLOCK = auto()
    BREAK = auto()
    CONTINUE = auto()
    DEFINE = auto()
    ELSE = auto()
    END = auto()
    IF = auto()
    NIL = auto()
    RANGE = auto()
    TEMPLATE = auto()
    WITH = auto()


KEYWORDS = {
    name.name.lower(): name
    for name in (
        Kind.BLOCK,
        Kind.BREAK,
        Kind.CONTINUE,
        Kind.DEFINE,
        Kind.ELSE,
        Kind.END,
        Kind.IF,
        Kind.NIL,
        Kind.RANGE,
        Kind.TEMPLATE,
        Kind.WITH,
    )
}
_SHOWN_AS_KEYWORDS = {*KEYWORDS.values(), Kind.DOT}


@dataclass(frozen=True, slots=True)
class Token:
    """One token: `value` is its text, or for an error what is wrong."""

    kind: Kind
    start: int
    """Where it starts in the template, in characters."""
    value: str
    line: int

    def __str__(self) -> str:
        """Return the token as messages show it."""
        if self.kind is Kind.EOF:
            return "EOF"
        if self.kind is Kind.ERROR:
            return self.value
        if self.kind in _SHOWN_AS_KEYWORDS:
            return f"<{self.value}>"
        if len(self.value.encode("utf-8", "replace")) > _SHOWN:
            return quote(self.value[:_SHOWN]) + "..."
        return quote(self.value)
