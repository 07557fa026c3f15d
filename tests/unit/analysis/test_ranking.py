"""Ranks, agreement of rankings and knees, beside worked examples and brute force."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.analysis.ranking import Estimate, kendall_tau, knee, rank


def about(mean: float, interval: float | None = 0.0) -> Estimate:
    return Estimate(mean=mean, interval=interval)


def test_the_smallest_mean_is_the_first() -> None:
    ranks = rank({"slow": about(3), "fast": about(1), "middle": about(2, None)})

    assert ranks == {"fast": (1, False), "middle": (2, False), "slow": (3, False)}


def test_overlapping_intervals_are_a_tie_and_share_the_better_rank() -> None:
    ranks = rank({"a": about(1.0, 0.2), "b": about(1.3, 0.2), "c": about(2.0, 0.1)})

    assert ranks == {"a": (1, True), "b": (1, True), "c": (3, False)}


def test_a_chain_of_overlaps_does_not_tie_its_ends() -> None:
    ranks = rank({str(i): about(i, 0.6) for i in range(4)})

    assert ranks == {"0": (1, True), "1": (1, True), "2": (3, True), "3": (3, True)}


def test_tau_of_worked_examples() -> None:
    assert kendall_tau([1, 2, 3, 4], [10, 20, 30, 40]) == 1
    assert kendall_tau([1, 2, 3, 4], [4, 3, 2, 1]) == -1
    assert kendall_tau([1, 2, 3], [1, 3, 2]) == pytest.approx(1 / 3)
    # 12 2 1 12 2 beside 1 4 7 1 0, the example of SciPy's documentation of kendalltau
    assert kendall_tau([12, 2, 1, 12, 2], [1, 4, 7, 1, 0]) == pytest.approx(-0.47140452079103173)


def test_tau_is_absent_where_nothing_is_ordered() -> None:
    assert kendall_tau([1], [1]) is None
    assert kendall_tau([1, 1], [1, 2]) is None
    with pytest.raises(ValueError, match="cannot be paired"):
        kendall_tau([1], [1, 2])


@given(values=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=9))
def test_tau_is_symmetric_and_turns_with_one_side(values: list[tuple[int, int]]) -> None:
    first, second = [v[0] for v in values], [v[1] for v in values]

    tau = kendall_tau(first, second)
    turned = kendall_tau(first, [-v for v in second])

    assert tau == kendall_tau(second, first)
    if tau is None:
        assert turned is None
    else:
        assert -1.0000001 <= tau <= 1.0000001
        assert turned == pytest.approx(-tau)


def test_the_knee_is_where_more_stops_helping() -> None:
    assert knee([(0.5, 8), (1, 4), (2, 3.6), (4, 3.5)]) == 1
    assert knee([(1, 4), (2, 2)]) is None
    assert knee([(1, 4), (2, 3), (3, 2)]) is None  # a straight line has none
    assert knee([(1, 2), (2, 3), (3, 4)]) is None  # it grows
    assert knee([(1, 4), (2, 3.9), (3, 1)]) is None  # it falls late
