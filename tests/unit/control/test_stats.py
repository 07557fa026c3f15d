"""What is watched, which readings rates are taken from, and what has ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sandbox.control import stats
from sandbox.control.recorded import find_reading, reading_of
from sandbox.control.stats import Watch, WatchSpec
from sandbox.control.watched import About, RecordSource, Watched
from sandbox.errors import KernelError, StoreError
from sandbox.kernel.live_parts import HostCpu
from sandbox.kernel.roots import Roots
from sandbox.records.result import DeviceIo, Outcome, Pressure
from sandbox.records.sample import ABSENT, TIME
from sandbox.records.stats import State, StatsReading

SEC = 10**9
FIRST_ID, SECOND_ID = "aaaa00000001", "aaaa00000002"
PROC_STAT = "cpu  10 0 10 80 0 0 0 5 0 0\ncpu0 10 0 10 80 0 0 0 5 0 0\nctxt 1\n"


class FakeSource:
    """Plays readings back; then it has gone."""

    cgroup_version = 2
    unavailable: dict[str, str] = {}  # noqa: RUF012 - never written

    def __init__(self, times_ns: Sequence[int]) -> None:
        self._times_ns = iter(times_ns)
        self.limit_reads = 0
        self.is_closed = False

    def read(self) -> StatsReading:
        for time_ns in self._times_ns:
            return StatsReading(time_ns=time_ns, utc_ns=0, cpu_usage_ns=time_ns // 2)
        raise KernelError("it has gone")

    def read_limits(self) -> dict[str, int | None]:
        self.limit_reads += 1
        return {"pids_limit": self.limit_reads}

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def roots(host: Any) -> Roots:
    (host.roots.proc / "stat").write_text(PROC_STAT)
    (host.roots.proc / "meminfo").write_text("MemTotal: 1024 kB\n")
    found: Roots = host.roots
    return found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time, in a list of one."""
    now = [100 * SEC]
    monkeypatch.setattr(stats.time, "monotonic_ns", lambda: now[0])
    return now


@pytest.fixture
def watch(home: Path, roots: Roots) -> Iterator[Any]:
    opened = []

    def start(**spec: Any) -> Watch:
        opened.append(Watch(WatchSpec(**spec), home=home, roots=roots))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def watched(source: FakeSource, **options: Any) -> Watched:
    about = About(asked="a", id="a", name="a")
    return Watched(about, source, state=State.RUNNING, host_memory_bytes=1, **options)


# --- one row --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "before"),
    [
        ([0], None),
        ([0, 0.01], 0),
        ([0, 0.4, 0.8], 0),
        ([0, 0.4, 0.8, 1.2, 1.6], 0.4),
        ([0, 1.002, 2.001, 2.999], 2.001),
        ([0, 5, 10], 5),
    ],
    ids=["one", "two", "short", "sliding", "with jitter", "rare"],
)
def test_rates_are_taken_over_the_last_second(
    times: list[float], before: float | None, host: Any
) -> None:
    row = watched(FakeSource([round(time * SEC) for time in times]))

    for _ in times:
        row.refresh(host.roots)

    found = row.row()
    assert found.now is not None
    assert found.now.time_ns == round(times[-1] * SEC)
    assert (found.before and found.before.time_ns) == (
        None if before is None else round(before * SEC)
    )
    assert row.is_primed == (before is not None)


