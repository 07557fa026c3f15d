"""A template's text to tokens: what is between `{{` and `}}`, and the text around it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from sandbox.report.gotemplate.quoting import quote, quote_character
from sandbox.report.gotemplate.tokens import KEYWORDS, Kind, Token

_LEFT, _RIGHT = "{{", "}}"
_SPACES = " \t\r\n"
_COMMENT = "/*"
_TRIM_LENGTH = 2  # a dash and the space that must stand beside it
_TERMINATORS = frozenset(_SPACES + ".,|:()")
_LAST_ASCII = "\x7e"

_DECIMAL, _HEX = "0123456789_", "0123456789abcdefABCDEF_"
_DIGITS = {"x": _HEX, "X": _HEX, "o": "01234567_", "O": "01234567_", "b": "01_", "B": "01_"}


class _Bad(Exception):  # noqa: N818 - ends the scan; it becomes the last token
    """The text cannot be a template."""


class Lexer:
    """Reads tokens one after another; the last one is an EOF or an ERROR."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._start = 0
        self._line = 1
        self._start_line = 1
        self._depth = 0
        self._in_action = False
        self._scans: dict[str, Callable[[], Token]] = {
            "": self._end,
            ":": self._declare,
            '"': self._string,
            "`": self._raw_string,
            "$": self._variable,
            "'": self._constant,
            "(": self._open,
            ")": self._shut,
        }

    def tokens(self) -> Iterator[Token]:
        """Iterate over all tokens."""
        try:
            while self._position < len(self._text):
                yield from self._outside()
                if self._in_action:
                    yield from self._inside()
        except _Bad as problem:
            yield Token(Kind.ERROR, self._start, str(problem), self._start_line)
            return
        yield self._token(Kind.EOF)

    def _token(self, kind: Kind) -> Token:
        value = self._text[self._start : self._position]
        token = Token(kind, self._start, value, self._start_line)
        self._skip()
        return token

    def _skip(self) -> None:
        """Leave out what was read since the last token."""
        self._start_line += self._text.count("\n", self._start, self._position)
        self._start = self._position

    def _peek(self) -> str:
        """Return the next character, or nothing at the end."""
        return self._text[self._position : self._position + 1]

    def _accept(self, allowed: str) -> bool:
        following = self._peek()
        if following and following in allowed:
            self._position += 1
            return True
        return False

    def _accept_run(self, allowed: str) -> None:
        while self._accept(allowed):
            pass

    # --- text and delimiters ----------------------------------------------------------------------

    def _outside(self) -> Iterator[Token]:
        """Yield the text up to the next action, and the action's left delimiter."""
        found = self._text.find(_LEFT, self._position)
        self._position = len(self._text) if found < 0 else found
        trimmed = found >= 0 and self._has_left_trim(found + len(_LEFT))
        text = self._text[self._start : self._position]
        if trimmed:
            text = text.rstrip(_SPACES)
        if text:
            yield Token(Kind.TEXT, self._start, text, self._start_line)
        self._skip()
        if found < 0:
            return
        marker = _TRIM_LENGTH if trimmed else 0
        if self._text.startswith(_COMMENT, found + len(_LEFT) + marker):
            self._comment(found + len(_LEFT) + marker)
            return
        self._position = found + len(_LEFT)
        yield self._token(Kind.LEFT_DELIMITER)
        self._position += marker
        self._skip()
        self._in_action = True

    def _has_left_trim(self, position: int) -> bool:
        return bool(re.compile(r"-[ \t\r\n]").match(self._text, position))

    def _at_right(self, position: int) -> tuple[bool, bool]:
        """Return whether a right delimiter is there, and whether a trim marker stands before it."""
        text = self._text
        if text[position : position + 1] in tuple(_SPACES) and text.startswith(
            "-" + _RIGHT, position + 1
        ):
            return True, True
        return text.startswith(_RIGHT, position), False

    def _comment(self, position: int) -> None:
        self._position = position
        end = self._text.find("*/", position + len(_COMMENT))
        if end < 0:
            raise _Bad("unclosed comment")
        self._position = end + len("*/")
        closed, trimmed = self._at_right(self._position)
        if not closed:
            raise _Bad("comment ends before closing delimiter")
        self._close(trimmed=trimmed)
        self._skip()

    def _close(self, *, trimmed: bool) -> None:
        self._position += len(_RIGHT) + (_TRIM_LENGTH if trimmed else 0)
        if trimmed:
            self._accept_run(_SPACES)

    # --- inside an action -------------------------------------------------------------------------

    def _inside(self) -> Iterator[Token]:
        """Yield the tokens up to the right delimiter, that one included."""
        self._depth = 0
        while True:
            closed, trimmed = self._at_right(self._position)
            if closed and self._depth:
                raise _Bad("unclosed left paren")
            if closed:
                if trimmed:
                    self._position += _TRIM_LENGTH
                    self._skip()
                self._position += len(_RIGHT)
                yield self._token(Kind.RIGHT_DELIMITER)
                if trimmed:
                    self._accept_run(_SPACES)
                    self._skip()
                self._in_action = False
                return
            yield self._element()

    def _element(self) -> Token:
        character = self._peek()
        if character and character in _SPACES:
            return self._spaces()
        self._position += len(character)
        if character in self._scans:
            return self._scans[character]()
        if character == "." and not ("0" <= self._peek() <= "9"):
            return self._name(Kind.FIELD, Kind.DOT)
        if character in _NUMBER_STARTS:
            self._position -= 1
            return self._number()
        if _in_a_name(character):
            return self._identifier()
        if " " <= character <= _LAST_ASCII:
            return self._token(_SIMPLE.get(character, Kind.CHARACTER))
        raise _Bad(f"unrecognized character in action: {quote_character(character)}")

    def _spaces(self) -> Token:
        """Read spaces, but leave the one that belongs to a trim marker at the end of the action."""
        self._accept_run(_SPACES)
        if self._text.startswith("-" + _RIGHT, self._position):
            self._position -= 1
        return self._token(Kind.SPACE)

    def _end(self) -> Token:
        raise _Bad("unclosed action")

    def _declare(self) -> Token:
        if not self._accept("="):
            raise _Bad("expected :=")
        return self._token(Kind.DECLARE)

    def _open(self) -> Token:
        self._depth += 1
        return self._token(Kind.LEFT_PAREN)

    def _shut(self) -> Token:
        self._depth -= 1
        if self._depth < 0:
            raise _Bad("unexpected right paren")
        return self._token(Kind.RIGHT_PAREN)

    def _variable(self) -> Token:
        return self._name(Kind.VARIABLE, Kind.VARIABLE)

    def _name(self, kind: Kind, alone: Kind) -> Token:
        """Read the name behind a dot or a dollar; without one it is `alone`."""
        if self._at_terminator():
            return self._token(alone)
        self._word()
        return self._token(kind)

    def _identifier(self) -> Token:
        self._word()
        word = self._text[self._start : self._position]
        if word in {"true", "false"}:
            return self._token(Kind.BOOL)
        return self._token(KEYWORDS.get(word, Kind.IDENTIFIER))

    def _word(self) -> None:
        while _in_a_name(self._peek()):
            self._position += 1
        if not self._at_terminator():
            raise _Bad(f"bad character {quote_character(self._peek())}")

    def _at_terminator(self) -> bool:
        following = self._peek()
        ends = not following or following in _TERMINATORS
        return ends or self._text.startswith(_RIGHT, self._position)

    def _number(self) -> Token:
        self._accept("+-")
        digits = _DECIMAL
        if self._accept("0") and self._peek() and self._peek() in _DIGITS:
            digits = _DIGITS[self._peek()]
            self._position += 1
        self._accept_run(digits)
        if self._accept("."):
            self._accept_run(digits)
        if (digits is _DECIMAL and self._accept("eE")) or (digits is _HEX and self._accept("pP")):
            self._accept("+-")
            self._accept_run(_DECIMAL)
        if _in_a_name(self._peek()):
            self._position += 1
            raise _Bad(f"bad number syntax: {quote(self._text[self._start : self._position])}")
        return self._token(Kind.NUMBER)

    def _string(self) -> Token:
        self._quoted('"', "quoted string")
        return self._token(Kind.STRING)

    def _constant(self) -> Token:
        self._quoted("'", "character constant")
        return self._token(Kind.CHARACTER_CONSTANT)

    def _quoted(self, mark: str, what: str) -> None:
        while (character := self._peek()) not in {"", "\n"}:
            self._position += 1
            if character == mark:
                return
            if character == "\\":
                if self._peek() in {"", "\n"}:
                    break
                self._position += 1
        raise _Bad(f"unterminated {what}")

    def _raw_string(self) -> Token:
        end = self._text.find("`", self._position)
        if end < 0:
            raise _Bad("unterminated raw quoted string")
        self._position = end + 1
        return self._token(Kind.RAW_STRING)


def _in_a_name(character: str) -> bool:
    return character == "_" or character.isalpha() or character.isdecimal()


_SIMPLE = {"=": Kind.ASSIGN, "|": Kind.PIPE}
_NUMBER_STARTS = frozenset(".+-0123456789")
