"""Totals and samples to a summary: exact for runs of milliseconds and of days."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.analysis.summary import page_cache_state, summarize
from sandbox.records.limits import LimitReport, LimitState
from sandbox.records.result import DeviceIo, RunResult, Summary, Totals
from sandbox.records.sample import ABSENT, COLUMNS, Block, Table

Make = Callable[..., RunResult]
MakeBlock = Callable[..., Block]
MS, SEC, MIB = 10**6, 10**9, 1 << 20
STARTED_NS = 1_000 * SEC
FAST = ("cpu_usage_usec", "memory_current_bytes")
SPLIT = ("memory_anon_bytes", "memory_file_bytes", "memory_shmem_bytes", "memory_kernel_bytes")


def test_a_run_of_five_milliseconds_has_exact_totals_and_no_invented_means(
    make_result: Make,
) -> None:
    totals = Totals(cpu_usage_usec=4_000, memory_peak_bytes=MIB, io=())

    summary = summarize(make_result(wall_ns=5 * MS, totals=totals), [])

    assert summary == Summary(
        cpu_mean=0.8,
        cpu_limit=4.0,
        io_read_bytes=0,
        io_write_bytes=0,
        io_read_ops=0,
        io_write_ops=0,
        samples=0,
    )


def test_a_single_sample_gives_a_peak_but_no_mean(make_result: Make, make_block: MakeBlock) -> None:
    block = make_block(Table.FAST, FAST, (2 * MS, 1_000, 7 * MIB))

    summary = summarize(make_result(wall_ns=5 * MS), [block])

    assert summary.samples == 1
    assert summary.memory_peak_sampled_bytes == 7 * MIB
    assert summary.memory_peak_time_ns == STARTED_NS + 2 * MS
    assert summary.memory_mean_bytes is None
    assert summary.cpu_mean is None
    assert summary.io_read_bytes is None
    assert summary.page_cache is None


def test_memory_is_weighted_by_time_not_by_samples(
    make_result: Make, make_block: MakeBlock
) -> None:
    rows = [(i * MS, 0, 100) for i in range(10)]  # many samples of little time
    blocks = [
        make_block(Table.FAST, FAST, *rows),
        make_block(Table.FAST, FAST, (1_009 * MS, 0, 300)),  # and one far away
    ]

    summary = summarize(make_result(wall_ns=1_009 * MS), blocks)

    assert summary.memory_mean_bytes == round((100 * 9 + 200 * 1_000) / 1_009)


def test_windows_need_two_seconds_and_a_sample_in_each(
    make_result: Make, make_block: MakeBlock
) -> None:
    block = make_block(Table.FAST, FAST, *((i * 10 * MS, i * 5_000, 1) for i in range(300)))
    totals = Totals(cpu_usage_usec=1_500_000)

    long = summarize(make_result(wall_ns=3 * SEC, totals=totals), [block])
    short = summarize(make_result(wall_ns=2 * SEC - 1, totals=totals), [block])
    rare = summarize(
        make_result(wall_ns=3 * SEC, totals=totals, spec={"interval_ns": 2 * SEC}), [block]
    )

    assert long.cpu_max == pytest.approx(0.5)
    assert long.cpu_p95 == pytest.approx(0.5)
    assert long.cpu_mean == pytest.approx(0.5)
    assert (short.cpu_max, short.cpu_p95) == (None, None)
    assert (rare.cpu_max, rare.cpu_p95) == (None, None)


def test_the_first_second_counts_from_the_start_of_the_program(
    make_result: Make, make_block: MakeBlock
) -> None:
    rows = [(i * 500 * MS, 500_000, 1) for i in range(1, 7)]  # all CPU time in the first half

    summary = summarize(make_result(wall_ns=3 * SEC), [make_block(Table.FAST, FAST, *rows)])

    assert summary.cpu_max == pytest.approx(0.5)


def test_samples_from_before_the_start_do_not_bend_the_windows(
    make_result: Make, make_block: MakeBlock
) -> None:
    rows = [(-MS, 0, 1), *((i * 100 * MS, i * 100_000, 1) for i in range(30))]
    summary = summarize(make_result(wall_ns=3 * SEC), [make_block(Table.FAST, FAST, *rows)])
    assert summary.cpu_max == pytest.approx(1.0)


@pytest.mark.parametrize("slow_first", [True, False])
def test_the_split_is_the_slow_sample_nearest_to_the_peak(
    make_result: Make, make_block: MakeBlock, *, slow_first: bool
) -> None:
    fast = [
        make_block(
            Table.FAST,
            FAST,
            *(
                (s * SEC + i * 10 * MS, 0, 100 + (900 if (s, i) == (3, 41) else i))
                for i in range(100)
            ),
        )
        for s in range(6)
    ]
    slow = [
        make_block(Table.SLOW, SPLIT, *((s * SEC + i * 100 * MS, s, i, 0, 5) for i in range(10)))
        for s in range(6)
    ]
    pairs = zip(slow, fast, strict=True) if slow_first else zip(fast, slow, strict=True)
    blocks = [block for pair in pairs for block in pair]

    split = summarize(make_result(wall_ns=6 * SEC), blocks).memory_split

    assert split is not None
    assert split.time_ns == STARTED_NS + 3 * SEC + 400 * MS
    assert (split.anon_bytes, split.file_bytes, split.kernel_bytes) == (3, 4, 5)
    assert split.current_bytes == 140  # the fast sample of that very time


def test_need_and_cache_are_the_largest_that_were_sampled(
    make_result: Make, make_block: MakeBlock
) -> None:
    block = make_block(
        Table.SLOW,
        (*SPLIT, "processes"),
        (0, 100, 50, 10, 1, 2),
        (SEC, 10, 500, 20, 1, 7),
        (2 * SEC, ABSENT, ABSENT, 9_999, 1, ABSENT),  # this reading failed
    )

    summary = summarize(make_result(wall_ns=3 * SEC), [block])

    assert summary.memory_need_bytes == 111
    assert summary.memory_cache_bytes == 480
    assert summary.processes_peak == 7


def test_columns_that_a_host_lacks_are_absent_not_zero(
    make_result: Make, make_block: MakeBlock
) -> None:
    blocks = [
        make_block(Table.FAST, ("pids",), *((i * SEC, 3) for i in range(5))),
        make_block(Table.SLOW, ("memory_swap_bytes",), (0, 0)),
    ]

    summary = summarize(make_result(wall_ns=5 * SEC), blocks)

    assert summary == Summary(cpu_limit=4.0, samples=5)


def test_failed_readings_are_left_out(make_result: Make, make_block: MakeBlock) -> None:
    rows = [
        (i * 10 * MS, ABSENT if i % 7 == 3 else i * 5_000, ABSENT if i % 5 == 2 else 100)
        for i in range(300)
    ]

    summary = summarize(make_result(wall_ns=3 * SEC), [make_block(Table.FAST, FAST, *rows)])

    assert summary.cpu_max == pytest.approx(0.5)
    assert summary.memory_mean_bytes == 100
    assert summary.memory_peak_sampled_bytes == 100


def test_io_adds_up_the_devices(make_result: Make) -> None:
    io = tuple(
        DeviceIo(device=f"8:{i}", read_bytes=i, write_bytes=10 * i, read_ops=1, write_ops=2)
        for i in (1, 2)
    )
    summary = summarize(make_result(wall_ns=SEC, totals=Totals(io=io)), [])
    assert (summary.io_read_bytes, summary.io_write_bytes) == (3, 30)
    assert (summary.io_read_ops, summary.io_write_ops) == (2, 4)


def test_a_run_whose_supervisor_was_lost_is_summed_up_from_its_samples(
    make_result: Make, make_block: MakeBlock
) -> None:
    columns = (*FAST, "io_read_bytes")
    rows = [(i * 10 * MS, i * 5_000, 100, i) for i in range(301)]

    summary = summarize(make_result(), [make_block(Table.FAST, columns, *rows)])

    assert summary.cpu_mean == pytest.approx(0.5)
    assert summary.cpu_max == pytest.approx(0.5)
    assert summary.io_read_bytes == 300


@pytest.mark.parametrize(
    ("periods", "throttled", "ratio"), [(100, 25, 0.25), (0, 0, None), (None, None, None)]
)
def test_throttling_is_a_share_of_the_periods(
    make_result: Make, periods: int | None, throttled: int | None, ratio: float | None
) -> None:
    totals = Totals(cpu_periods=periods, cpu_throttled_periods=throttled)
    assert summarize(make_result(totals=totals), []).throttled_ratio == ratio


@pytest.mark.parametrize(
    ("limits", "base"),
    [
        ({}, 4.0),
        ({"cpus": {"asked": "1.5"}}, 1.5),
        ({"cpus": {"asked": "1.5", "effective": "0.5"}}, 0.5),
        ({"cpus": {"asked": "1.5", "value": "75000 50000"}}, 1.5),
        ({"cpus": {"asked": "1.5", "value": "140000 100000"}}, 1.4),
        ({"cpus": {"asked": "1.5", "state": LimitState.UNAVAILABLE}}, 4.0),
        ({"cpuset_cpus": {"asked": "0,2-3"}}, 3.0),
        ({"cpuset_cpus": {"asked": "0-3", "effective": "1"}}, 1.0),
        ({"cpuset_cpus": {"asked": "0-1"}, "cpus": {"asked": "3"}}, 2.0),
        (
            {
                "cpus": {
                    "asked": "0.5",
                    "state": LimitState.APPROXIMATED,
                    "file": "sched_setaffinity",
                    "value": "2",
                }
            },
            1.0,
        ),
    ],
)
def test_the_base_of_cpu_shares_is_what_the_run_could_really_use(
    make_result: Make, limits: dict[str, Any], base: float
) -> None:
    reports = tuple(
        LimitReport(**{"name": name, "state": LimitState.ENFORCED, **fields})
        for name, fields in limits.items()
    )
    assert summarize(make_result(limits=reports), []).cpu_limit == base


@pytest.mark.parametrize(
    ("read", "cache", "state"),
    [
        (100 * MIB, 110 * MIB, "cold"),
        (100 * MIB, 0, "cold"),  # read past the page cache
        (MIB, 2 * MIB, "warm"),  # too little to matter
        (0, 0, "warm"),
        (5 * MIB, 40 * MIB, None),  # most of the cache came from elsewhere
        (0, 100 * MIB, None),
        (None, 5, None),
        (5, None, None),
    ],
)
def test_cold_and_warm_are_said_only_when_they_can_be_told(
    read: int | None, cache: int | None, state: str | None
) -> None:
    assert page_cache_state(read, cache) == state


@given(
    st.lists(
        st.tuples(st.integers(0, 3 * SEC), st.integers(0, 10**6), st.integers(0, 1 << 40)),
        max_size=60,
    ),
    st.integers(1, 60),
)
def test_how_samples_are_cut_into_blocks_changes_nothing(
    make_result: Make,
    make_block: MakeBlock,
    steps: list[tuple[int, int, int]],
    size: int,
) -> None:
    rows, now, used = [], 0, 0
    for elapsed, grown, memory in steps:
        now, used = now + elapsed, used + grown
        rows.append((now, used, memory))
    result = make_result(wall_ns=now + 1)

    whole = summarize(result, [make_block(Table.FAST, FAST, *rows)] if rows else [])
    cut = summarize(
        result,
        [make_block(Table.FAST, FAST, *rows[i : i + size]) for i in range(0, len(rows), size)],
    )

    assert whole == cut


def hour() -> Iterator[Block]:
    """An hour at 100 Hz, as the sampler of a complete host writes it."""
    names = tuple(COLUMNS)
    fast, slow = names[:8], (names[0], *names[8:])
    for second in range(3_600):
        start = STARTED_NS + second * SEC
        times = array("q", (start + i * 10 * MS for i in range(100)))
        usage = array("q", (second * 700_000 + i * 7_000 for i in range(100)))
        rest = tuple(array("q", (second * i for i in range(100))) for _ in fast[2:])
        yield Block(Table.FAST, fast, (times, usage, *rest))
        few = tuple(array("q", (second * i for i in range(10))) for _ in slow[1:])
        yield Block(Table.SLOW, slow, (times[::10], *few))


def test_an_hour_of_samples_is_summed_up_in_about_half_a_second(make_result: Make) -> None:
    blocks = list(hour())
    result = make_result(wall_ns=3_600 * SEC)

    before = time.process_time()
    summary = summarize(result, blocks)
    spent = time.process_time() - before

    assert summary.samples == 360_000
    assert summary.cpu_max == pytest.approx(0.7)
    assert spent < 2.0  # 0.4 s on an idle machine


def test_empty_blocks_and_lost_splits_do_no_harm(make_result: Make, make_block: MakeBlock) -> None:
    empty = [
        Block(table, ("time_ns", *columns), (array("q"),) * (1 + len(columns)))
        for table, columns in ((Table.FAST, FAST), (Table.SLOW, (*SPLIT, "processes")))
    ]
    blocks = [
        *empty,
        make_block(Table.FAST, FAST, (0, ABSENT, ABSENT)),
        make_block(Table.FAST, FAST, (1, 1, 1)),
        make_block(Table.SLOW, SPLIT, (1, ABSENT, ABSENT, ABSENT, ABSENT)),
    ]

    summary = summarize(make_result(wall_ns=SEC), blocks)

    assert summary.memory_split is None
    assert summary.memory_need_bytes is None
    assert summary.samples == 2
