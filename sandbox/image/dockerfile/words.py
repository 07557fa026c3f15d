"""Quotes, escapes and variables in the instructions of a Dockerfile, as BuildKit reads them.

Single quotes keep everything; double quotes keep all but variables and the escape character before
`"`, `$` and itself; outside of quotes the escape character keeps the one after it. Variables are
`$name`, `${name}` and `${name…}` with `-`, `+`, `?` (each also after a colon, by which an empty
value counts as unset), `#`, `##`, `%`, `%%`, `/pattern/text` and `//pattern/text`.
"""

from __future__ import annotations

from collections.abc import Mapping

from sandbox.errors import SpecError
from sandbox.image.dockerfile import substitution
from sandbox.image.dockerfile.syntax import DEFAULT_ESCAPE
from sandbox.records.light import dataclass

_MOST_NESTED = 100
_MOST_SHOWN = 120
_SPECIAL_PARAMETERS = frozenset("@*#?-$!0")


def expand(text: str, variables: Mapping[str, str], escape: str = DEFAULT_ESCAPE) -> str:
    """Return one word: quotes taken away, variables replaced; blanks do not split it.

    A variable that is not set stands for nothing.

    Raises:
        SpecError: a quote or a brace is open, a form is unknown, or `${name?}` finds it unset.
    """
    return _Reader(text, variables, Style(escape=escape)).read()


def split_words(
    text: str, variables: Mapping[str, str], escape: str = DEFAULT_ESCAPE
) -> tuple[str, ...]:
    """Return the words of a text, split at blanks, those in values of variables included.

    Raises:
        SpecError: as in `expand`.
    """
    return read_words(text, variables, Style(escape=escape))


def expand_document(text: str, variables: Mapping[str, str]) -> str:
    """Return the text of a heredoc: variables and backslashes count, quotes are kept.

    Raises:
        SpecError: as in `expand`.
    """
    return _Reader(text, variables, Style(reads_quotes=False)).read()


@dataclass(frozen=True, kw_only=True)
class Style:
    """How a text is read."""

    escape: str = DEFAULT_ESCAPE
    reads_quotes: bool = True
    keeps_quotes: bool = False
    keeps_escapes: bool = False
    keeps_unset: bool = False
    """Whether a variable that is not set stays as written."""


def read_words(text: str, variables: Mapping[str, str], style: Style) -> tuple[str, ...]:
    """Return the words of a text that is read in a style of one's own.

    Raises:
        SpecError: as in `expand`.
    """
    reader = _Reader(text, variables, style)
    reader.read()
    return reader.words.finish()


def is_space(character: str) -> bool:
    """Return whether Go takes it for a blank: as Python, but for four control characters."""
    return character.isspace() and character not in "\x1c\x1d\x1e\x1f"


class _Words:
    """What has been read so far, cut at blanks."""

    def __init__(self) -> None:
        self._done: list[str] = []
        self._word = ""

    def add(self, text: str, *, may_split: bool) -> None:
        if not may_split:
            self._word += text
            return
        for character in text:
            if not is_space(character):
                self._word += character
            elif self._word:
                self._done.append(self._word)
                self._word = ""

    def finish(self) -> tuple[str, ...]:
        return (*self._done, self._word) if self._word else tuple(self._done)


