"""Rates between two samples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.analysis.usage import rate_per_sec, usage_between
from sandbox.records.sample import ABSENT

COLUMNS = ("time_ns", "cpu_usage_usec", "memory_current_bytes", "pids", "io_read_bytes")


def test_half_a_second_of_cpu_in_a_second_is_half_a_cpu() -> None:
    usage = usage_between(COLUMNS, (0, 0, 10, 1, 0), (10**9, 500_000, 20, 2, 4096))

    assert usage is not None
    assert usage.cpus == 0.5
    assert usage.memory_bytes == 20
    assert usage.pids == 2
    assert usage.io_read_bytes_per_sec == 4096
    assert usage.io_write_bytes_per_sec is None  # the host does not give it
    assert (usage.end_ns, usage.elapsed_ns) == (10**9, 10**9)


@pytest.mark.parametrize(
    "after",
    [
        (0, 500_000, 20, 2, 4096),  # no time passed
        (10**9, 4, 20, 2, 4096),  # the CPU counter went down
        (10**9, 500_000, 20, 2, 4),  # another counter went down
    ],
)
def test_there_is_no_rate_without_time_or_from_a_group_made_anew(after: tuple[int, ...]) -> None:
    assert usage_between(COLUMNS, (0, 5, 30, 3, 5), after) is None


def test_a_reading_that_failed_is_absent_and_the_others_stand() -> None:
    usage = usage_between(COLUMNS, (0, 5, 30, 3, 5), (10**9, ABSENT, ABSENT, 1, 5))

    assert usage is not None
    assert usage.cpus is None
    assert usage.memory_bytes is None
    assert usage.pids == 1
    assert usage.io_read_bytes_per_sec == 0


@given(st.integers(0, 1 << 62), st.integers(0, 1 << 40), st.integers(1, 1 << 50))
def test_a_rate_times_its_time_is_what_was_counted(before: int, grown: int, elapsed: int) -> None:
    rate = rate_per_sec(before, before + grown, elapsed)
    assert rate == pytest.approx(grown / (elapsed / 1e9))


@given(st.integers(-5, 5), st.integers(-5, 5), st.integers(-5, 5))
def test_a_rate_is_never_negative(before: int, after: int, elapsed: int) -> None:
    rate = rate_per_sec(before, after, elapsed)
    assert (rate is None) == (elapsed <= 0 or after < before)
    assert rate is None or rate >= 0
