"""The sliding second, against a reference that looks at every pair of samples."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.analysis.windows import WINDOW_NS, Distribution, Windows

MS = 1_000_000
Series = list[tuple[int, int]]


def counter_at(series: Series, time_ns: int) -> float:
    """The counter at any instant, on the straight line between the samples around it."""
    right = bisect_right([time for time, _ in series], time_ns)
    (t0, u0), (t1, u1) = series[right - 1], series[right]
    return u0 + (u1 - u0) * (time_ns - t0) / (t1 - t0)


def naive(series: Series) -> tuple[float | None, float | None]:
    """Max and p95 by their definition, window after window from the whole series."""
    found: list[tuple[float, int]] = []
    for (before, _), (time, used) in pairwise(series):
        if time - series[0][0] >= WINDOW_NS:
            start = time - WINDOW_NS
            found.append(((used - counter_at(series, start)) / 1e6, time - before))
    if not found:
        return None, None
    total = sum(weight for _, weight in found)
    for value, _ in sorted(found):
        if sum(weight for other, weight in found if other <= value) >= 0.95 * total:
            return max(value for value, _ in found), value
    raise AssertionError


def stream(series: Series, rows_a_block: int) -> Windows:
    windows = Windows()
    for i in range(0, len(series), rows_a_block):
        block = series[i : i + rows_a_block]
        windows.add([time for time, _ in block], [used for _, used in block])
    return windows


steps = st.lists(
    st.tuples(
        st.one_of(
            st.integers(0, 30 * MS),
            st.integers(0, 900 * MS),
            st.integers(1_000 * MS, 20_000 * MS),
            st.just(WINDOW_NS),
        ),
        st.integers(0, 3_000_000),
    ),
    max_size=80,
)


def to_series(increments: list[tuple[int, int]], origin: int) -> Series:
    series = [(origin, 0)]
    for elapsed, used in increments:
        series.append((series[-1][0] + elapsed, series[-1][1] + used))
    return series


@given(steps, st.integers(0, 1 << 60), st.integers(1, 100))
def test_windows_equal_their_definition_whatever_the_sample_times(
    increments: list[tuple[int, int]], origin: int, rows_a_block: int
) -> None:
    series = to_series(increments, origin)
    largest, p95 = naive(series)

    windows = stream(series, rows_a_block)

    assert windows.max_cpus() == pytest.approx(largest)
    assert windows.p95_cpus() == pytest.approx(p95)


@given(steps, st.integers(1, 100), st.integers(1, 100))
def test_how_the_samples_are_cut_into_blocks_changes_nothing(
    increments: list[tuple[int, int]], one: int, other: int
) -> None:
    series = to_series(increments, 7)

    first, second = stream(series, one), stream(series, other)

    assert first.max_cpus() == second.max_cpus()
    assert first.p95_cpus() == second.p95_cpus()


def test_a_steady_load_has_the_same_mean_in_every_window() -> None:
    series = [(i * 10 * MS, i * 5_000) for i in range(500)]

    windows = stream(series, 100)

    assert windows.max_cpus() == pytest.approx(0.5)
    assert windows.p95_cpus() == pytest.approx(0.5)


def test_one_busy_second_is_the_max_but_not_the_p95() -> None:
    series = [(i * 10 * MS, min(max(i - 5_000, 0), 100) * 10_000) for i in range(10_000)]

    windows = stream(series, 100)

    assert windows.max_cpus() == pytest.approx(1.0)
    assert windows.p95_cpus() == 0


def test_a_gap_of_ten_seconds_has_the_mean_of_the_gap() -> None:
    series = [(0, 0), (10 * WINDOW_NS, 2_500_000)]

    windows = stream(series, 2)

    assert windows.max_cpus() == pytest.approx(0.25)
    assert windows.p95_cpus() == pytest.approx(0.25)


def test_a_gap_weighs_as_long_as_it_was() -> None:
    busy = [(i * 10 * MS, i * 10_000) for i in range(301)]
    idle = [(busy[-1][0] + 200 * WINDOW_NS, busy[-1][1])]

    windows = stream(busy + idle, 100)

    assert windows.max_cpus() == pytest.approx(1.0)
    assert windows.p95_cpus() == 0


def test_less_than_a_second_has_no_window() -> None:
    windows = stream([(i * 10 * MS, i) for i in range(100)], 10)

    assert windows.max_cpus() is None
    assert windows.p95_cpus() is None


def test_no_window_reaches_across_a_counter_that_went_down() -> None:
    before = [(i * 100 * MS, i * 100_000) for i in range(21)]
    after = [((21 + i) * 100 * MS, i * 10_000) for i in range(21)]

    for rows_a_block in (1, 5, 21, 100):
        windows = stream(before + after, rows_a_block)
        assert windows.max_cpus() == pytest.approx(1.0)
        # 11 windows of 1.0 before the fall, 11 of 0.1 after it
        assert windows.p95_cpus() == pytest.approx(1.0)


def test_a_counter_that_falls_all_the_time_is_no_trouble() -> None:
    windows = Windows()
    windows.add([i * MS for i in range(5_000)], list(range(5_000, 0, -1)))
    assert windows.max_cpus() is None


@given(
    st.lists(
        st.tuples(st.integers(0, 4_000_000), st.integers(0, 10 * WINDOW_NS)),
        min_size=1,
        max_size=30,
    ),
    st.sampled_from([0.5, 0.95, 0.99]),
)
def test_many_values_give_the_quantile_to_a_thousandth_of_a_cpu(
    values: list[tuple[int, int]], share: float
) -> None:
    few, many = Distribution(), Distribution()
    few.add([float(value) for value, _ in values], [weight for _, weight in values])
    for _ in range(8_192 // len(values) + 2):
        many.add([float(value) for value, _ in values], [weight for _, weight in values])

    exact, binned = few.quantile(share), many.quantile(share)

    assert exact is not None
    assert binned == pytest.approx(exact, abs=501)


def test_memory_stays_bounded_over_a_long_run() -> None:
    windows, used = Windows(), 0
    for second in range(2_000):
        times = [second * WINDOW_NS + i * 10 * MS for i in range(100)]
        usage = []
        for i in range(100):
            used += (second * 37 + i * 13) % 10_000  # up to one CPU, ever another share of it
            usage.append(used)
        windows.add(times, usage)

    assert len(windows._times) <= 202
    assert len(windows._distribution._exact) <= 8_192
    assert len(windows._distribution._bins) <= 1_001
