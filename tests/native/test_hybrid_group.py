"""A run's groups on this kernel's v1 and v2 hierarchies, with real processes inside."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.errors import KernelError
from sandbox.kernel.files import make_directory, read_text, write_text
from sandbox.kernel.hybrid import HybridGroup
from sandbox.kernel.place import Place, find_place
from sandbox.kernel.roots import Roots
from sandbox.records.host import Mode
from sandbox.records.limits import LimitReport, LimitState
from sandbox.records.sample import ABSENT, COLUMNS
from sandbox.spec import Limits
from sandbox.units import UNLIMITED

MIB = 1 << 20
PYTHON = [os.path.realpath(sys.executable), "-I", "-S", "-c"]
KILLED = -signal.SIGKILL

Load = Callable[..., list[str]]
NewGroup = Callable[..., HybridGroup]


@pytest.fixture
def place(need_kernel: Callable[[object, str], None]) -> Place:
    found = find_place(Roots())
    need_kernel(found.mode is Mode.HYBRID, f"this is no hybrid host: {found.reason}")
    return found


@pytest.fixture
def new_group(place: Place) -> Iterator[NewGroup]:
    """`new_group(memory_bytes=…)` makes a run's groups with limits; all are removed afterwards."""
    groups: list[HybridGroup] = []

    def make(where: Place = place, **limits: object) -> HybridGroup:
        group = HybridGroup(where, f"test-{uuid.uuid4().hex[:8]}", Roots())
        group.create()
        groups.append(group)
        reports = group.apply(Limits(**limits).with_defaults())  # type: ignore[arg-type]
        assert [r for r in reports if r.state is not LimitState.ENFORCED] == []
        return group

    yield make
    for group in reversed(groups):
        group.kill()
        group.remove()
        group.close()


class Child:
    """A child that joins like a real one, then waits to become `command`."""

    def __init__(self, group: HybridGroup, command: list[str]) -> None:
        ready, self._go = os.pipe(), os.pipe()
        self.output, out = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                for entrance in group.entrances():
                    write_text(entrance, "0")
                os.write(ready[1], b"r")
                os.read(self._go[0], 1)
                os.dup2(out, 1)
                os.execv(command[0], command)
            finally:
                os._exit(99)
        os.close(out)
        os.close(ready[1])
        joined = os.read(ready[0], 1)
        os.close(ready[0])
        assert joined == b"r", "the child could not join"

    def go(self) -> None:
        os.write(self._go[1], b"g")

    def line(self) -> str:
        """Return what the program prints first."""
        wait_for(self.output, select.POLLIN | select.POLLHUP)
        return os.read(self.output, 4096).decode()

    def wait(self) -> int:
        """Return the exit status; negative for a signal."""
        pidfd = os.pidfd_open(self.pid)
        try:
            wait_for(pidfd, select.POLLIN)
        finally:
            os.close(pidfd)
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        for descriptor in (self.output, *self._go):
            os.close(descriptor)
        return status


def wait_for(descriptor: int, mask: int, seconds: float = 20) -> bool:
    poll = select.poll()
    poll.register(descriptor, mask)
    ready = bool(poll.poll(seconds * 1_000))
    assert ready, "waited in vain"
    return ready


def is_ready(descriptor: int, mask: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, mask)
    return bool(poll.poll(0))


def start(group: HybridGroup, command: list[str]) -> Child:
    """Let a command run in the group; totals count from its exec."""
    child = Child(group, command)
    group.start()
    child.go()
    return child


def run(group: HybridGroup, command: list[str]) -> int:
    return start(group, command).wait()


def v1_file(group: HybridGroup, controller: str, name: str) -> Path:
    top = next(d for d in group.directories if d.is_relative_to(f"/sys/fs/cgroup/{controller}"))
    return top / name


def report_of(group: HybridGroup, name: str, **limits: object) -> LimitReport:
    reports = group.apply(Limits(**limits))  # type: ignore[arg-type]
    return next(report for report in reports if report.name == name)


# --- limits