class _Reader:
    """A position in a text."""

    def __init__(self, text: str, variables: Mapping[str, str], style: Style) -> None:
        self._text = text
        self._at = 0
        self._variables = variables
        self._style = style
        self._nested = 0
        self.words = _Words()

    def read(self) -> str:
        """Return the whole text, expanded."""
        return self._until("", self.words, keeps_escapes=self._style.keeps_escapes)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        character = self._peek()
        self._at += 1
        return character

    def _refusal(self, why: str, hint: str | None = None) -> SpecError:
        # Of a document the line that was read last.
        read = self._text[: self._at].rstrip("\n")
        line = self._text[read.rfind("\n") + 1 :].partition("\n")[0]
        shown = line if len(line) <= _MOST_SHOWN else f"{line[:_MOST_SHOWN]}…"
        return SpecError(f"cannot expand `{shown}`: {why}", hint=hint)

    def _until(self, stop: str, words: _Words, *, keeps_escapes: bool) -> str:
        """Return what is before `stop`, expanded, and pass over it; `""` is the end."""
        parts: list[str] = []
        while character := self._peek():
            if character == stop:
                self._at += 1
                return "".join(parts)
            part, may_split = self._piece(character, keeps_escapes=keeps_escapes)
            parts.append(part)
            words.add(part, may_split=may_split)
        if stop:
            raise self._refusal(f"`{stop}` is missing at its end", "every `${` needs its `}`")
        return "".join(parts)

    def _piece(self, character: str, *, keeps_escapes: bool) -> tuple[str, bool]:
        """Return what the next piece stands for, and whether blanks in it split words."""
        if character == "$":
            return self._dollar(), True
        if character == "<":
            return self._less_than(), False
        if self._style.reads_quotes and character == "'":
            return self._single_quotes(), False
        if self._style.reads_quotes and character == '"':
            return self._double_quotes(keeps_escapes=keeps_escapes), False
        self._at += 1
        if character != self._style.escape:
            return character, True
        # At the very end the escape character stands for nothing.
        return (character if keeps_escapes else "") + self._next(), False

    def _less_than(self) -> str:
        """Return `<`, or `<<` with the blanks after it: they belong to a heredoc's word."""
        start = self._at
        self._at += 1
        if self._peek() == "<":
            self._at += 1
            while self._peek() and self._peek() in "\t\r ":
                self._at += 1
        return self._text[start : self._at]

    def _single_quotes(self) -> str:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise self._refusal("a single quote is open", "close it, or write `\\'`")
        inner = self._text[self._at + 1 : end]
        self._at = end + 1
        return f"'{inner}'" if self._style.keeps_quotes else inner

    def _double_quotes(self, *, keeps_escapes: bool) -> str:
        escape = self._style.escape
        quote = '"' if self._style.keeps_quotes else ""
        parts = [quote]
        self._at += 1
        while character := self._peek():
            if character == "$":
                parts.append(self._dollar())
                continue
            self._at += 1
            if character == '"':
                return "".join([*parts, quote])
            if character == escape:
                if keeps_escapes:
                    parts.append(character)
                if not self._peek():
                    break
                if self._peek() in {'"', "$", escape}:
                    character = self._next()
            parts.append(character)
        raise self._refusal("a double quote is open", 'close it, or write `\\"`')

    def _dollar(self) -> str:
        start = self._at
        self._at += 1
        if self._peek() != "{":
            name = self._name()
            if not name:
                return "$"
            unset = self._text[start : self._at] if self._style.keeps_unset else ""
            return self._variables.get(name, unset)
        self._at += 1
        if self._peek() in {"", "{", "}", ":"}:
            raise self._refusal("a name is missing after `${`", "write `\\$` for a dollar itself")
        self._nested += 1
        if self._nested > _MOST_NESTED:
            raise self._refusal("it is nested too deeply")
        value = self._braces(self._name())
        self._nested -= 1
        if value is None:
            return self._text[start : self._at] if self._style.keeps_unset else ""
        return value

    def _name(self) -> str:
        """Return the name of a variable, digits, one special parameter, or nothing."""
        start = self._at
        first = self._peek()
        if first.isdecimal():
            while self._peek().isdecimal():
                self._at += 1
        elif first in _SPECIAL_PARAMETERS:
            self._at += 1
        else:
            while (next_ := self._peek()).isalpha() or next_.isdecimal() or next_ == "_":
                self._at += 1
        return self._text[start : self._at]

    def _braces(self, name: str) -> str | None:
        """Return the value of what follows `${name`; None if that is unset and is to be kept."""
        value = self._variables.get(name)
        operator = self._next()
        if operator == "}":
            return value
        if operator == "/":
            return self._replaced(value)
        colon = operator == ":"
        if colon:
            operator = self._next()
        if not operator:
            raise self._refusal("`}` is missing at its end", "every `${` needs its `}`")
        if operator not in "-+?#%" or (colon and operator in "#%"):
            shown = repr(f":{operator}" if colon else operator)[1:-1]
            raise self._refusal(
                f"`{shown}` is not known after a variable's name",
                "known are `:-` `-` `:+` `+` `:?` `?` `#` `##` `%` `%%` `/` and `//`",
            )
        # A pattern keeps its backslashes, and they count again in what is nested in a default.
        word = self._until("}", _Words(), keeps_escapes=operator in "#%")
        if value is None and self._style.keeps_unset:
            return None
        if operator in "#%":
            return self._trimmed(value or "", operator, word)
        missing = value is None or (colon and not value)
        if operator == "?" and missing:
            why = word or f"is not allowed to be {'unset' if value is None else 'empty'}"
            raise SpecError(
                f"{name}: {why}", hint=f"give `{name}` a value by ARG, ENV or --build-arg"
            )
        if operator == "+":
            return "" if missing else word
        return word if missing else value

    def _trimmed(self, value: str, operator: str, word: str) -> str:
        longest = word.startswith(operator)
        pattern = self._pattern(word[1:] if longest else word)
        remove = substitution.remove_prefix if operator == "#" else substitution.remove_suffix
        return remove(value, pattern, longest=longest)

    def _replaced(self, value: str | None) -> str | None:
        everywhere = self._peek() == "/"
        if everywhere:
            self._at += 1
        word = self._until("/", _Words(), keeps_escapes=True)
        replacement = self._until("}", _Words(), keeps_escapes=True)
        if value is None and self._style.keeps_unset:
            return None
        return substitution.replace_matches(
            value or "", self._pattern(word), replacement, everywhere=everywhere
        )

    def _pattern(self, text: str) -> substitution.Pattern:
        try:
            return substitution.parse_pattern(text)
        except ValueError as exc:
            raise self._refusal(str(exc)) from exc
