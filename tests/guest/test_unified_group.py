"""A run's group on a real unified hierarchy with all its controllers."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.errors import KernelError
from sandbox.kernel.host import read_host
from sandbox.kernel.place import find_place
from sandbox.kernel.roots import Roots
from sandbox.kernel.unified import UnifiedGroup
from sandbox.kernel.v2 import read_controllers
from sandbox.records.host import Mode
from sandbox.records.limits import LimitReport, LimitState
from sandbox.records.sample import ABSENT, COLUMNS
from sandbox.spec import Limits
from sandbox.units import UNLIMITED

ROOTS = Roots()
MIB = 1 << 20
STARTED: list[subprocess.Popen[bytes]] = []

pytestmark = [
    pytest.mark.guest,
    pytest.mark.skipif(
        "memory" not in read_controllers(ROOTS.cgroup), reason="no unified memory controller here"
    ),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]


@pytest.fixture
def group() -> Iterator[UnifiedGroup]:
    place = find_place(ROOTS)
    assert place.mode is Mode.UNIFIED
    group = UnifiedGroup(place, f"test-{os.getpid()}-{time.monotonic_ns()}", ROOTS)
    group.create()
    yield group
    group.kill()
    group.remove()
    group.close()
    while STARTED:
        STARTED.pop().wait(10)
    assert not group.directories[0].exists()


def spawn(group: UnifiedGroup, *argv: str) -> subprocess.Popen[bytes]:
    """Start a program that joins the group before its exec."""
    joins = " && ".join(f"echo 0 >'{entrance}'" for entrance in group.entrances())
    process = subprocess.Popen(["/bin/sh", "-c", f'{joins} && exec "$@"', "sh", *argv])
    STARTED.append(process)
    return process


def python(group: UnifiedGroup, code: str) -> subprocess.Popen[bytes]:
    return spawn(group, sys.executable, "-I", "-S", "-c", code)


def wait_until(condition: object, seconds: float = 30) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def by_name(reports: tuple[LimitReport, ...]) -> dict[str, LimitReport]:
    return {report.name: report for report in reports}


def fast(group: UnifiedGroup) -> dict[str, int]:
    reader = group.open_reader()
    row = dict(zip(reader.fast_columns, reader.read_fast(), strict=True))
    reader.close()
    return row


def test_the_place_gives_every_controller() -> None:
    place = find_place(ROOTS)

    assert place.controllers == ("cpu", "memory", "pids", "io", "cpuset")
    assert read_host(ROOTS, place).mode is Mode.UNIFIED


def test_every_limit_is_in_its_file_and_reported(group: UnifiedGroup) -> None:
    limits = Limits(
        cpus=0.5,
        cpuset_cpus=(1,),
        cpu_shares=2048,
        memory_bytes=512 * MIB,
        memory_reservation_bytes=128 * MIB,
        memory_high_bytes=256 * MIB,
        pids=77,
    ).with_defaults()

    reports = by_name(group.apply(limits))

    run = group.directories[0]
    assert {name: (run / name).read_text().strip() for name in (
        "cpu.max", "cpu.weight", "cpuset.cpus", "memory.max", "memory.swap.max", "memory.low",
        "memory.high", "pids.max", "memory.oom.group",
    )} == {
        "cpu.max": "50000 100000",
        "cpu.weight": "174",
        "cpuset.cpus": "1",
        "memory.max": str(512 * MIB),
        "memory.swap.max": "0",
        "memory.low": str(128 * MIB),
        "memory.high": str(256 * MIB),
        "pids.max": "77",
        "memory.oom.group": "1",
    }  # fmt: skip
    assert {report.state for report in reports.values()} == {LimitState.ENFORCED}
    assert reports["cpus"].value == "50000 100000"
    assert reports["memory"].asked == "512 MiB"
    assert reports["memory"].effective is None


def test_a_limit_is_changed_on_a_live_group(group: UnifiedGroup) -> None:
    group.apply(Limits(memory_bytes=64 * MIB, pids=10).with_defaults())
    spawn(group, "sleep", "60")
    wait_until(group.is_populated)

    group.apply(Limits(memory_bytes=UNLIMITED, pids=UNLIMITED))

    assert (group.directories[0] / "memory.max").read_text() == "max\n"
    assert (group.directories[0] / "pids.max").read_text() == "max\n"


def test_a_limit_is_rounded_to_pages_and_still_enforced(group: UnifiedGroup) -> None:
    (report,) = group.apply(Limits(memory_bytes=64 * MIB + 1))

    assert report.state is LimitState.ENFORCED
    assert report.value == str(64 * MIB)


def test_half_a_cpu_is_half_a_cpu_and_throttling_is_counted(group: UnifiedGroup) -> None:
    group.apply(Limits(cpus=0.5).with_defaults())
    group.start()
    python(group, "while True: pass")
    wait_until(lambda: fast(group)["cpu_usage_usec"] > 200_000)
    before, begun = fast(group)["cpu_usage_usec"], time.monotonic()
    time.sleep(3)
    used, elapsed = fast(group)["cpu_usage_usec"] - before, time.monotonic() - begun
    totals = group.totals()

    assert used / 1e6 / elapsed == pytest.approx(0.5, abs=0.06)
    assert totals.cpu_periods is not None
    assert totals.cpu_throttled_periods is not None
    assert totals.cpu_throttled_periods >= totals.cpu_periods // 2
    assert totals.cpu_throttled_usec
    assert totals.cpu_usage_usec is not None
    assert totals.cpu_user_usec is not None
    assert totals.cpu_system_usec is not None
    assert totals.cpu_usage_usec == pytest.approx(
        totals.cpu_user_usec + totals.cpu_system_usec, abs=2
    )


def test_memory_is_counted_and_its_peak_stays(group: UnifiedGroup) -> None:
    group.start()
    python(
        group,
        "import sys, time\n"
        f"held = bytearray(b'x') * {96 * MIB}\n"
        "del held\n"
        "print(flush=True)\ntime.sleep(60)",
    )
    wait_until(lambda: (group.totals().memory_peak_bytes or 0) > 96 * MIB)
    wait_until(lambda: fast(group)["memory_current_bytes"] < 64 * MIB)
    totals = group.totals()

    assert totals.memory_peak_bytes is not None
    assert 96 * MIB < totals.memory_peak_bytes < 112 * MIB
    assert totals.memory_peak_source == "kernel"
    assert totals.oom_kills == 0


def test_an_oom_kill_ends_all_is_counted_and_rings(group: UnifiedGroup) -> None:
    group.apply(Limits(memory_bytes=32 * MIB).with_defaults())
    group.start()
    alarm = group.oom_alarm()
    assert alarm is not None
    epoll = select.epoll()
    epoll.register(alarm.fd, alarm.mask)
    assert epoll.poll(0) == []

    bystander = spawn(group, "sleep", "60")
    wait_until(group.is_populated)
    process = python(group, f"held = bytearray(b'x') * {256 * MIB}")
    wait_until(lambda: epoll.poll(1) != [] and (alarm.drain(), group.oom_kills())[1])

    assert process.wait(30) == -signal.SIGKILL
    assert bystander.wait(30) == -signal.SIGKILL
    wait_until(lambda: not group.is_populated())
    totals = group.totals()
    assert totals.oom_kills
    assert totals.oom_events
    assert totals.limit_hits
    assert group.oom_events()
    assert totals.memory_peak_bytes == pytest.approx(32 * MIB, rel=0.01)
    alarm.drain()
    assert epoll.poll(0.2) == []
    epoll.close()


def test_with_oom_continue_a_bystander_survives() -> None:
    group = UnifiedGroup(find_place(ROOTS), f"test-{time.monotonic_ns()}", ROOTS, oom_group=False)
    group.create()
    group.apply(Limits(memory_bytes=32 * MIB).with_defaults())
    group.start()
    bystander = spawn(group, "sleep", "60")
    process = python(group, f"held = bytearray(b'x') * {256 * MIB}")

    assert process.wait(30) == -signal.SIGKILL
    assert bystander.poll() is None
    assert group.oom_kills() == 1
    group.kill()
    group.remove()
    group.close()
    assert bystander.wait(5) == -signal.SIGKILL


def test_an_oom_in_a_group_below_is_counted_too(group: UnifiedGroup) -> None:
    run, main = group.directories
    (run / "cgroup.subtree_control").write_text("+memory")
    inner = run / "run-inner"
    inner.mkdir()
    (inner / "memory.max").write_text(str(16 * MIB))
    (inner / "memory.swap.max").write_text("0")
    group.start()
    process = subprocess.Popen(
        ["/bin/sh", "-c", 'echo 0 >"$1" && exec "$2" -I -S -c "b=bytearray(1<<27)"', "sh",
         str(inner / "cgroup.procs"), sys.executable]
    )  # fmt: skip
    assert process.wait(30) == -signal.SIGKILL

    assert group.oom_kills()
    assert group.totals().oom_events == 0
    assert group.oom_events()
    assert main.exists()


def test_forks_beyond_the_limit_are_refused_and_counted(group: UnifiedGroup) -> None:
    group.apply(Limits(pids=8))
    group.start()
    python(
        group,
        "import os, time\nrefused = 0\n"
        "for _ in range(20):\n"
        "    try:\n"
        "        if os.fork() == 0: time.sleep(60)\n"
        "    except OSError: refused += 1\n"
        "time.sleep(60)",
    )
    wait_until(lambda: group.totals().pids_refused == 13)
    assert len(group.pids()) == 8
    assert fast(group)["pids"] == 8
    if "pids_peak" not in group.unavailable:
        assert group.totals().pids_peak == 8
    reader = group.open_reader()
    slow = dict(zip(reader.slow_columns, reader.read_slow(), strict=True))
    reader.close()
    assert slow["processes"] == 8


def test_everything_dies_frozen_nested_and_hidden_alike(group: UnifiedGroup) -> None:
    main = group.directories[1]
    python(
        group,
        "import os, time\n"
        f"nested = '{main}/a/b'\n"
        "os.makedirs(nested)\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    open(nested + '/cgroup.procs', 'w').write('0')\n"
        "    open(nested + '/cgroup.freeze', 'w').write('1')\n"
        "    time.sleep(60)\n"
        "time.sleep(60)",
    )
    wait_until((main / "a/b/cgroup.events").exists)
    wait_until(lambda: "frozen 1" in (main / "a/b/cgroup.events").read_text())
    for path in (main / "a/b", main / "a"):
        for name in path.iterdir():
            if name.is_file():
                name.chmod(0)
        path.chmod(0)
    assert len(group.pids()) == 2
    alarm = group.empty_alarm()
    assert alarm is not None

    begun = time.monotonic()
    group.kill()
    elapsed = time.monotonic() - begun

    assert not group.is_populated()
    assert select.select([], [], [alarm.fd], 0)[2] == [alarm.fd]
    assert elapsed < 2  # an emulated machine


def test_a_frozen_group_uses_no_cpu(group: UnifiedGroup) -> None:
    group.start()
    python(group, "while True: pass")
    wait_until(lambda: fast(group)["cpu_usage_usec"] > 50_000)
    group.freeze(frozen=True)
    used = fast(group)["cpu_usage_usec"]
    time.sleep(0.5)
    assert fast(group)["cpu_usage_usec"] - used < 2_000
    group.freeze(frozen=False)
    wait_until(lambda: fast(group)["cpu_usage_usec"] > used + 50_000)


def test_counters_start_at_the_baseline(group: UnifiedGroup) -> None:
    process = python(group, "sum(range(3_000_000))")
    process.wait()
    group.start()

    totals = group.totals()

    assert totals.cpu_usage_usec == 0
    assert fast(group)["cpu_usage_usec"] == 0
    assert totals.io is not None


def test_a_reading_has_every_column_and_no_gaps(group: UnifiedGroup) -> None:
    group.start()
    spawn(group, "sleep", "60")
    wait_until(group.is_populated)
    reader = group.open_reader()
    ours = {name for name in COLUMNS if name != "time_ns" and not name.startswith("net_")}
    expected = ours - group.unavailable.keys()

    assert set(reader.fast_columns) | set(reader.slow_columns) == expected
    assert ABSENT not in reader.read_fast() + reader.read_slow()
    assert len(reader.read_fast()) == len(reader.fast_columns) == 7
    assert len(reader.read_slow()) == len(reader.slow_columns)
    reader.close()


def test_a_reading_of_a_removed_group_is_absent_not_wrong() -> None:
    group = UnifiedGroup(find_place(ROOTS), f"test-{time.monotonic_ns()}", ROOTS)
    group.create()
    group.start()
    reader = group.open_reader()
    group.remove()

    assert set(reader.read_fast()) == {ABSENT}
    assert set(reader.read_slow()) == {ABSENT}
    assert not group.is_populated()
    group.kill()
    group.remove()
    reader.close()
    group.close()


def test_a_tighter_outer_limit_is_the_effective_one(group: UnifiedGroup) -> None:
    outer_run = group.directories[0]
    group.apply(Limits(cpus=0.5, memory_bytes=128 * MIB, pids=50).with_defaults())
    code = (
        "from sandbox.kernel.place import find_place\n"
        "from sandbox.kernel.roots import Roots\n"
        "from sandbox.kernel.unified import UnifiedGroup\n"
        "from sandbox.spec import Limits\n"
        "place = find_place(Roots())\n"
        f"assert place.v2 == __import__('pathlib').Path('{outer_run}'), place\n"
        f"assert place.outer_run == '{outer_run.name}'\n"
        "inner = UnifiedGroup(place, 'inner', Roots())\n"
        "inner.create()\n"
        "reports = inner.apply(Limits(cpus=1, memory_bytes=1 << 30, pids=40).with_defaults())\n"
        "found = {report.name: report.effective for report in reports}\n"
        "assert found == {'cpus': '0.5', 'memory': '128 MiB', 'memory_swap': '128 MiB',"
        " 'pids': None}, found\n"
        "assert not inner._missing, inner._missing\n"
        "inner.remove()\n"
    )
    process = spawn(group, sys.executable, "-c", code)

    assert process.wait(50) == 0


def test_a_second_group_of_the_same_name_is_refused_and_the_first_stays(
    group: UnifiedGroup,
) -> None:
    twin = UnifiedGroup(find_place(ROOTS), group.directories[0].name.removeprefix("run-"), ROOTS)

    with pytest.raises(KernelError, match="EEXIST"):
        twin.create()

    assert group.directories[1].exists()


def test_limits_of_a_controller_that_is_missing_are_unavailable_with_the_reason() -> None:
    place = find_place(ROOTS)
    outer = Path("/sys/fs/cgroup/test-only-cpu")
    outer.mkdir()
    (outer / "cgroup.subtree_control").write_text("+cpu")
    try:
        from dataclasses import replace

        bare = replace(
            place, v2=outer, controllers=("cpu",), missing={"memory": "not given", "pids": "nor"}
        )
        group = UnifiedGroup(bare, "x", ROOTS)
        group.create()
        reports = by_name(group.apply(Limits(cpus=0.5, memory_bytes=64 * MIB).with_defaults()))
        assert reports["cpus"].state is LimitState.ENFORCED
        assert reports["memory"].state is LimitState.UNAVAILABLE
        assert reports["memory"].reason == "not given"
        assert reports["pids"].reason == "nor"
        assert group.unavailable["memory_peak_bytes"] == "not given"
        reader = group.open_reader()
        assert "memory_current_bytes" not in reader.fast_columns
        reader.close()
        group.remove()
    finally:
        outer.rmdir()


def test_a_group_with_processes_leads_to_the_one_above(tmp_path: Path) -> None:
    populated = Path("/sys/fs/cgroup/test-slice/test-scope")
    populated.mkdir(parents=True)
    code = (
        "from sandbox.kernel.place import find_place\n"
        "from sandbox.kernel.roots import Roots\n"
        "from pathlib import Path\n"
        "place = find_place(Roots())\n"
        "assert place.v2 == Path('/sys/fs/cgroup/test-slice'), place\n"
        "assert set(place.controllers) == {'cpu', 'memory', 'pids', 'io', 'cpuset'}, place\n"
    )
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", 'echo 0 >"$1" && exec "$2" -c "$3"', "sh",
             str(populated / "cgroup.procs"), sys.executable, code]
        )  # fmt: skip
        assert process.wait(50) == 0
    finally:
        populated.rmdir()
        populated.parent.rmdir()


def test_the_fast_reading_is_cheap(group: UnifiedGroup) -> None:
    group.start()
    python(group, "import time\nwhile True: time.sleep(0.001)")
    wait_until(group.is_populated)
    reader = group.open_reader()
    names = ("cpu.stat", "memory.current", "pids.current", "io.stat")
    fds = [os.open(group.directories[0] / name, os.O_RDONLY) for name in names]

    def bare() -> None:
        for fd in fds:
            os.pread(fd, 512, 0)

    def cost(call: object, rounds: int = 300) -> float:
        assert callable(call)
        best = float("inf")
        for _ in range(5):
            begun = time.perf_counter_ns()
            for _ in range(rounds):
                call()
            best = min(best, (time.perf_counter_ns() - begun) / rounds)
        return best / 1_000

    four, fast_usec, slow_usec = cost(bare), cost(reader.read_fast), cost(reader.read_slow)
    for fd in fds:
        os.close(fd)
    reader.close()
    print(f"\nfour preads {four:.1f} µs, fast {fast_usec:.1f} µs, slow {slow_usec:.1f} µs")

    assert fast_usec < 3 * four