def test_every_limit_is_in_its_file_and_in_the_report(new_group: NewGroup) -> None:
    group = new_group()

    reports = group.apply(
        Limits(
            cpus=0.5,
            cpuset_cpus=(0,),
            cpu_shares=512,
            memory_bytes=64 * MIB,
            memory_swap_bytes=96 * MIB,
            memory_reservation_bytes=32 * MIB,
            pids=77,
        )
    )

    assert [(r.name, r.state, r.value, r.effective) for r in reports] == [
        (name, LimitState.ENFORCED, value, None)
        for name, value in (
            ("cpuset_cpus", "0"),
            ("cpus", "50000 100000"),
            ("cpu_shares", "512"),
            ("memory", str(64 * MIB)),
            ("memory_swap", str(96 * MIB)),
            ("memory_reservation", str(32 * MIB)),
            ("pids", "77"),
        )
    ]
    for controller, name, text in (
        ("cpu", "cpu.cfs_quota_us", "50000"),
        ("cpu", "cpu.cfs_period_us", "100000"),
        ("cpu", "cpu.shares", "512"),
        ("cpuset", "cpuset.cpus", "0"),
        ("cpuset", "main/cpuset.cpus", "0"),
        ("memory", "memory.limit_in_bytes", str(64 * MIB)),
        ("memory", "memory.memsw.limit_in_bytes", str(96 * MIB)),
        ("memory", "memory.soft_limit_in_bytes", str(32 * MIB)),
        ("pids", "pids.max", "77"),
    ):
        assert read_text(v1_file(group, controller, name)).strip() == text, name


def test_a_high_mark_is_unavailable_and_says_why(new_group: NewGroup) -> None:
    report = report_of(new_group(), "memory_high", memory_high_bytes=32 * MIB)

    assert report.state is LimitState.UNAVAILABLE
    assert "v1" in (report.reason or "")


def test_memory_limits_can_be_raised_and_lowered_on_a_live_group(new_group: NewGroup) -> None:
    group = new_group(memory_bytes=64 * MIB)
    child = start(group, [*PYTHON, "import time; time.sleep(30)"])

    for mebibytes in (256, 32, 128):
        reports = group.apply(Limits(memory_bytes=mebibytes * MIB).with_defaults())
        values = {r.name: r.value for r in reports if r.state is LimitState.ENFORCED}
        assert values["memory"] == values["memory_swap"] == str(mebibytes * MIB)
    unlimited = report_of(group, "memory", memory_bytes=UNLIMITED)
    group.kill()

    assert (unlimited.state, unlimited.value) == (LimitState.ENFORCED, "max")
    assert child.wait() == KILLED


def test_a_memory_limit_below_what_is_in_use_is_refused_in_words(
    new_group: NewGroup, load: Load
) -> None:
    group = new_group(memory_bytes=128 * MIB)
    child = start(group, load("touch", 64, 30))
    assert child.line() == "touched\n"

    report = report_of(group, "memory", memory_bytes=16 * MIB)
    group.kill()
    child.wait()

    assert report.state is LimitState.UNAVAILABLE
    assert "in use" in (report.reason or "")


def test_a_size_between_two_pages_is_rounded_down_and_still_enforced(new_group: NewGroup) -> None:
    report = report_of(new_group(), "memory", memory_bytes=64 * MIB + 1)

    assert (report.state, report.value) == (LimitState.ENFORCED, str(64 * MIB))


def test_a_cpu_quota_throttles_and_the_share_is_counted(new_group: NewGroup, load: Load) -> None:
    group = new_group(cpus=0.2)

    started = time.monotonic()
    assert run(group, load("burn", 0.3)) == 0
    wall = time.monotonic() - started
    totals = group.totals()

    assert totals.cpu_usage_usec is not None
    assert totals.cpu_usage_usec / 1e6 / wall == pytest.approx(0.2, abs=0.05)
    assert totals.cpu_throttled_periods is not None
    assert totals.cpu_periods is not None
    assert totals.cpu_throttled_periods >= 0.7 * totals.cpu_periods > 0
    assert (totals.cpu_throttled_usec or 0) > 0.5e6


