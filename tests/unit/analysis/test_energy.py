"""Energy between readings of a counter that starts again at 0."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.analysis.energy import energy_between, longest_gap_ns, reading_interval_ns

INTEL_RANGE_UJ = 262_143_328_850
AMD_RANGE_UJ = 65_532_610_987
SEC = 10**9


@pytest.mark.parametrize(
    ("before", "now", "used"),
    [(100, 350, 250), (100, 100, 0), (AMD_RANGE_UJ - 100, 50, 150), (AMD_RANGE_UJ, 0, 0)],
)
def test_a_counter_that_went_down_has_started_again(before: int, now: int, used: int) -> None:
    assert energy_between(before, now, AMD_RANGE_UJ) == used


@given(st.integers(0, AMD_RANGE_UJ - 1), st.integers(0, AMD_RANGE_UJ - 1))
def test_whatever_was_used_within_a_range_is_found_again(start: int, used: int) -> None:
    assert energy_between(start, (start + used) % AMD_RANGE_UJ, AMD_RANGE_UJ) == used


@given(
    st.lists(st.integers(0, AMD_RANGE_UJ - 1), max_size=50),
    st.integers(0, AMD_RANGE_UJ - 1),
)
def test_sums_over_many_starts_anew_are_whole(parts: list[int], start: int) -> None:
    total, at = 0, start
    for part in parts:
        later = (at + part) % AMD_RANGE_UJ
        total += energy_between(at, later, AMD_RANGE_UJ)
        at = later

    assert total == sum(parts)


@pytest.mark.parametrize("range_uj", [INTEL_RANGE_UJ, AMD_RANGE_UJ])
def test_counters_are_read_before_a_kilowatt_could_hide_a_start_anew(range_uj: int) -> None:
    assert longest_gap_ns(range_uj) * 1_000 <= range_uj * SEC // 1_000_000
    assert reading_interval_ns(range_uj) * 2 <= longest_gap_ns(range_uj)
    assert reading_interval_ns(range_uj) >= 30 * SEC  # and so seldom that it costs nothing


def test_a_counter_of_a_tiny_range_is_still_read_only_each_second() -> None:
    assert reading_interval_ns(1) == SEC
