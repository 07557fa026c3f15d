"""From the bytes of a Dockerfile to its instructions' texts: continuations, comments, heredocs."""

from __future__ import annotations

import re
from collections.abc import Callable

from sandbox.errors import SpecError
from sandbox.image.dockerfile.syntax import DEFAULT_ESCAPE, Heredoc, Warned, refusal
from sandbox.image.dockerfile.words import Style, is_space, read_words
from sandbox.records.light import dataclass

DIRECTIVES = ("syntax", "escape", "check")

_LARGEST_BYTES = 16 << 20
_DIRECTIVE = re.compile(r"([a-zA-Z][a-zA-Z0-9]*)\s*=\s*(.+?)\s*\Z")
_HEREDOC = re.compile(r"([0-9]*)<<(-?)[\t\n\f\r ]*([^<]*)\Z")
_EMPTY_CONTINUATION = "an empty line amid an instruction, which BuildKit will refuse one day"


@dataclass(frozen=True, kw_only=True)
class Text:
    """One instruction before its words are read."""

    line: int
    """The first line, counted from 1."""
    text: str
    """Continued lines joined, comments taken out."""
    heredocs: tuple[Heredoc, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Texts:
    """A whole file."""

    directives: dict[str, str]
    texts: tuple[Text, ...]
    warnings: tuple[Warned, ...]


def read_texts(data: bytes | str, name: str, has_heredocs: Callable[[str, str], bool]) -> Texts:
    """Return the directives and the instructions' texts of a Dockerfile.

    Args:
        data: The file.
        name: What errors begin with.
        has_heredocs: Whether `<<` means something in an instruction, by its text and the escape
            character.

    Raises:
        SpecError: it is no text, a directive is wrong, or a heredoc has no end.
    """
    return _Reader(_lines(data, name), name, has_heredocs).read()


def _lines(data: bytes | str, name: str) -> list[str]:
    if len(data) > _LARGEST_BYTES:
        raise refusal(name, 1, f"the file is larger than {_LARGEST_BYTES >> 20} MiB")
    text = data if isinstance(data, str) else data.decode("utf-8", "surrogateescape")
    text = text.removeprefix("\ufeff")
    before, nul, _ = text.partition("\0")
    if nul:
        hint = "save it as UTF-8" if "\0" in text[:4] else None
        raise refusal(name, before.count("\n") + 1, "a NUL byte: this is no text", hint)
    lines = text.split("\n")
    ended = [f"{line}\n" for line in lines[:-1]]
    return [*ended, lines[-1]] if lines[-1] else ended


class _Reader:
    """A place in the lines of a file."""

    def __init__(
        self, lines: list[str], name: str, has_heredocs: Callable[[str, str], bool]
    ) -> None:
        self._lines = lines
        self._at = 0  # also the number of the line read last
        self._name = name
        self._has_heredocs = has_heredocs
        self._escape = DEFAULT_ESCAPE
        self._warnings: list[Warned] = []

    def read(self) -> Texts:
        directives = self._directives()
        self._escape = directives.get("escape", DEFAULT_ESCAPE)
        # The escape character goes on to the next line only if it does not follow another.
        escape = re.escape(self._escape)
        self._continuation = re.compile(rf"(?:(?<=[^{escape}])|\A){escape}[ \t]*\Z")
        texts: list[Text] = []
        while self._at < len(self._lines):
            text = self._instruction()
            if text is not None:
                texts.append(text)
        return Texts(directives=directives, texts=tuple(texts), warnings=tuple(self._warnings))

    def _directives(self) -> dict[str, str]:
        """Read `# name=value` from the top, up to the first line that is something else."""
        found: dict[str, str] = {}
        for number, line in enumerate(self._lines, start=1):
            stripped = _strip_left(line.rstrip("\r\n"))
            match = _DIRECTIVE.match(_strip_left(stripped[1:])) if stripped[:1] == "#" else None
            key = match[1].lower() if match else ""
            if match is None or key not in DIRECTIVES:
                break
            if key in found:
                raise refusal(
                    self._name, number, f"the directive `{key}` is there twice", "leave one of them"
                )
            if key == "escape" and match[2] not in {"\\", "`"}:
                raise refusal(
                    self._name,
                    number,
                    f"`{match[2]}` cannot be the escape character",
                    "it is `\\` or the backquote",
                )
            found[key] = match[2]
            self._at = number
        return found

    def _next(self) -> str:
        line = self._lines[self._at]
        self._at += 1
        return line

    def _instruction(self) -> Text | None:
        """Return what begins at the next line; None for a comment or an empty line."""
        line = self._next()
        start = self._at
        if _is_comment(line):
            return None
        part, goes_on = self._split(_strip_left(line.rstrip("\r\n")))
        if not part and not goes_on:
            return None
        parts = [part]
        is_warned = False
        while goes_on and self._at < len(self._lines):
            line = self._next()
            if _is_comment(line):
                continue
            line = line.rstrip("\r\n")
            if not _strip_left(line):
                is_warned = True
                continue
            part, goes_on = self._split(line)
            parts.append(part)
        if is_warned:
            self._warnings.append(Warned(line=start, text=_EMPTY_CONTINUATION))
        text = "".join(parts)
        return Text(line=start, text=text, heredocs=self._heredocs(text, start))

    def _split(self, line: str) -> tuple[str, bool]:
        """Return a line without its continuation, and whether there was one."""
        found = self._continuation.search(line)
        return (line, False) if found is None else (line[: found.start()], True)

    def _heredocs(self, text: str, start: int) -> tuple[Heredoc, ...]:
        if "<<" not in text or not self._has_heredocs(text, self._escape):
            return ()
        return tuple(self._body(begun, start) for begun in find_heredocs(text))

    def _body(self, begun: Heredoc, start: int) -> Heredoc:
        """Return a heredoc with the lines up to its word."""
        lines: list[str] = []
        while self._at < len(self._lines):
            line = self._next()
            word = line.rstrip("\r\n")
            if (word.lstrip("\t") if begun.chomp else word) == begun.name:
                return Heredoc(
                    name=begun.name,
                    content="".join(lines),
                    expand=begun.expand,
                    chomp=begun.chomp,
                    descriptor=begun.descriptor,
                )
            lines.append(line)
        raise refusal(
            self._name,
            start,
            f"the heredoc `<<{begun.name}` has no end",
            f"`{begun.name}` has to stand on a line of its own",
        )


def find_heredocs(text: str) -> list[Heredoc]:
    """Return the heredocs that an instruction's text begins, still without their content."""
    style = Style(keeps_quotes=True, keeps_escapes=True, keeps_unset=True)
    try:
        words = read_words(text, {}, style)
    except SpecError:  # such as a quote that a shell would find open: then nothing begins one
        return []
    found = (parse_heredoc(word) for word in words)
    return [heredoc for heredoc in found if heredoc is not None]


def parse_heredoc(word: str) -> Heredoc | None:
    """Return the heredoc that a word such as `<<-"EOF"` or `3<<EOF` begins; None for others."""
    match = _HEREDOC.fullmatch(word)
    if match is None or not match[3]:
        return None
    try:
        words = read_words(match[3], {}, Style(keeps_unset=True))
        quoted = read_words(match[3], {}, Style(keeps_unset=True, keeps_quotes=True))
    except SpecError:
        return None
    if len(words) != 1 or len(quoted) != 1:
        return None
    return Heredoc(
        name=words[0],
        content="",
        expand=_count_quotes(words[0]) == _count_quotes(quoted[0]),
        chomp=bool(match[2]),
        descriptor=int(match[1][:9] or 0),
    )


def _count_quotes(word: str) -> int:
    return word.count("'") + word.count('"')


def _strip_left(text: str) -> str:
    start = 0
    while start < len(text) and is_space(text[start]):
        start += 1
    return text[start:]


def _is_comment(line: str) -> bool:
    return _strip_left(line)[:1] == "#"