def test_of_a_thousand_readings_a_second_few_are_kept(host: Any) -> None:
    row = watched(FakeSource(range(0, 10 * SEC, SEC // 1000)))

    for _ in range(10_000):
        row.refresh(host.roots)

    assert len(row._recent) < 110
    found = row.row()
    assert found.now is not None
    assert found.before is not None
    assert 0.94 * SEC < found.now.time_ns - found.before.time_ns < 1.01 * SEC


def test_the_same_sample_again_is_no_second_reading(host: Any) -> None:
    row = watched(FakeSource([SEC, SEC, SEC]))

    for _ in range(3):
        row.refresh(host.roots)

    assert row.row().before is None


def test_limits_are_looked_at_once_a_second(host: Any) -> None:
    source = FakeSource(range(0, 3 * SEC, SEC // 10))
    row = watched(source)

    for _ in range(30):
        row.refresh(host.roots)

    assert source.limit_reads == 3
    assert row.row().pids_limit == 3


def test_what_has_gone_has_ended_and_holds_no_files(host: Any) -> None:
    source = FakeSource([0, SEC])
    row = watched(source)
    for _ in range(3):
        row.refresh(host.roots)

    found = row.row()

    assert (found.state, found.now, found.before) == (State.EXITED, None, None)
    assert source.is_closed
    assert not row.is_live
    row.refresh(host.roots)  # and stays so
    assert row.row().state is State.EXITED


# --- the record -----------------------------------------------------------------------------------


def record(run: Any, usage_usec: Sequence[int], start_ns: int) -> None:
    """Ten rows a second of a run without groups."""
    sink = run.open_sink(
        (TIME, "cpu_usage_usec", "memory_current_bytes", "pids", "io_read_bytes", "io_write_bytes"),
        (TIME, "processes"),
    )
    for number, usage in enumerate(usage_usec):
        sink.fast([start_ns + number * SEC // 10, usage, 1 << 20, 3, 7, 9])
        sink.slow([start_ns + number * SEC // 10, 2])


def test_the_sample_of_a_moment_is_found(make_run: Any) -> None:
    run = make_run(FIRST_ID, "a")
    record(run, range(0, 1_000, 10), 50 * SEC)

    later, at_start = find_reading(run.path, 53 * SEC + 1), find_reading(run.path, 0)

    assert later is not None
    assert (later.time_ns, later.cpu_usage_ns) == (53 * SEC, 300_000)
    assert (later.pids, later.processes, later.io) == (3, 2, None)
    assert at_start is not None
    assert at_start.time_ns == 50 * SEC
    assert find_reading(run.path.parent, 0) is None


def test_a_reading_has_what_the_run_had() -> None:
    row = {
        TIME: 5,
        "cpu_usage_usec": 7,
        "cpu_throttled_usec": 3,
        "memory_swap_bytes": ABSENT,
        "cpu_pressure_some_usec": 11,
        "cpu_pressure_full_usec": ABSENT,
        "io_read_bytes": 1,
        "io_write_bytes": 2,
    }

    found = reading_of(row, with_io=True)

    assert (found.cpu_usage_ns, found.cpu_throttled_ns) == (7_000, 3_000)
    assert (found.swap_bytes, found.memory_usage_bytes) == (None, None)
    assert found.cpu_pressure == Pressure(some_usec=11, full_usec=None)
    assert found.io == (
        DeviceIo(device="0:0 all devices", read_bytes=1, write_bytes=2, read_ops=0, write_ops=0),
    )
    assert reading_of({TIME: 5}, with_io=True).io is None


def test_a_sandbox_without_groups_is_read_from_its_record(
    make_run: Any, roots: Roots, clock: list[int]
) -> None:
    run = make_run(FIRST_ID, "a")
    record(run, range(0, 1_000, 10), 90 * SEC)
    host_cpu = HostCpu(roots.proc)
    source = RecordSource(run.path, host_cpu)

    found = source.read()

    host_cpu.close()
    assert found.time_ns >= 98 * SEC  # the last block is still in memory
    assert (found.memory_usage_bytes, found.cpus_online) == (1 << 20, 1)
    run.close()
    with pytest.raises(StoreError, match="has ended"):
        source.read()


# --- all rows -------------------------------------------------------------------------------------


def test_the_first_row_has_rates_already(
    host: Any, make_run: Any, watch: Any, clock: list[int]
) -> None:
    group = host.group(f"run-{FIRST_ID}", pids="7\n")
    (group / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 0\nsystem_usec 0\n")
    (group / "io.stat").write_text("8:0 rbytes=17 wbytes=9 rios=3 wios=4\n")
    run = make_run(FIRST_ID, "a", (group,))
    record(run, range(0, 2_000_000, 40_000), 95 * SEC)  # 0.4 CPUs

    (row,) = watch().read()

    assert (row.name, row.now.cpu_usage_ns) == ("a", 2_500_000_000)
    assert row.before is not None
    assert row.before.time_ns == 99 * SEC
    assert row.before.cpu_usage_ns == 1_600_000_000
    assert [(disk.device, disk.read_bytes) for disk in row.before.io] == [("8:0", 7)]
    passed = row.now.host_cpu_ns - row.before.host_cpu_ns
    assert passed == row.now.time_ns - row.before.time_ns


def test_who_starts_later_appears_first_and_who_ends_goes(
    host: Any, make_run: Any, watch: Any, clock: list[int]
) -> None:
    def start(run_id: str) -> Any:
        group = host.group(f"run-{run_id}", pids="7\n")
        run = make_run(run_id, run_id[-1], (group,))
        record(run, [0, 1], clock[0])
        return run

    first = start(FIRST_ID)
    found = watch()
    assert [row.id for row in found.read()] == [FIRST_ID]
    start(SECOND_ID)
    clock[0] += SEC
    assert [row.id for row in found.read()] == [SECOND_ID, FIRST_ID]
    assert not found.is_over
    first.close()


def test_a_run_that_is_just_starting_is_a_row_without_figures(
    host: Any, make_run: Any, watch: Any, clock: list[int]
) -> None:
    run = make_run(FIRST_ID, "early", written=False)
    found = watch()

    (row,) = found.read()

    assert (row.state, row.now) == (State.CREATED, None)
    assert not found.is_over
    run.close()
    clock[0] += SEC
    assert found.read() == []
    assert found.is_over


def test_one_that_has_ended_is_zeros_if_it_is_asked_for(make_run: Any, watch: Any) -> None:
    make_run(FIRST_ID, "over", outcome=Outcome.EXITED, exit_code=0).close()
    make_run(SECOND_ID, "lost").close()

    found = watch(names=["over", "lost"])

    assert [(row.asked, row.state, row.now) for row in found.read()] == [
        ("over", State.EXITED, None),
        ("lost", State.DEAD, None),
    ]
    assert found.is_over
    assert [row.id for row in watch(with_ended=True).read()] != []
    assert watch().read() == []


def test_what_does_not_exist_is_refused(watch: Any) -> None:
    with pytest.raises(StoreError, match="no such running sandbox: nobody"):
        watch(names=["nobody"])
    with pytest.raises(KernelError, match="there is no cgroup"):
        watch(cgroups=["nix"])


def test_any_group_is_a_row_of_its_own(host: Any, watch: Any) -> None:
    group = host.group("system.slice/ssh.service", pids="7\n")
    (group / "memory.current").write_text("4096\n")

    (row,) = watch(cgroups=["system.slice/ssh.service"]).read()

    assert (row.name, row.cgroup) == ("ssh.service", str(group))
    assert row.now.memory_usage_bytes == 4096
    assert row.host_memory_bytes == 1 << 20
