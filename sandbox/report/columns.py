"""Docker's table writer: cells that end in a tab become columns.

A column is what lies one below the other without a break: its cells are as wide as the widest of
them and three spaces, but at least ten. The last cell of a line belongs to no column and is never
padded, so a table's last column has no trailing spaces, unless the template ends in a tab.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

MIN_WIDTH = 10
PADDING = 3
_ZERO_WIDTH = frozenset({"Mn", "Me", "Cf", "Cc"})


def align(text: str) -> str:
    """Return `text` with its tabs replaced by spaces, column by column.

    A form feed ends the line and all columns.
    """
    return "\n".join(_align_section(section) for section in text.split("\f"))


def table(rows: Iterable[Sequence[str]]) -> str:
    """Return rows of cells as a table; the first row is usually the headings."""
    return align("".join("\t".join(row) + "\n" for row in rows))


def _align_section(text: str) -> str:
    lines = [re.split("[\t\v]", line) for line in text.split("\n")]
    padded: list[list[str]] = [[] for _ in lines]
    most = max(map(len, lines))
    for column in range(most - 1):
        run: list[int] = []
        for index, cells in enumerate([*lines, []]):
            if len(cells) - 1 > column:
                run.append(index)
            elif run:
                _pad_column(lines, padded, column, run)
                run = []
    for cells, out in zip(lines, padded, strict=True):
        out.append(cells[-1])
    return "\n".join("".join(cells) for cells in padded)


def _pad_column(
    lines: Sequence[Sequence[str]], padded: Sequence[list[str]], column: int, run: Sequence[int]
) -> None:
    """Pad one column of consecutive lines."""
    widths = [display_width(lines[index][column]) for index in run]
    width = max(MIN_WIDTH, max(widths) + PADDING)
    for index, used in zip(run, widths, strict=True):
        padded[index].append(lines[index][column] + " " * (width - used))


def display_width(text: str) -> int:
    """Return how many columns of a terminal `text` takes, as docker counts them."""
    if text.isascii() and text.isprintable():
        return len(text)
    return sum(_character_width(character) for character in text)


def _character_width(character: str) -> int:
    import unicodedata

    if unicodedata.category(character) in _ZERO_WIDTH:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