def test_a_cpuset_binds_the_program_and_can_be_changed_while_it_runs(
    new_group: NewGroup, place: Place
) -> None:
    cpus = place.outer.cpuset_cpus or ()
    if len(cpus) < 2:
        pytest.skip("two CPUs are needed")
    group = new_group(cpuset_cpus=cpus[:1])
    child = start(group, [*PYTHON, "import time; print(1, flush=True); time.sleep(30)"])
    assert child.line() == "1\n"

    seen = [os.sched_getaffinity(child.pid)]
    for wanted in (cpus[1:2], cpus):  # to quite another CPU, then to more
        report = report_of(group, "cpuset_cpus", cpuset_cpus=wanted)
        assert report.state is LimitState.ENFORCED
        seen.append(os.sched_getaffinity(child.pid))
    group.kill()
    child.wait()

    assert seen == [set(cpus[:1]), set(cpus[1:2]), set(cpus)]


def test_the_process_limit_refuses_forks_and_both_are_counted(
    new_group: NewGroup, load: Load
) -> None:
    group = new_group(pids=8)

    child = start(group, load("fork_bomb", 20))
    assert child.line() == "allowed 7 refused 13\n"
    child.wait()
    totals = group.totals()

    assert (totals.pids_peak, totals.pids_refused) == (8, 13)


def test_limits_inside_another_run_are_cut_to_it(new_group: NewGroup, place: Place) -> None:
    outer = new_group(cpus=0.5, memory_bytes=64 * MIB, pids=20)
    program = f"""
import sys; sys.path[:] = {sys.path!r}
from sandbox.kernel.hybrid import HybridGroup
from sandbox.kernel.place import find_place
from sandbox.kernel.roots import Roots
from sandbox.spec import Limits
place = find_place(Roots())
group = HybridGroup(place, "inner", Roots())
group.create()
print(place.outer_run, *(str(directory) for directory in group.directories))
for r in group.apply(Limits(cpus=1, memory_bytes=256 << 20, pids=100).with_defaults()):
    print(r.name, r.state.value, r.effective, sep="|")
group.remove()
group.close()
"""

    child = start(outer, [*PYTHON, program])
    first, *lines = child.line().splitlines()
    name, *directories = first.split()

    assert child.wait() == 0
    assert name == outer.directories[0].name
    assert {Path(d).parent for d in directories[::2]} == set(outer.directories[::2])
    assert lines == [
        "cpus|enforced|0.5",
        "memory|enforced|64 MiB",
        "memory_swap|enforced|64 MiB",
        "pids|enforced|20",
    ]


# --- out of memory


def test_a_hog_is_killed_at_its_limit_and_the_alarm_rings(new_group: NewGroup, load: Load) -> None:
    group = new_group(memory_bytes=48 * MIB)
    alarm = group.oom_alarm()
    assert alarm is not None
    assert not is_ready(alarm.fd, alarm.mask)
    before = group.oom_kills(), group.oom_events()

    status = run(group, load("touch", 200))
    rang = is_ready(alarm.fd, alarm.mask)
    alarm.drain()
    totals = group.totals()

    assert before == (0, 0)
    assert status == KILLED
    assert rang
    assert not is_ready(alarm.fd, alarm.mask)
    assert (totals.oom_kills, totals.oom_events) == (1, 1)
    assert totals.memory_peak_bytes == 48 * MIB
    assert totals.memory_peak_source == "kernel"


def test_a_kill_that_the_parent_survives_is_still_counted(new_group: NewGroup, load: Load) -> None:
    group = new_group(memory_bytes=48 * MIB)
    hog = load("touch", 200)

    status = run(
        group,
        [*PYTHON, f"import os; os.spawnv(os.P_WAIT, {hog[0]!r}, {hog!r})"],
    )

    assert status == 0
    assert group.oom_kills() == 1


