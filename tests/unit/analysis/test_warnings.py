"""Each warning: when it is given, when it is not, and that it says what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.analysis.warnings import find_warnings
from sandbox.records.host import HostLoad
from sandbox.records.limits import LimitReport, LimitState
from sandbox.records.observed import Observed
from sandbox.records.program import ExitStatus
from sandbox.records.result import DeviceIo, Outcome, Overhead, RunResult, Summary, Totals

Make = Callable[..., RunResult]
SEC, MIB = 10**9, 1 << 20
BEFORE = HostLoad(
    time_ns=0,
    total_usec=0,
    idle_usec=0,
    steal_usec=0,
    swap_in_pages=10,
    swap_out_pages=10,
    oom_kills=4,
    thermal_throttles=7,
    load_average=0.1,
)


def after(**changes: Any) -> HostLoad:
    """Ten quiet seconds of four CPUs later."""
    quiet = replace(BEFORE, time_ns=10 * SEC, total_usec=40_000_000, idle_usec=30_000_000)
    return replace(quiet, **changes)


def limit(name: str, asked: str, **changes: Any) -> LimitReport:
    return LimitReport(**{"name": name, "asked": asked, "state": LimitState.ENFORCED, **changes})


MEMORY = limit("memory", "512 MiB", value=str(512 * MIB))


def ran(make: Make, **changes: Any) -> RunResult:
    """Ten seconds of one busy CPU, and nothing odd."""
    plain: dict[str, Any] = {
        "outcome": Outcome.EXITED,
        "exit_code": 0,
        "wall_ns": 10 * SEC,
        "totals": Totals(cpu_usage_usec=10_000_000, oom_kills=0),
        "summary": Summary(cpu_limit=4.0),
        "overhead": Overhead(cpu_usec=30_000, ticks=1_000, missed_ticks=0, max_late_ns=5),
    }
    return make(**{**plain, **changes})


def codes(
    result: RunResult, load: HostLoad | None = None, observed: Observed | None = None
) -> list[str]:
    found = find_warnings(result, BEFORE, load or after(), observed=observed)
    assert all(warning.text and not warning.text.endswith(".") for warning in found)
    return [warning.code for warning in found]


def test_a_quiet_run_has_no_warning(make_result: Make) -> None:
    assert codes(ran(make_result, limits=(MEMORY,))) == []
    assert find_warnings(ran(make_result)) == ()
    assert find_warnings(ran(make_result, limits=(MEMORY,), summary=None)) == ()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"swap_in_pages": 11}, "host_swapped"),
        ({"swap_out_pages": 11}, "host_swapped"),
        ({"oom_kills": 5}, "host_out_of_memory"),
        ({"thermal_throttles": 8}, "thermal_throttled"),
        ({"steal_usec": 401_000, "idle_usec": 29_599_000}, "steal"),
        ({"idle_usec": 25_900_000}, "other_load"),
    ],
)
def test_trouble_on_the_host_is_told(make_result: Make, changes: dict[str, int], code: str) -> None:
    assert codes(ran(make_result), after(**changes)) == [code]


@pytest.mark.parametrize(
    "changes",
    [
        {"steal_usec": 400_000},  # one percent, not more
        {"idle_usec": 26_100_000},  # less than a tenth of the host
        {"oom_kills": None, "swap_in_pages": None, "thermal_throttles": None},  # not told
        {"idle_usec": None},
        {"total_usec": None},
        {"swap_in_pages": 3, "oom_kills": 1},  # counters that started anew
        {"time_ns": SEC // 20, "idle_usec": 0},  # too short for the machine's own counters
    ],
)
def test_little_or_unknown_trouble_is_not_told(make_result: Make, changes: dict[str, Any]) -> None:
    assert codes(ran(make_result), after(**changes)) == []


def test_the_runs_own_oom_kills_are_not_the_hosts(make_result: Make) -> None:
    result = ran(make_result, totals=Totals(cpu_usage_usec=10_000_000, oom_kills=3))
    assert codes(result, after(oom_kills=7)) == []
    assert codes(result, after(oom_kills=8)) == ["host_out_of_memory"]


def test_our_own_measuring_is_not_other_load(make_result: Make) -> None:
    overhead = Overhead(cpu_usec=5_000_000, ticks=1_000, missed_ticks=0, max_late_ns=0)
    assert codes(ran(make_result, overhead=overhead), after(idle_usec=25_000_000)) == []


@pytest.mark.parametrize(
    ("report", "code"),
    [
        (
            limit("cpus", "0.5", state=LimitState.UNAVAILABLE, reason="no cgroup"),
            "limit_unavailable",
        ),
        (
            limit("memory", "1 GiB", state=LimitState.APPROXIMATED, reason="per process"),
            "limit_approximated",
        ),
        (limit("memory", "1 GiB", effective="512 MiB"), "limit_tightened"),
    ],
)
def test_a_limit_that_is_not_held_as_asked_is_told(
    make_result: Make, report: LimitReport, code: str
) -> None:
    assert codes(ran(make_result, limits=(report,))) == [code]
    text = find_warnings(ran(make_result, limits=(report,)))[0].text
    assert report.asked in text
    assert (report.reason or report.effective or "") in text


def test_a_default_limit_that_cannot_be_had_is_no_warning(make_result: Make) -> None:
    report = limit("pids", "4096", state=LimitState.UNAVAILABLE, by_default=True, reason="x")
    assert codes(ran(make_result, limits=(report,))) == []


def test_refused_forks_are_told_with_the_limit(make_result: Make) -> None:
    totals = Totals(cpu_usage_usec=10_000_000, pids_refused=148)
    result = ran(make_result, totals=totals, limits=(limit("pids", "64", value="64"),))
    (warning,) = find_warnings(result)
    assert warning.code == "pids_refused"
    assert "148" in warning.text
    assert "64" in warning.text


@pytest.mark.parametrize(
    ("need", "peak", "outcome", "expected"),
    [
        (500, 512, Outcome.EXITED, ["memory_near_limit"]),
        (200, 512, Outcome.EXITED, ["peak_is_cache"]),
        (200, 500, Outcome.EXITED, []),
        (None, 512, Outcome.EXITED, []),
        (500, 512, Outcome.OOM_KILLED, []),  # the verdict says it already
    ],
)
def test_a_need_near_the_limit_is_told_apart_from_page_cache(
    make_result: Make, need: int | None, peak: int, outcome: Outcome, expected: list[str]
) -> None:
    result = ran(
        make_result,
        outcome=outcome,
        limits=(MEMORY,),
        totals=Totals(cpu_usage_usec=10_000_000, memory_peak_bytes=peak * MIB),
        summary=Summary(
            memory_need_bytes=None if need is None else need * MIB, memory_cache_bytes=300 * MIB
        ),
    )
    assert codes(result) == expected


@pytest.mark.parametrize(
    ("cpus", "tasks", "throttled_sec", "expected"),
    [
        ("0.5", 4, 5.0, []),  # one busy thread and three idle ones: the limit at work
        ("0.5", 4, 15.0, ["oversubscribed"]),
        ("1.5", 2, 15.0, []),  # as many threads as the limit can serve
        ("1.5", 3, 15.0, ["oversubscribed"]),
        (None, 30, 15.0, []),
    ],
)
def test_more_busy_threads_than_the_quota_are_told(
    make_result: Make,
    cpus: str | None,
    tasks: int,
    throttled_sec: float,
    expected: list[str],
) -> None:
    result = ran(
        make_result,
        limits=() if cpus is None else (limit("cpus", cpus),),
        totals=Totals(
            cpu_usage_usec=10_000_000,
            pids_peak=tasks,
            cpu_throttled_usec=round(throttled_sec * 1e6),
        ),
        summary=Summary(throttled_ratio=0.98),
    )
    assert codes(result) == expected


@pytest.mark.parametrize(
    ("ticks", "missed", "expected"),
    [(1_000, 10, []), (1_000, 11, ["missed_ticks"]), (20, 2, []), (20, 3, ["missed_ticks"])],
)
def test_missed_samples_are_told_beyond_one_percent_and_beyond_a_few(
    make_result: Make, ticks: int, missed: int, expected: list[str]
) -> None:
    overhead = Overhead(cpu_usec=0, ticks=ticks, missed_ticks=missed, max_late_ns=0)
    assert codes(ran(make_result, overhead=overhead)) == expected


@pytest.mark.parametrize(
    ("counted_usec", "user_usec", "expected"),
    [
        (10_000_000, 10_600_000, ["moved_away"]),
        (10_000_000, 10_500_000, []),  # within 5 %
        (10_000, 29_000, []),  # within two ticks
        (0, 10_000_000, ["moved_away"]),
        (10_000_000, 2_000_000, []),  # others of the group used more: no matter
    ],
)
def test_cpu_time_outside_of_the_group_means_that_something_moved_us(
    make_result: Make, counted_usec: int, user_usec: int, expected: list[str]
) -> None:
    exit_status = ExitStatus(status=0, cpu_user_usec=user_usec, cpu_system_usec=0)
    result = ran(make_result, totals=Totals(cpu_usage_usec=counted_usec))
    found = find_warnings(result, observed=Observed(exit=exit_status, ended_ns=0))
    assert [warning.code for warning in found] == expected


def test_an_unknown_rusage_is_no_sign_of_anything(make_result: Make) -> None:
    observed = Observed(exit=ExitStatus(status=0), ended_ns=0)
    assert find_warnings(ran(make_result), observed=observed) == ()


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("8:0 sda", "253:0 dm-0"), ["stacked_devices"]),
        (("253:0 dm-0",), []),
        (("8:0 sda", "8:16 sdb"), []),
        (("8:0",), []),
    ],
)
def test_devices_on_devices_are_told(
    make_result: Make, names: tuple[str, ...], expected: list[str]
) -> None:
    io = tuple(
        DeviceIo(device=name, read_bytes=1, write_bytes=0, read_ops=1, write_ops=0)
        for name in names
    )
    result = ran(make_result, totals=Totals(cpu_usage_usec=10_000_000, io=io))
    assert codes(result) == expected


numbers = st.one_of(st.none(), st.integers(0, 1 << 60))


@given(st.lists(numbers, min_size=14, max_size=14), st.integers(0, 1 << 60))
def test_no_reading_of_the_host_can_break_it(
    make_result: Make, values: list[int | None], time_ns: int
) -> None:
    names = [name for name in HostLoad.__dataclass_fields__ if name != "time_ns"]
    one = HostLoad(time_ns=0, **dict(zip(names, values, strict=False)))  # type: ignore[arg-type]
    other = HostLoad(time_ns=time_ns, **dict(zip(names, values[7:], strict=False)))  # type: ignore[arg-type]
    for warning in find_warnings(ran(make_result), one, other):
        assert "None" not in warning.text
        assert "-" not in warning.text.split()  # no negative figures


@pytest.mark.parametrize(
    ("name", "check"),
    [("cpus", "cpu"), ("cpuset_cpus", "cpuset"), ("memory_swap", "swap-limit"), ("pids", "pids")],
)
def test_a_limit_that_is_not_held_points_to_the_check_that_matters(
    make_result: Make, name: str, check: str
) -> None:
    report = limit(name, "1", state=LimitState.UNAVAILABLE, reason="why")

    hints = [warning.hint or "" for warning in find_warnings(ran(make_result, limits=(report,)))]

    assert any(f"`sandbox doctor {check}`" in hint for hint in hints)
