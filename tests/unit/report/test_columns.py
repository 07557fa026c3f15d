"""Docker's table writer: what is aligned, how wide, and what stays as it is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.report.columns import MIN_WIDTH, PADDING, align, display_width, table

CELL = st.text(st.characters(exclude_characters="\t\v\n\f\r"), max_size=20)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("no tabs at all\n", "no tabs at all\n"),
        ("a\tb\n", "a         b\n"),
        ("1234567\tb\n", "1234567   b\n"),
        ("12345678\tb\n", "12345678   b\n"),
        ("a\t\n", "a         \n"),
        ("\tb\n", "          b\n"),
        ("a\t\tb\n", "a                   b\n"),
        ("a\tb", "a         b"),
    ],
)
def test_a_cell_is_at_least_ten_wide_and_three_apart(text: str, expected: str) -> None:
    assert align(text) == expected


def test_the_last_column_is_never_padded() -> None:
    assert table([["ID", "NAME"], ["1", "long name"]]) == "ID        NAME\n1         long name\n"


def test_a_column_ends_where_a_line_lacks_it() -> None:
    text = "a\tb\n0123456789\tx\nalone\na\tb\n"

    assert align(text).splitlines() == ["a            b", "0123456789   x", "alone", "a         b"]


def test_inner_columns_are_aligned_within_their_own_block_only() -> None:
    text = "a\tb\tc\na\td\na\tlonger than ten\tc\n"

    assert align(text).splitlines() == [
        "a         b         c",
        "a         d",
        "a         longer than ten   c",
    ]


def test_a_form_feed_ends_all_columns() -> None:
    assert align("0123456789\tb\fa\tb") == "0123456789   b\na         b"


@pytest.mark.parametrize(
    ("text", "width"), [("web", 3), ("日本", 4), ("é", 1), ("e\u0301", 1), ("\x1b[0m", 3)]
)
def test_wide_characters_count_twice_and_marks_not_at_all(text: str, width: int) -> None:
    assert display_width(text) == width


@settings(deadline=None)
@given(st.lists(st.lists(CELL, min_size=1, max_size=5), max_size=8))
def test_no_text_is_lost_and_only_spaces_are_added(rows: list[list[str]]) -> None:
    lines = table(rows).split("\n")

    assert len(lines) == len(rows) + 1
    for cells, line in zip(rows, lines, strict=False):
        assert line.replace(" ", "") == "".join(cells).replace(" ", "")
        assert line.endswith(cells[-1])


@settings(deadline=None)
@given(st.lists(st.tuples(CELL, CELL, CELL), min_size=1, max_size=8))
def test_the_cells_of_a_column_start_at_the_same_place(rows: list[tuple[str, str, str]]) -> None:
    first = max(MIN_WIDTH, max(display_width(row[0]) for row in rows) + PADDING)
    second = max(MIN_WIDTH, max(display_width(row[1]) for row in rows) + PADDING)

    for row, line in zip(rows, table(rows).split("\n"), strict=False):
        padded = row[0] + " " * (first - display_width(row[0])) + row[1]
        assert line == padded + " " * (first + second - display_width(padded)) + row[2]


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_text_can_be_aligned(text: str) -> None:
    aligned = align(text)

    assert "\t" not in aligned
    assert "\v" not in aligned