def test_an_enclosing_limit_counts_as_a_limit_and_a_limit_below_is_seen_too(
    new_group: NewGroup, place: Place, load: Load
) -> None:
    outer = new_group(memory_bytes=48 * MIB)
    tops = outer.directories[::2]
    v1 = {d.relative_to(place.v2.parent).parts[0]: d for d in tops[:-1]} if place.v2 else {}
    inner = new_group(replace(place, v2=tops[-1], v1=v1), memory_bytes=256 * MIB)

    assert run(inner, load("touch", 200)) == KILLED
    assert (inner.oom_kills(), inner.oom_events()) == (1, 1)
    assert (outer.oom_kills(), outer.oom_events()) == (1, 1)

    reports = outer.apply(Limits(memory_bytes=256 * MIB).with_defaults())
    reports += inner.apply(Limits(memory_bytes=48 * MIB).with_defaults())
    assert {r.state for r in reports} == {LimitState.ENFORCED}
    assert run(inner, load("touch", 200)) == KILLED
    assert (outer.oom_kills(), outer.oom_events()) == (2, 1)


def test_reclaim_at_the_limit_is_counted_or_said_to_be_unknown(
    new_group: NewGroup, tmp_path: Path
) -> None:
    fill = f"with open({str(tmp_path / 'big')!r}, 'wb') as f:\n"
    program = [*PYTHON, f"{fill}    for _ in range(80): f.write(bytes(1 << 20))"]

    with_swap = new_group(memory_bytes=24 * MIB, memory_swap_bytes=48 * MIB)
    assert run(with_swap, program) == 0
    without_swap = new_group(memory_bytes=24 * MIB)
    assert run(without_swap, program) == 0
    hits = without_swap.totals().limit_hits
    far_from_it = new_group(memory_bytes=512 * MIB)
    assert run(far_from_it, [*PYTHON, "pass"]) == 0

    assert (with_swap.totals().limit_hits or 0) > 0
    assert with_swap.totals().oom_kills == 0
    if hits is None:
        assert "does not count" in without_swap.unavailable["limit_hits"]
    else:
        assert hits > 0
    assert far_from_it.totals().limit_hits == 0


# --- counters


def test_cpu_time_is_exact_beyond_an_idle_start(new_group: NewGroup, load: Load) -> None:
    used = []
    for seconds in (0, 0, 0.5):  # the first start reads files
        group = new_group()
        assert run(group, load("burn", seconds)) == 0
        totals = group.totals()
        assert totals.cpu_usage_usec is not None
        assert totals.cpu_user_usec is not None
        assert totals.cpu_system_usec is not None
        modes = totals.cpu_user_usec + totals.cpu_system_usec
        assert modes == pytest.approx(totals.cpu_usage_usec, abs=2)
        used.append(totals.cpu_usage_usec)

    assert used[2] - used[1] == pytest.approx(500_000, abs=10_000)


def test_the_memory_peak_is_exact_beyond_an_idle_start(new_group: NewGroup, load: Load) -> None:
    peaks = []
    for mebibytes in (0, 0, 64):
        group = new_group()
        assert run(group, load("touch", mebibytes, 0)) == 0
        peaks.append(group.totals().memory_peak_bytes or 0)

    assert peaks[2] - peaks[1] == pytest.approx(64 * MIB, abs=0.01 * 64 * MIB + MIB)


def test_the_reader_sees_the_program_from_the_baseline_on(new_group: NewGroup, load: Load) -> None:
    group = new_group(cpus=1)
    child = Child(group, load("touch", 32, 30))
    group.start()
    reader = group.open_reader()
    at_start = dict(zip(reader.fast_columns, reader.read_fast(), strict=True))
    child.go()
    assert child.line() == "touched\n"

    fast = dict(zip(reader.fast_columns, reader.read_fast(), strict=True))
    slow = dict(zip(reader.slow_columns, reader.read_slow(), strict=True))
    group.kill()
    child.wait()
    group.remove()
    gone = reader.read_fast(), reader.read_slow()
    reader.close()

    assert at_start["cpu_usage_usec"] < 2_000
    assert at_start["pids"] == fast["pids"] == slow["processes"] == 1
    assert fast["cpu_usage_usec"] > 5_000
    assert fast["memory_current_bytes"] > 32 * MIB
    assert 32 * MIB <= slow["memory_anon_bytes"] < 40 * MIB
    assert 0 < slow["memory_kernel_bytes"] < 4 * MIB
    assert slow["cpu_user_usec"] + slow["cpu_system_usec"] >= fast["cpu_usage_usec"] - 5_000
    assert slow["cpu_periods"] >= 0
    columns = {name for name in COLUMNS if not name.startswith("net_")}  # no group counts these
    assert columns - {"time_ns"} == {*fast, *slow} | (group.unavailable.keys() & COLUMNS.keys())
    assert set(gone[0] + gone[1]) == {ABSENT}


