"""Real v2 groups on this kernel; without controllers, so no limits: those are for the guest."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import KernelError
from sandbox.kernel import v2
from sandbox.kernel.files import KeptFile, list_tree, remove_directory, remove_tree, write_text
from sandbox.kernel.hierarchies import find_hierarchies
from sandbox.kernel.host import read_host, read_load
from sandbox.kernel.place import Place, find_place
from sandbox.kernel.roots import Roots
from sandbox.kernel.unified import UnifiedGroup
from sandbox.records.host import Mode
from sandbox.records.sample import ABSENT
from sandbox.spec import Limits

ROOTS = Roots()
STARTED: list[subprocess.Popen[bytes]] = []


@pytest.fixture
def own() -> Path:
    side = find_hierarchies(ROOTS).v2
    if side is None or side.own is None or not side.writable:
        pytest.skip("no v2 group of ours that may be written")
    return side.own


@pytest.fixture
def group(own: Path) -> Iterator[UnifiedGroup]:
    place = Place(mode=Mode.UNIFIED, reason="a test", v2=own, v2_top=own)
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
    (entrance,) = group.entrances()
    process = subprocess.Popen(["/bin/sh", "-c", 'echo 0 >"$0" && exec "$@"', str(entrance), *argv])
    STARTED.append(process)
    return process


def python(group: UnifiedGroup, code: str) -> subprocess.Popen[bytes]:
    return spawn(group, sys.executable, "-I", "-S", "-c", code)


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def usage_usec(group: UnifiedGroup) -> int:
    return group.totals().cpu_usage_usec or 0


def test_a_hybrid_host_is_placed_below_our_own_groups() -> None:
    hierarchies = find_hierarchies(ROOTS)
    if "memory" not in hierarchies.v1 or os.geteuid() != 0:
        pytest.skip("not a hybrid host, or not root")

    place = find_place(ROOTS)

    assert place.mode is Mode.HYBRID
    for controller, directory in place.v1.items():
        own = hierarchies.v1[controller].own
        assert own is not None
        assert directory in {own, own.parent}
        pids = (directory / "cgroup.procs").read_text().split()
        assert str(os.getpid()) in pids or directory == own.parent


def test_a_plain_user_gets_no_place_and_a_reason(plain_user: Callable[..., Any]) -> None:
    code = (
        "from sandbox.kernel.place import find_place\n"
        "from sandbox.kernel.roots import Roots\n"
        "place = find_place(Roots())\n"
        "print(place.mode.value, place.reason)\n"
    )

    done = plain_user("python", "-c", code)

    assert done.stdout.startswith("none "), done
    assert "belongs to another user" in done.stdout


def test_the_host_is_read_within_its_budget() -> None:
    place = find_place(ROOTS)
    best_ns = min(_timed(lambda: (find_place(ROOTS), read_host(ROOTS, place))) for _ in range(20))

    assert best_ns < 3_000_000
    assert read_host(ROOTS, place).cpus_allowed == tuple(sorted(os.sched_getaffinity(0)))
    before, after = read_load(ROOTS), read_load(ROOTS)
    assert before.total_usec is not None
    assert after.total_usec is not None
    assert after.total_usec >= before.total_usec


def _timed(call: Callable[[], object]) -> int:
    begun = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - begun


def test_what_a_program_burns_is_counted_and_nothing_before(group: UnifiedGroup) -> None:
    python(group, "sum(range(1_000_000))").wait(10)
    group.start()
    assert usage_usec(group) == 0

    process = python(group, "import time\nwhile time.process_time() < 0.3: pass")
    process.wait(20)

    totals = group.totals()
    assert 300_000 <= usage_usec(group) < 400_000
    assert totals.cpu_user_usec is not None
    assert totals.memory_peak_bytes is None
    assert totals.oom_kills is None
    assert totals.io is None


def test_a_group_without_controllers_reads_what_there_is(group: UnifiedGroup) -> None:
    group.start()
    spawn(group, "sleep", "60")
    wait_until(group.is_populated)
    reader = group.open_reader()

    assert reader.fast_columns == ("cpu_usage_usec", "io_read_bytes", "io_write_bytes")
    assert {"cpu_user_usec", "cpu_system_usec", "processes"} <= set(reader.slow_columns)
    assert ABSENT not in reader.read_fast() + reader.read_slow()
    assert reader.read_slow()[reader.slow_columns.index("processes")] == 1
    reader.close()


def test_readings_of_a_removed_group_are_absent(group: UnifiedGroup) -> None:
    group.start()
    reader = group.open_reader()
    alarm = group.empty_alarm()
    assert alarm is not None
    group.remove()

    assert set(reader.read_fast() + reader.read_slow()) == {ABSENT}
    alarm.drain()
    assert not group.is_populated()
    assert group.pids() == ()
    group.kill()
    reader.close()


def test_limits_are_unavailable_without_controllers(group: UnifiedGroup) -> None:
    reports = group.apply(Limits(cpus=1, memory_bytes=1 << 30).with_defaults())

    assert {report.state.value for report in reports} == {"unavailable"}
    assert {report.name for report in reports} == {"cpus", "memory", "memory_swap", "pids"}
    assert all(report.reason for report in reports)


def test_everything_dies_frozen_nested_and_hidden_alike(group: UnifiedGroup) -> None:
    main = group.directories[1]
    python(
        group,
        "import os, time\n"
        f"nested = '{main}/a/b'\n"
        "os.makedirs(nested)\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    with open(nested + '/cgroup.procs', 'w') as f: f.write('0')\n"
        "    with open(nested + '/cgroup.freeze', 'w') as f: f.write('1')\n"
        "time.sleep(60)",
    )
    wait_until((main / "a/b/cgroup.freeze").exists)
    wait_until(lambda: "frozen 1" in (main / "a/b/cgroup.events").read_text())
    for path in (main / "a/b", main / "a"):
        path.chmod(0)
    assert len(group.pids()) == 2

    begun = time.monotonic()
    group.kill()

    assert time.monotonic() - begun < 1
    assert not group.is_populated()


def test_a_fork_storm_dies(group: UnifiedGroup) -> None:
    python(
        group,
        "import os\n"
        "for _ in range(6):\n"
        "    os.fork()\n"
        "while True:\n"
        "    if os.fork() == 0: os._exit(0)\n"
        "    os.wait()\n",
    )
    wait_until(lambda: len(group.pids()) > 32)

    group.kill()

    assert group.pids() == ()


def test_without_cgroup_kill_everything_dies_as_well(
    group: UnifiedGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before Linux 5.14: `cgroup.kill` does not exist."""

    def write(path: Path, text: str) -> None:
        if path.name == "cgroup.kill":
            path = path.with_name("cgroup.no-such-file")
        write_text(path, text)

    monkeypatch.setattr(v2, "write_text", write)
    python(
        group,
        "import os\n"
        "for _ in range(4):\n"
        "    os.fork()\n"
        "while True:\n"
        "    if os.fork() == 0: os._exit(0)\n"
        "    os.wait()\n",
    )
    wait_until(lambda: len(group.pids()) > 8)

    group.kill()

    assert group.pids() == ()


