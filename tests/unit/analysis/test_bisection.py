"""Finding a border by trying: right, with few tries, and honest where it wavers."""

from __future__ import annotations

import math
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from sandbox.analysis.bisection import find_border


@given(
    border=st.integers(1, 5_000),
    floor=st.integers(1, 300),
    step=st.integers(1, 97),
    beyond=st.integers(0, 4_000),
    proofs=st.integers(1, 4),
)
def test_the_border_of_a_steady_test_is_found_and_proven(
    border: int, floor: int, step: int, beyond: int, proofs: int
) -> None:
    tries: Counter[int] = Counter()

    def passes(value: int) -> bool:
        tries[value] += 1
        return value >= border

    passing = max(border, floor) + beyond
    found = find_border(passes, floor=floor, passing=passing, step=step, proofs=proofs)

    lowest = math.ceil(floor / step) * step
    assert found.is_sharp
    assert found.smallest == max(lowest, math.ceil(border / step) * step)
    assert all(value % step == 0 and value >= lowest for value in tries)
    if found.smallest == lowest:
        assert found.largest_failing is None
    else:
        assert found.largest_failing == found.smallest - step
        assert tries[found.largest_failing] > proofs
    assert tries[found.smallest] >= proofs
    most = math.log2(max((passing - floor) / step, 1)) + 2 + 2 * proofs
    assert tries.total() <= most


def test_a_border_that_wavers_moves_up_until_it_holds() -> None:
    unsteady = iter([True, True, False, True])  # 10 passes at first, then not

    def passes(value: int) -> bool:
        return next(unsteady, True) if value == 10 else value > 10

    found = find_border(passes, floor=1, passing=16, step=1, proofs=2)

    assert (found.smallest, found.largest_failing, found.is_sharp) == (11, 10, False)


def test_a_lower_side_that_passes_later_is_not_sharp() -> None:
    tries: Counter[int] = Counter()

    def passes(value: int) -> bool:
        tries[value] += 1
        return value >= 8 or (value == 7 and tries[7] > 1)

    found = find_border(passes, floor=1, passing=16, step=1, proofs=2)

    assert (found.smallest, found.largest_failing, found.is_sharp) == (8, 7, False)


def test_where_even_the_top_wavers_it_is_kept_and_said() -> None:
    found = find_border(lambda _value: False, floor=1, passing=4, step=1, proofs=1)

    assert (found.smallest, found.largest_failing, found.is_sharp) == (4, 3, False)