def test_shared_memory_is_told_apart_from_page_cache(new_group: NewGroup) -> None:
    group = new_group()
    program = "import mmap, time\nm = mmap.mmap(-1, 16 << 20)\nm.write(bytes(16 << 20))\n"
    child = start(group, [*PYTHON, f"{program}print(1, flush=True)\ntime.sleep(30)"])
    assert child.line() == "1\n"

    reader = group.open_reader()
    slow = dict(zip(reader.slow_columns, reader.read_slow(), strict=True))
    reader.close()
    group.kill()
    child.wait()

    assert slow["memory_shmem_bytes"] == 16 * MIB
    assert slow["memory_file_bytes"] >= slow["memory_shmem_bytes"]


def test_direct_writes_are_counted_to_the_byte_on_their_device(
    new_group: NewGroup, load: Load, tmp_path: Path
) -> None:
    group = new_group()
    child = Child(group, load("direct_write", tmp_path / "block", 4096))
    group.start()
    reader = group.open_reader()
    child.go()
    status = child.wait()
    sampled = dict(zip(reader.fast_columns, reader.read_fast(), strict=True))
    reader.close()
    totals = group.totals()
    if totals.io is None or _is_in_memory(tmp_path):
        pytest.skip(group.unavailable.get("io", "the test's files are on no disk"))

    assert status == 0
    written = sum(disk.write_bytes for disk in totals.io)
    # The file system may write its own blocks for the new file on top.
    assert 4 * MIB <= written <= 4 * MIB + 256 * 1024
    assert sampled["io_write_bytes"] == written
    assert sampled["io_write_ops"] == sum(disk.write_ops for disk in totals.io) >= 64
    names = [disk.device.partition(" ")[2] for disk in totals.io]
    assert all((Path("/sys/block") / name).exists() for name in names)


def _is_in_memory(path: Path) -> bool:
    number = path.stat().st_dev
    return not Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").exists()


def test_stalls_count_from_the_baseline(new_group: NewGroup, load: Load) -> None:
    group = new_group(cpus=0.2)
    run(group, load("burn", 0.1))
    pressure = group.totals().cpu_pressure
    if pressure is None:
        pytest.skip(group.unavailable["cpu_pressure"])

    assert pressure.some_usec > 100_000
    group.start()
    again = group.totals().cpu_pressure
    assert again is not None
    assert again.some_usec == 0


# --- ends


def test_a_daemon_is_listed_killed_and_gone(new_group: NewGroup, load: Load) -> None:
    group = new_group()
    child = start(group, load("daemonize", 60))
    daemon = int(child.line())
    assert child.wait() == 0

    assert group.is_populated()
    assert group.pids() == (daemon,)
    group.kill()
    assert not group.is_populated()
    assert group.pids() == ()


def test_the_alarm_of_the_last_exit_fires(new_group: NewGroup) -> None:
    group = new_group()
    child = start(group, [*PYTHON, "import time; time.sleep(60)"])
    alarm = group.empty_alarm()
    assert alarm is not None
    quiet = not is_ready(alarm.fd, alarm.mask)

    assert group.signal(signal.SIGTERM) == 1
    wait_for(alarm.fd, alarm.mask)
    child.wait()

    assert quiet
    assert not group.is_populated()


def test_frozen_processes_stand_still_and_still_die(new_group: NewGroup, load: Load) -> None:
    group = new_group()
    child = start(group, load("burn", 60))
    group.freeze(frozen=True)
    before = group.totals().cpu_usage_usec
    time.sleep(0.05)
    after = group.totals().cpu_usage_usec

    started = time.monotonic()
    group.kill()

    assert time.monotonic() - started < 0.2
    assert child.wait() == KILLED
    assert before == after


