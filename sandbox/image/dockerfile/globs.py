"""Patterns of paths: Go's `filepath.Match`, and those of .dockerignore, which also know `**`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from sandbox.errors import SpecError

_SPECIAL = frozenset("*?[\\")


def has_wildcards(pattern: str) -> bool:
    """Return whether a path is a pattern: `*`, `?` or `[` that is not escaped."""
    return re.search(r"(?:\A|[^\\])(?:\\\\)*[*?[]", pattern) is not None


def match(pattern: str, name: str) -> bool:
    r"""Return whether all of `name` matches: `*` and `?` do not cross `/`, `\` escapes.

    Raises:
        SpecError: a bracket is open, or a backslash stands at the end.
    """
    return _glob(pattern).fullmatch(name) is not None


@lru_cache(maxsize=256)
def _glob(pattern: str) -> re.Pattern[str]:
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        part, at = _part(pattern, at)
        parts.append(part)
    return re.compile("".join(parts), re.DOTALL)


def _part(pattern: str, at: int) -> tuple[str, int]:
    """Return the expression of what stands at a place in a pattern, and where it ends."""
    character = pattern[at]
    if character == "*":
        while pattern[at : at + 1] == "*":  # several are one: also, each would cost as much again
            at += 1
        return "[^/]*", at
    if character == "?":
        return "[^/]", at + 1
    if character == "[":
        return _bracket(pattern, at)
    if character == "\\":
        escaped = pattern[at + 1 : at + 2]
        if not escaped:
            raise _bad(pattern, "a backslash stands at its end")
        return re.escape(escaped), at + 2
    return re.escape(character), at + 1


def _bracket(pattern: str, at: int) -> tuple[str, int]:
    """Return the expression of `[a-z]` or `[^a-z]`, as Go reads it."""
    at += 1
    negated = pattern[at : at + 1] == "^"
    at += negated
    ranges: list[str] = []
    while pattern[at : at + 1] != "]" or not ranges:
        first, at = _in_bracket(pattern, at)
        last = first
        if pattern[at : at + 1] == "-":
            last, at = _in_bracket(pattern, at + 1)
        # A range the wrong way round matches nothing, and is no error.
        ranges.append(f"{re.escape(first)}-{re.escape(last)}" if first <= last else "")
    inner = "".join(ranges)
    if not inner:
        return (".", at + 1) if negated else ("(?!)", at + 1)
    return f"[{'^' * negated}{inner}]", at + 1


def _in_bracket(pattern: str, at: int) -> tuple[str, int]:
    character = pattern[at : at + 1]
    if character in {"", "-", "]"}:
        raise _bad(pattern, "a bracket is not closed, or empty")
    if character == "\\":
        at += 1
        character = pattern[at : at + 1]
        if not character:
            raise _bad(pattern, "a bracket is not closed")
    if at + 1 >= len(pattern):
        raise _bad(pattern, "a bracket is not closed")
    return character, at + 1


def _bad(pattern: str, why: str) -> SpecError:
    return SpecError(f"`{pattern}` is no pattern: {why}", hint="write `[[]` for a bracket itself")


class PathPattern:
    """One line of .dockerignore, `--exclude` or `--parents`."""

    def __init__(self, text: str) -> None:
        """Read a pattern that is cleaned: without `!`, `.` parts or slashes around it.

        Raises:
            SpecError: it is none.
        """
        self.text = text
        self._plain = text if not _SPECIAL & set(text) else None
        self._expression = _deep(text)

    def matches(self, path: str) -> bool:
        """Return whether it means exactly this path; what is below it is for the caller."""
        if self._plain is not None:
            return path == self._plain
        return self._expression.fullmatch(path) is not None


def _deep(text: str) -> re.Pattern[str]:
    """Return the expression of a pattern with `**`, which stands for any directories, or none."""
    if text.startswith("**") and not text.startswith("**/") and not _SPECIAL & set(text[2:]):
        return re.compile(".*" + re.escape(text[2:]), re.DOTALL)  # docker takes `**.go` for an end
    parts: list[str] = []
    at = 0
    while at < len(text):
        if not text.startswith("**", at):
            part, at = _part_once(text, at)
        else:
            while text.startswith("**", at):
                at += 2
                at += text.startswith("/", at)
            part = "(?:.*/)?" if at < len(text) else ".*"
        parts.append(part)
    return re.compile("".join(parts), re.DOTALL)


def _part_once(text: str, at: int) -> tuple[str, int]:
    return ("[^/]*", at + 1) if text[at] == "*" else _part(text, at)


class PathPatterns:
    """Patterns of which the last that means a path, or a directory above it, decides."""

    def __init__(self, patterns: Sequence[tuple[PathPattern, bool]]) -> None:
        """Use patterns, each with whether it takes back (`!`) what others before it match."""
        self._patterns = patterns
        self.takes_back = any(back for _, back in patterns)
        """Whether something below a directory that matches may not match."""

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._patterns)

    def states(self, path: str, parent: tuple[bool, ...] | None = None) -> tuple[bool, ...]:
        """Return which patterns mean a path or a directory above it.

        Args:
            path: From the top.
            parent: What this returned for its directory; None means that of the top.
        """
        above = parent or (False,) * len(self._patterns)
        return tuple(
            known or pattern.matches(path)
            for known, (pattern, _) in zip(above, self._patterns, strict=True)
        )

    def decide(self, states: tuple[bool, ...]) -> bool:
        """Return whether a path with these states matches."""
        decision = False
        for matched, (_, back) in zip(states, self._patterns, strict=True):
            if matched:
                decision = not back
        return decision

    def matches(self, path: str) -> bool:
        """Return whether a path matches, by itself or by a directory above it."""
        states: tuple[bool, ...] | None = None
        parts = path.split("/")
        for count in range(1, len(parts) + 1):
            states = self.states("/".join(parts[:count]), states)
        return bool(states) and self.decide(states or ())


def path_patterns(texts: Sequence[str]) -> PathPatterns:
    """Return the patterns of `--exclude` or `--parents`.

    Raises:
        SpecError: one of them is none.
    """
    return PathPatterns([parse_path_pattern(text) for text in texts if text.strip()])


def parse_path_pattern(text: str) -> tuple[PathPattern, bool]:
    """Return a pattern, and whether it takes back.

    Raises:
        SpecError: it is none.
    """
    text = text.strip()
    back = text.startswith("!")
    rest = text[1:].strip() if back else text
    if not rest:
        raise SpecError("`!` takes nothing back", hint="write what after it, such as `!keep.txt`")
    return PathPattern(clean_path(rest, keeps_parents=True)), back


def clean_path(path: str, *, keeps_parents: bool = False) -> str:
    """Return the shortest text for a path from the top: no slash around it, no `.`, no `..`.

    Args:
        path: Absolute or relative, which means the same.
        keeps_parents: Whether `..` that leads above the top stays, so that it means nothing there.
    """
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and keeps_parents and parts[-1:] in ([], [".."]):
            parts.append(part)
        elif part == "..":
            del parts[-1:]
        elif part not in {"", "."}:
            parts.append(part)
    return "/".join(parts) or "."