def test_what_cannot_be_killed_in_time_is_named(group: UnifiedGroup) -> None:
    process = spawn(group, "sleep", "60")
    wait_until(group.is_populated)

    with pytest.raises(KernelError, match=rf"still alive: \({process.pid},\)") as caught:
        _kill_without_a_signal(group)

    assert caught.value.hint is not None


def _kill_without_a_signal(group: UnifiedGroup) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(v2, "_strike", lambda _directory: None)
        v2.kill(group.directories[0], patience_sec=0.1)


def test_signals_reach_every_process(group: UnifiedGroup) -> None:
    processes = [spawn(group, "sleep", "60") for _ in range(3)]
    wait_until(lambda: len(group.pids()) == 3)
    wait_until(lambda: all(_is_sleep(process.pid) for process in processes))

    assert group.signal(signal.SIGTERM) == 3

    assert {process.wait(10) for process in processes} == {-signal.SIGTERM}


def _is_sleep(pid: int) -> bool:
    return Path(f"/proc/{pid}/comm").read_text() == "sleep\n"


def test_frozen_processes_use_no_cpu_until_let_go(group: UnifiedGroup) -> None:
    group.start()
    python(group, "while True: pass")
    wait_until(lambda: usage_usec(group) > 20_000)

    group.freeze(frozen=True)

    assert v2.is_frozen(group.directories[0])
    used = usage_usec(group)
    time.sleep(0.1)
    assert usage_usec(group) == used
    group.freeze(frozen=False)
    wait_until(lambda: usage_usec(group) > used)


def test_the_empty_alarm_rings_once_when_the_last_process_leaves(group: UnifiedGroup) -> None:
    process = spawn(group, "sleep", "0.2")
    wait_until(group.is_populated)
    alarm = group.empty_alarm()
    assert alarm is not None
    epoll = select.epoll()
    epoll.register(alarm.fd, alarm.mask)
    assert epoll.poll(0) == []

    assert epoll.poll(5)
    assert not group.is_populated()
    alarm.drain()
    assert epoll.poll(0.05) == []
    epoll.close()
    process.wait(5)


def test_a_populated_group_is_not_removed_and_says_so(group: UnifiedGroup) -> None:
    spawn(group, "sleep", "60")
    wait_until(group.is_populated)

    with pytest.raises(KernelError, match=r"remove the group .*main: EBUSY"):
        remove_tree(group.directories[0], patience_sec=0.02)


def test_removal_waits_for_a_group_that_is_about_to_be_empty(group: UnifiedGroup) -> None:
    process = spawn(group, "sleep", "0.15")
    wait_until(group.is_populated)

    remove_directory(group.directories[1], patience_sec=5)

    assert not group.directories[1].exists()
    process.wait(5)


def test_groups_that_vanish_during_the_walk_are_no_error(group: UnifiedGroup) -> None:
    run = group.directories[0]
    code = (
        "import os, sys\n"
        "for n in range(4000):\n"
        "    os.mkdir(f'{sys.argv[1]}/g{n % 7}')\n"
        "    os.rmdir(f'{sys.argv[1]}/g{n % 7}')\n"
    )
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", code, str(run)])
    seen = 0
    while process.poll() is None:
        seen = max(seen, len(list_tree(run)))
        assert v2.list_pids(run) == ()

    assert process.wait(5) == 0
    assert seen >= 2


def test_a_second_run_of_the_same_name_is_refused_and_harms_nothing(group: UnifiedGroup) -> None:
    run = group.directories[0]
    place = Place(mode=Mode.UNIFIED, reason="a test", v2=run.parent, v2_top=run.parent)
    twin = UnifiedGroup(place, run.name.removeprefix("run-"), ROOTS)

    with pytest.raises(KernelError, match="EEXIST") as caught:
        twin.create()

    assert "sandbox clean" in (caught.value.hint or "")
    assert group.directories[1].exists()


def test_a_list_of_many_processes_is_read_whole(group: UnifiedGroup) -> None:
    python(
        group,
        "import os, time\n"
        "for _ in range(900):\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(60)\n"
        "time.sleep(60)",
    )
    wait_until(lambda: len(group.pids()) == 901)
    kept = KeptFile(group.entrances()[0])

    assert len(kept.read()) > 4096 or max(group.pids()) < 9_999
    assert sorted(map(int, kept.read().split())) == list(group.pids())
    kept.close()
