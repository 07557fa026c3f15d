"""A recorded run played again, by a clock of the test's own."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.analysis.live import live_usage
from sandbox.control.replay import Replay
from sandbox.errors import StoreError
from sandbox.records.limits import LimitReport, LimitState
from sandbox.records.result import RunResult
from sandbox.records.sample import Block, Table
from sandbox.records.stats import State
from sandbox.report.stats import docker_memory

SECOND = 1_000_000_000
MIB = 1 << 20
START = 50 * SECOND


class FakeRun:
    """Ten seconds: half a CPU, a mebibyte more every second; two blocks of either table."""

    directory = Path("/nowhere")
    is_live = False

    def __init__(self, result: RunResult, *, empty: bool = False) -> None:
        self.result = result
        self._empty = empty

    def blocks(self) -> Iterator[Block]:
        if self._empty:
            return
        fast = ("time_ns", "cpu_usage_usec", "memory_current_bytes", "pids")
        for part in (range(6), range(6, 11)):
            times = array("q", [START + second * SECOND for second in part])
            cpu = array("q", [second * 500_000 for second in part])
            memory = array("q", [(second + 2) * MIB for second in part])
            yield Block(Table.FAST, fast, (times, cpu, memory, array("q", [3] * len(part))))
            yield Block(
                Table.SLOW,
                ("time_ns", "memory_inactive_file_bytes"),
                (times, array("q", [MIB] * len(part))),
            )


class Clock:
    def __init__(self) -> None:
        self.now_ns = 7

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make_result() -> RunResult:
    from sandbox.records.host import Host, Mode
    from sandbox.records.result import Outcome

    host = Host(
        mode=Mode.UNIFIED,
        mode_reason="a test",
        cpus_online=(0, 1),
        cpus_allowed=(0, 1),
        memory_total_bytes=8 << 30,
        swap_total_bytes=0,
        kernel="6",
        machine="m",
    )
    limit = LimitReport(name="cpus", asked="1.5", state=LimitState.ENFORCED, value="150000 100000")
    return RunResult(
        run_id="aaaa00000001",
        name="played",
        command=("true",),
        spec={},
        host=host,
        limits=(limit,),
        outcome=Outcome.EXITED,
        exit_code=0,
        started_utc_ns=1,
        started_ns=START,
    )


@pytest.fixture
def replay(clock: Clock) -> Replay:
    run: Any = FakeRun(make_result())
    return Replay(run, clock)


def test_it_goes_on_with_the_clock_and_ends_at_its_end(replay: Replay, clock: Clock) -> None:
    (begin,) = replay.read()
    assert (begin.name, begin.state, live_usage(begin)) == ("played", State.RUNNING, None)

    clock.now_ns += 4 * SECOND
    (row,) = replay.read()
    usage = live_usage(row)
    assert usage is not None
    assert usage.cpu_percent == 50.0
    assert usage.cpu_of_limit_percent == pytest.approx(100 / 3)
    assert docker_memory(row) == (5 * MIB, 8 << 30)
    assert row.now is not None
    assert row.now.pids == 3

    clock.now_ns += 60 * SECOND
    (row,) = replay.read()
    assert row.state is State.EXITED
    assert docker_memory(row) == (11 * MIB, 8 << 30)


def test_keys_hold_move_and_change_the_speed(replay: Replay, clock: Clock) -> None:
    assert replay.press("+") == "0.0 of 10.0 s, speed 2"
    clock.now_ns += SECOND
    assert replay.press(" ") == "2.0 of 10.0 s, held"
    clock.now_ns += SECOND
    assert replay.press("right") == "7.0 of 10.0 s, held"
    assert replay.press("right") == "10.0 of 10.0 s, held"
    assert replay.press("left") == "5.0 of 10.0 s, held"
    assert replay.press(" ") == "5.0 of 10.0 s, speed 2"
    for _ in range(20):
        replay.press("-")
    assert replay.press("-") == "5.0 of 10.0 s, speed 0.015625"
    assert replay.press("k") is None


def test_a_run_without_samples_cannot_be_played(clock: Clock) -> None:
    run: Any = FakeRun(make_result(), empty=True)

    with pytest.raises(StoreError, match="the run played has no samples to play"):
        Replay(run, clock)
