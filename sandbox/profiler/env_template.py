"""The syntax of an environment file: what a shell would read in it, without running anything.

`NAME=VALUE` a line, `export` before it, `#` comments, quotes of both kinds (over several lines
too), backslashes, and `$NAME` of what stands above or of the caller. What only a shell can do is
refused by its place: `--source-env` hands the file to one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sandbox.errors import SpecError
from sandbox.records.light import dataclass

_NAME = re.compile(r"(?a)(?:export[ \t]+)?([A-Za-z_]\w*)([ \t]*)=([ \t]*)")
_VARIABLE = re.compile(r"(?a)\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_HINT_SHELL = "--source-env lets a shell read the file"
_CURLY_QUOTES = "\u201c\u201d\u2018\u2019"
_BLANKS = " \t"


@dataclass(frozen=True)
class Value:
    """One variable: its text, and the line on which it was set."""

    text: str
    line: int


def parse_env_template(text: str, path: str, environ: Mapping[str, str]) -> dict[str, Value]:
    """Return the variables of a file by name; the last of a name wins.

    Raises:
        SpecError: a line is no assignment, or needs a shell; with file and line.
    """
    return _Parser(text.removeprefix("\ufeff").replace("\r\n", "\n"), path, environ).parse()


class _Parser:
    """A place in the text."""

    def __init__(self, text: str, path: str, environ: Mapping[str, str]) -> None:
        self._text = text
        self._path = path
        self._environ = environ
        self._at = 0
        self._line = 1
        self._values: dict[str, Value] = {}

    def parse(self) -> dict[str, Value]:
        while self._at < len(self._text):
            self._skip(_BLANKS)
            character = self._peek()
            if character == "#":
                self._skip_comment()
            elif character == "\n":
                self._take()
            elif character:
                self._assignment()
        return self._values

    def _assignment(self) -> None:
        line = self._line
        match = _NAME.match(self._text, self._at)
        if match is None:
            shown = self._text[self._at :].split("\n", 1)[0]
            raise self._error(f"`{shown}` is not NAME=VALUE", "comments begin with `#`")
        name, before, after = match.groups()
        self._at = match.start(3)
        if before or (after and self._text[match.end() : match.end() + 1] not in {"", "\n", "#"}):
            raise self._error(f"{name}: blanks around `=`", f"write `{name}=VALUE` without them")
        self._values[name] = Value(self._value(name), line)

    def _value(self, name: str) -> str:
        parts: list[str] = []
        while self._text.startswith("\\\n", self._at):  # a line that goes on is as if it were one
            self._take()
            self._take()
        if self._peek() == "~":
            parts.append(self._home(name))
        while (character := self._peek()) and character != "\n":
            if character in _BLANKS:
                self._end_of_value(name)
                break
            parts.append(self._part(name, character))
        return "".join(parts)

    def _home(self, name: str) -> str:
        """Return what a `~` at the beginning of a value stands for."""
        self._take()
        if self._peek() not in {"", "/", "\n", *_BLANKS}:
            raise self._error(f"{name}: `~` of a user needs a shell", f"quote it; {_HINT_SHELL}")
        return self._environ.get("HOME", "~")

    def _part(self, name: str, character: str) -> str:
        if character == "'":
            return self._single(name)
        if character == '"':
            return self._double(name)
        if character in _CURLY_QUOTES:
            raise self._error(f"{name}: {character} is no quotation mark of a shell", 'write "…"')
        if character == "\\":
            self._take()
            escaped = self._take()
            return "" if escaped == "\n" else escaped
        if character == "$":
            if self._text[self._at + 1 : self._at + 2] in {"'", '"'}:
                raise self._error(f"{name}: `$` before a quotation needs a shell", _HINT_SHELL)
            return self._expanded(name)
        if character in "`;&|<>()":
            raise self._error(f"{name}: `{character}` needs a shell", f"quote it; {_HINT_SHELL}")
        return self._take()

    def _end_of_value(self, name: str) -> None:
        self._skip(_BLANKS)
        if self._peek() == "#":
            self._skip_comment()
        elif self._peek() not in {"", "\n"}:
            raise self._error(
                f"{name}: its value holds blanks and is not quoted", f'write {name}="… …"'
            )

    def _single(self, name: str) -> str:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise self._error(f"{name}: the quotation has no end", "add a `'`")
        inside = self._text[self._at + 1 : end]
        self._line += inside.count("\n")
        self._at = end + 1
        return inside

    def _double(self, name: str) -> str:
        begin = self._line
        self._take()
        parts: list[str] = []
        while (character := self._peek()) != '"':
            if not character:
                self._line = begin
                raise self._error(f"{name}: the quotation has no end", 'add a `"`')
            if character == "$":
                parts.append(self._expanded(name))
            elif character == "`":
                raise self._error(f"{name}: a command in backquotes needs a shell", _HINT_SHELL)
            elif character == "\\":
                self._take()
                escaped = self._take()
                parts.append(_escaped_in_quotes(escaped))
            else:
                parts.append(self._take())
        self._take()
        return "".join(parts)

    def _expanded(self, name: str) -> str:
        match = _VARIABLE.match(self._text, self._at)
        if match is None:
            following = self._text[self._at + 1 : self._at + 2]
            if following and following in "\\({*@#?!-$0123456789":
                raise self._error(f"{name}: `${following}` needs a shell", _HINT_SHELL)
            return self._take()  # a dollar alone is a dollar
        self._at = match.end()
        wanted = match[1] or match[2]
        if wanted in self._values:
            return self._values[wanted].text
        if wanted in self._environ:
            return self._environ[wanted]
        raise self._error(
            f"{name}: ${wanted} is not set",
            "set it above, in your own environment, or quote it '…'",
        )

    def _skip(self, characters: str) -> None:
        while (character := self._peek()) and character in characters:
            self._take()

    def _skip_comment(self) -> None:
        while self._peek() not in {"", "\n"}:
            self._take()

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        character = self._peek()
        self._at += 1
        self._line += character == "\n"
        return character

    def _error(self, message: str, hint: str) -> SpecError:
        return SpecError(f"{self._path}:{self._line}: {message}", hint=hint)


def _escaped_in_quotes(character: str) -> str:
    if character == "\n":
        return ""
    return character if character in '$`"\\' else "\\" + character
