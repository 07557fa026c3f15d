"""An instruction's text cut into its keyword, its flags and its arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from sandbox.errors import DockerfileError
from sandbox.image.dockerfile.syntax import Heredoc
from sandbox.image.dockerfile.words import is_space
from sandbox.records.light import dataclass

_BLANKS = re.compile(r"[\t\v\f\r ]+")
# Half a character, which `\ud800` in JSON can be; the others stand for bytes that are no UTF-8.
_HALVES = re.compile("[\ud800-\udc7f\udd00-\udfff]")


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One instruction, cut but not yet judged."""

    file: str
    line: int
    text: str
    keyword: str
    """In capital letters."""
    flags: tuple[str, ...]
    """Each with its dashes: `--from=base`."""
    rest: str
    """What follows the flags."""
    escape: str
    heredocs: tuple[Heredoc, ...] = ()

    def refusal(self, what: str, hint: str | None = None) -> DockerfileError:
        """Return the error for something that is wrong with this instruction."""
        return DockerfileError(f"{self.file}:{self.line}: {what}", hint=hint)


def split_statement(text: str, escape: str) -> tuple[str, tuple[str, ...], str]:
    """Return the keyword as written, the flags and the rest of an instruction's text."""
    parts = _BLANKS.split(strip(text), maxsplit=1)
    if len(parts) == 1:
        return parts[0], (), ""
    flags, rest = _split_flags(parts[1], escape)
    return parts[0], flags, strip(rest)


def strip(text: str) -> str:
    """Return a text without the blanks around it."""
    start, end = 0, len(text)
    while start < end and is_space(text[start]):
        start += 1
    while end > start and is_space(text[end - 1]):
        end -= 1
    return text[start:end]


def split_blanks(text: str) -> tuple[str, ...]:
    """Return the arguments of an instruction that knows no quotes."""
    return tuple(_BLANKS.split(text)) if text else ()


def split_pair(text: str) -> tuple[str, str] | None:
    """Return the name and the rest of `NAME the rest`; None if there is no rest."""
    parts = _BLANKS.split(text, maxsplit=1)
    return (parts[0], parts[1]) if len(parts) > 1 else None


def _split_flags(text: str, escape: str) -> tuple[tuple[str, ...], str]:
    """Return the words at the start that begin with `--`, and what follows them."""
    flags: list[str] = []
    at = 0
    while True:
        while at < len(text) and is_space(text[at]):
            at += 1
        if not text.startswith("--", at):
            return tuple(flags), text[at:]
        word, at = _read_flag(text, at, escape)
        if word == "--":
            return tuple(flags), text[at:]
        flags.append(word)


def _read_flag(text: str, at: int, escape: str) -> tuple[str, int]:
    """Return one flag with its quotes taken away, and where it ends."""
    word = quote = ""
    while at < len(text) and (quote or not is_space(text[at])):
        character = text[at]
        at += 1
        if quote and character == quote:
            quote = ""
        elif not quote and character in "'\"":
            quote = character
        elif character == escape:
            word += text[at : at + 1]
            at += 1
        else:
            word += character
    return word, at


def split_quoted(text: str, escape: str) -> tuple[str, ...]:
    """Return the words of ENV, LABEL and ARG: split at blanks outside of quotes, quotes kept."""
    words: list[str] = []
    word = quote = ""
    at = 0
    while at < len(text):
        character = text[at]
        at += 1
        if not quote and is_space(character):
            if word:
                words.append(word)
            word = ""
        elif character == escape and quote != "'":
            # Both are kept for the expansion; at the very end it stands for nothing.
            word += text[at - 1 : at + 1] if at < len(text) else ""
            at += 1
        else:
            if character == quote:
                quote = ""
            elif not quote and character in "'\"":
                quote = character
            word += character
    return (*words, word) if word else tuple(words)


def parse_list(text: str) -> tuple[str, ...] | None:
    """Return the words of the exec form, a JSON array of texts; None if it is not JSON.

    Raises:
        ValueError: it is a JSON array with something else in it.
    """
    text = strip(text)
    if not text.startswith("["):
        return None
    try:
        # Numbers are not looked at: they only have to be there to be refused.
        value = json.loads(text, parse_int=float, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    if not all(isinstance(item, str) for item in value):
        raise ValueError("a JSON array of an instruction holds texts only")
    if any("\0" in item for item in value):
        raise ValueError("a NUL byte cannot be in an argument")
    return tuple(_HALVES.sub("\ufffd", item) for item in value)


def _refuse_constant(name: str) -> float:
    raise ValueError(name)  # Python's own words, such as NaN, are not JSON


class Flags:
    """The flags of one instruction, each taken once by those who know it."""

    def __init__(self, statement: Statement) -> None:
        """Use the flags of `statement`."""
        self._statement = statement
        self._left = [_split_flag(flag) for flag in statement.flags]
        self._known: list[str] = []

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the values of a flag that may be there more than once.

        Raises:
            SpecError: it has no value.
        """
        self._known.append(name)
        values: list[str] = []
        for found, value in self._left:
            if found == name:
                if value is None:
                    raise self._statement.refusal(
                        f"`--{name}` needs a value", f"write `--{name}=VALUE`"
                    )
                values.append(value)
        self._left = [flag for flag in self._left if flag[0] != name]
        return tuple(values)

    def text(self, name: str) -> str | None:
        """Return the value of a flag; None if it is not there.

        Raises:
            SpecError: it has no value, or is there twice.
        """
        self._check_once(name)
        values = self.texts(name)
        return values[0] if values else None

    def is_on(self, name: str) -> bool | None:
        """Return whether a flag that needs no value is on; None if it is not there.

        Raises:
            SpecError: its value is neither true nor false, or it is there twice.
        """
        self._check_once(name)
        self._known.append(name)
        for place, (found, value) in enumerate(self._left):
            if found == name:
                del self._left[place]
                said = "true" if value is None else value.lower()
                if said not in {"true", "false"}:
                    raise self._statement.refusal(
                        f"`--{name}={value}` is neither true nor false", f"write `--{name}`"
                    )
                return said == "true"
        return None

    def finish(self) -> None:
        """Refuse what nobody took.

        Raises:
            SpecError: a flag is unknown here.
        """
        if not self._left:
            return
        name = self._left[0][0]
        keyword = self._statement.keyword
        raise self._statement.refusal(
            f"{keyword} has no flag `--{name}`", nearest(name, self._known, before="--")
        )

    def _check_once(self, name: str) -> None:
        if sum(found == name for found, _ in self._left) > 1:
            raise self._statement.refusal(f"`--{name}` is there twice", "leave one of them")


def refuse_flags(statement: Statement) -> None:
    """Refuse every flag.

    Raises:
        SpecError: there is one.
    """
    Flags(statement).finish()


def needs(statement: Statement, what: str) -> DockerfileError:
    """Return the error for an instruction with nothing where `what` belongs."""
    return statement.refusal(f"{statement.keyword} needs {what}")


def _split_flag(flag: str) -> tuple[str, str | None]:
    name, equals, value = flag.removeprefix("--").partition("=")
    return name, value if equals else None


def nearest(name: str, known: Sequence[str], *, before: str = "") -> str | None:
    """Return the hint that names what was most likely meant, or all that there is."""
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1)
    if close:
        return f"is `{before}{close[0]}` meant?"
    listed = " ".join(f"{before}{each}" for each in known)
    return f"known are: {listed}" if known else "it has none at all"
