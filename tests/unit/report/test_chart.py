"""Charts of characters."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sandbox.report.chart import render_chart, render_sparkline
from sandbox.report.style import Style

values = st.lists(st.one_of(st.none(), st.floats(0, 1e12)), max_size=200)


def test_a_ramp_climbs_through_every_block() -> None:
    assert render_sparkline([0, 1, 2, 3, 4, 5, 6, 7, 8], 9) == " ▁▂▃▄▅▆▇█"
    assert render_sparkline([0, 1, 2, 3, 4, 5, 6, 7, 8], 9, unicode=False) == " .:-=+*%#"


def test_little_is_visible_and_nothing_is_blank() -> None:
    assert render_sparkline([0.0001, 0, None, 100], 10) == "▁  █"


def test_many_values_are_squeezed_and_no_peak_is_lost() -> None:
    line = render_sparkline([0] * 500 + [1] + [0] * 499, 50)
    assert len(line) == 50
    assert line.strip() == "█"


def test_a_chart_has_its_top_at_the_scale_given() -> None:
    lines = render_chart(
        [1, 2, 4], top=4, labels=("4", "0"), height=2, style=Style(width=20, unicode=True)
    )
    assert lines == ["4 ┤   █", "0 ┤ ▄██"]


@given(values, st.integers(1, 120))
def test_a_line_is_never_wider_than_allowed(numbers: list[float | None], width: int) -> None:
    blocks = render_sparkline(numbers, width)
    plain = render_sparkline(numbers, width, unicode=False)
    assert len(blocks) == len(plain) == min(len(numbers), width)
    assert plain.isascii()


@given(values, st.integers(2, 6))
def test_upper_lines_are_full_only_above_full_ones(
    numbers: list[float | None], height: int
) -> None:
    lines = render_chart(numbers, top=1e12, labels=("t", "0"), height=height, style=Style(width=80))
    assert len(lines) == height
    for upper, lower in pairwise(lines):
        for index, block in enumerate(upper[4:], start=4):
            assert block == " " or lower[index] == "█"