def test_what_a_v1_freezer_holds_dies_as_well(new_group: NewGroup, place: Place) -> None:
    if "freezer" not in place.v1:
        pytest.skip("no v1 freezer here")
    group = new_group()
    child = start(group, [*PYTHON, "import time; print(1, flush=True); time.sleep(60)"])
    assert child.line() == "1\n"
    prison = place.v1["freezer"] / f"test-{uuid.uuid4().hex[:8]}"
    make_directory(prison)
    try:
        write_text(prison / "cgroup.procs", str(child.pid))
        write_text(prison / "freezer.state", "FROZEN")
        group.kill()
        assert child.wait() == KILLED
    finally:
        write_text(prison / "freezer.state", "THAWED")
        prison.rmdir()


def test_a_process_that_left_the_v2_group_is_listed_and_killed(
    new_group: NewGroup, place: Place
) -> None:
    group = new_group()
    leave = f"open('{place.v2}/cgroup.procs', 'w').write(str(os.getpid()))"
    child = start(
        group, [*PYTHON, f"import os, time; {leave}; print(1, flush=True); time.sleep(60)"]
    )
    assert child.line() == "1\n"
    assert not group.is_populated()

    assert group.pids() == (child.pid,)
    group.kill()
    assert child.wait() == KILLED
    assert group.pids() == ()


def test_a_fork_storm_dies(new_group: NewGroup) -> None:
    group = new_group(pids=64)
    storm = "import os, time\nfor _ in range(5):\n    try: os.fork()\n    except OSError: pass\n"
    child = start(group, [*PYTHON, f"{storm}while True:\n    os.fork() and os._exit(0)"])
    time.sleep(0.1)

    group.kill()

    child.wait()
    assert group.pids() == ()


def test_groups_that_the_program_made_and_closed_are_removed(new_group: NewGroup) -> None:
    group = new_group()
    inner = [directory for directory in group.directories if directory.name == "main"]
    make = (
        f"import os\nfor d in {[str(d) for d in inner]!r}:\n"
        "    os.makedirs(d + '/a/b')\n    os.chmod(d + '/a', 0)"
    )
    assert run(group, [*PYTHON, make]) == 0
    assert all((directory / "a").exists() for directory in inner)

    group.remove()

    assert [directory for directory in group.directories if directory.exists()] == []
    group.remove()  # again is harmless


def test_a_populated_group_is_not_removed_and_says_so(new_group: NewGroup) -> None:
    group = new_group()
    child = start(group, [*PYTHON, "import time; time.sleep(60)"])

    with pytest.raises(KernelError, match="EBUSY"):
        group.remove()
    group.kill()
    child.wait()


def test_what_was_made_is_undone_when_the_last_group_cannot_be(place: Place) -> None:
    group = HybridGroup(place, f"test-{uuid.uuid4().hex[:8]}", Roots())
    in_the_way = group.directories[-2]
    make_directory(in_the_way)
    try:
        with pytest.raises(KernelError, match="EEXIST"):
            group.create()
        left = [d for d in group.directories if d.exists()]
    finally:
        in_the_way.rmdir()
        group.close()

    assert left == [in_the_way]


def test_a_launched_child_is_born_or_joined_in_every_hierarchy(new_group: NewGroup) -> None:
    from sandbox.kernel.launch import ProcessLauncher
    from sandbox.records.program import Program

    group = new_group()
    program = Program(argv=("/bin/sleep", "30"), environment={})
    child = ProcessLauncher().start(program, group)
    try:
        text = Path(f"/proc/{child.pid}/cgroup").read_text()
    finally:
        child.abandon()

    here = {line.split(":")[1]: line.split(":", 2)[2] for line in text.splitlines()}
    run_name = group.directories[0].name
    for controller in ("", "cpu", "memory", "pids", "cpuset", "blkio"):
        assert here[controller].endswith(f"/{run_name}/main"), controller
