"""What a terminal can show: width, colour, characters; and text from outside made harmless."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.records.light import dataclass

_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31;1",
    "green": "32;1",
    "yellow": "33;1",
    "cyan": "36",
}
_HARMLESS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_")
_NARROW = frozenset(map(chr, range(0x80))) | frozenset("✓✗…│µ")
"""What is one column wide for certain; the tables of all characters take a millisecond to load."""
_ASCII = str.maketrans({"…": ">", "µ": "u"})


@dataclass(frozen=True, kw_only=True)
class Style:
    """How to write for one terminal."""

    width: int = 80
    color: bool = False
    unicode: bool = True

    def paint(self, text: str, name: str) -> str:
        """Return `text` in a colour, if the terminal has any; its width stays."""
        return f"\033[{_CODES[name]}m{text}\033[0m" if self.color and text else text

    def clip(self, text: str, width: int) -> str:
        """Return `text` in at most `width` columns; an ellipsis marks what was cut off."""
        if cell_width(text) <= width:
            return text
        kept, used = [], 0
        for character in text:
            used += cell_width(character)
            if used > width - 1:
                break
            kept.append(character)
        return "".join(kept) + "…" if width > 0 else ""

    def plain(self, text: str) -> str:
        """Return `text` in characters that the terminal has; its width stays."""
        if self.unicode:
            return text
        return text.translate(_ASCII).encode("ascii", "replace").decode()

    def wrap(self, text: str, indent: int, first: int | None = None) -> list[str]:
        """Return `text` in lines of the terminal's width, all but the first indented.

        `first` is how much of the first line is taken already.
        """
        used = indent if first is None else first
        if text and used + len(text) <= self.width and text.isprintable() and text == text.strip():
            return [text]
        import textwrap

        lines = textwrap.wrap(
            text,
            max(self.width, used + 20),
            initial_indent="x" * used,
            subsequent_indent=" " * indent,
            break_on_hyphens=False,
            break_long_words=False,  # a path in one piece can be copied
        )
        return [lines[0][used:], *lines[1:]] if lines else [""]


def printable(text: str) -> str:
    """Return `text` without characters that could command a terminal: they become escapes."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )


def command_line(command: Sequence[str]) -> str:
    """Return a command as a shell would take it, on one line and harmless to a terminal."""
    return printable(" ".join(map(_quote, command)))


def _quote(word: str) -> str:
    if word and _HARMLESS.issuperset(word):
        return word
    from shlex import quote  # 0.3 ms to load, for what most commands do without

    return quote(word)


def cell_width(text: str) -> int:
    """Return how many columns `text` takes."""
    if _NARROW.issuperset(text):
        return len(text)
    import unicodedata

    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )
