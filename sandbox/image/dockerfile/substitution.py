"""The patterns of `${v#p}`, `${v%p}` and `${v/p/r}`: `*` and `?`, without brackets.

Matched by following all the places in the pattern at once, so that no pattern takes more than its
length times the value's; as in BuildKit neither `*` nor `?` stands for a newline.
"""

from __future__ import annotations

from collections.abc import Sequence

_STAR = -1
_ANY = -2

# A character, by its number; or one of the above.
Pattern = Sequence[int]


def parse_pattern(text: str) -> Pattern:
    r"""Return what `text` matches; `\*`, `\?` and `\\` are the character itself.

    Raises:
        ValueError: a backslash stands before something else.
    """
    parts: list[int] = []
    characters = iter(text)
    for character in characters:
        if character == "*":
            parts.append(_STAR)
        elif character == "?":
            parts.append(_ANY)
        elif character == "\\":
            # `\}` and `\/` had to be written so to stay within the braces.
            escaped = next(characters, "")
            if not escaped or escaped not in "*?\\}/":
                raise ValueError(f"`\\{escaped}` is no escape in a pattern")
            parts.append(ord(escaped))
        else:
            parts.append(ord(character))
    return parts


def remove_prefix(value: str, pattern: Pattern, *, longest: bool) -> str:
    """Return `value` without the shortest or longest beginning that matches."""
    end = _match(value, 0, pattern, longest=longest)
    return value if end is None else value[end:]


def remove_suffix(value: str, pattern: Pattern, *, longest: bool) -> str:
    """Return `value` without the shortest or longest end that matches."""
    return remove_prefix(value[::-1], pattern[::-1], longest=longest)[::-1]


def replace_matches(value: str, pattern: Pattern, replacement: str, *, everywhere: bool) -> str:
    """Return `value` with the first match, the longest there, or all of them replaced."""
    parts: list[str] = []
    copied = position = 0
    while position <= len(value):
        end = _match(value, position, pattern, longest=True)
        if end is None:
            position += 1
            continue
        parts.append(value[copied:position])
        if end > copied or position == 0:  # an empty match next to the last one does not count
            parts.append(replacement)
        copied = end
        position = max(end, position + 1)
        if not everywhere:
            break
    return "".join([*parts, value[copied:]])


def _match(value: str, start: int, pattern: Pattern, *, longest: bool) -> int | None:
    """Return where the match that begins at `start` ends."""
    places = _spread({0}, pattern)
    found = None
    for end in range(start, len(value) + 1):
        if len(pattern) in places:
            found = end
            if not longest:
                break
        if end == len(value) or not places:
            break
        places = _step(places, pattern, value[end])
    return found


def _step(places: set[int], pattern: Pattern, character: str) -> set[int]:
    number = ord(character)
    after = set()
    for place in places:
        part = pattern[place] if place < len(pattern) else None
        if part == _STAR and character != "\n":
            after.add(place)
        elif part == number or (part == _ANY and character != "\n"):
            after.add(place + 1)
    return _spread(after, pattern)


def _spread(places: set[int], pattern: Pattern) -> set[int]:
    """Add the places that are reached without a character: a star may stand for nothing."""
    reached = set(places)
    for first in places:
        place = first
        while place < len(pattern) and pattern[place] == _STAR:
            place += 1
            reached.add(place)
    return reached
