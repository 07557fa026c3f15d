"""Runs without a group, as a plain user: the keeper holds, counts and ends what it launched."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import KernelError
from sandbox.kernel.keeper import KeeperLauncher
from sandbox.records.host import Mode
from sandbox.records.program import Program

LOADS = Path(__file__).parents[1] / "loads"
BUDGET_SEC = 1.0
TIMEOUT_SEC = 20

PRELUDE = textwrap.dedent(f"""
    import json, os, select, signal, sys, time
    from sandbox.errors import *
    from sandbox.kernel.bare import BareGroup
    from sandbox.kernel.keeper import KeeperLauncher
    from sandbox.kernel.roots import Roots
    from sandbox.records.program import Program
    from sandbox.spec import Limits

    LOADS = {str(LOADS)!r}
    PYTHON = (os.path.realpath(sys.executable), "-I", "-S")
    MIB = 1 << 20

    def launch(*argv, limits=Limits(), release=True, **settings):
        group = BareGroup("an-id", Roots())
        group.create()
        group.reports = group.apply(limits.with_defaults())
        program = Program(argv=argv, environment=dict(os.environb), **settings)
        child = KeeperLauncher().start(program, group)
        group.start()
        reader = group.open_reader()
        if release:
            child.release()
        return group, child, reader

    def wait(child):
        assert select.select([child.fd], [], [], 20)[0], "the program did not end"
        return child.reap()

    def finish(group, child):
        group.kill()
        totals = group.totals()
        group.remove()
        child.abandon()
        group.close()
        return totals

    def until(condition):
        end = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.002)
    """)

Plain = Callable[..., Any]


@pytest.fixture
def plain(plain_user: Callable[..., Any], plain_home: Path) -> Plain:
    """`plain(code)` runs code as a plain user and returns the value that it calls `answer`."""

    def run(code: str) -> Any:
        whole = f"{PRELUDE}\n{textwrap.dedent(code)}\nprint(); print(json.dumps(answer))"
        done = plain_user("python", "-c", whole, cwd=plain_home)
        assert done.status == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_the_end_of_the_program_is_told_as_it_was(plain: Plain) -> None:
    answer = plain("""
        answer = []
        for command in ("exit 0", "exit 42", "kill -TERM $$", "kill -KILL $$"):
            group, child, _ = launch("sh", "-c", command)
            end = wait(child)
            answer.append([end.status, end.signal])
            assert child.reap() == end
            finish(group, child)
        """)

    assert answer == [[0, None], [42, None], [None, 15], [None, 9]]


@pytest.mark.parametrize(
    ("argv", "code"), [(("/no/such/program",), 127), (("no-such-name",), 127), (("/etc",), 126)]
)
def test_what_cannot_be_executed_leaves_nothing(
    plain: Plain, argv: tuple[str, ...], code: int
) -> None:
    answer = plain(f"""
        before = os.listdir("/proc/self/fd")
        group, child, _ = launch(*{argv!r}, release=False)
        try:
            child.release()
        except LaunchError as error:
            answer = error.exit_code
        finish(group, child)
        assert os.listdir("/proc/self/fd") == before
        try:
            os.waitpid(-1, os.WNOHANG)
            raise AssertionError("a child is left")
        except ChildProcessError:
            pass
        """)

    assert answer == code


def test_cpu_time_counts_every_process_that_was_waited_for(plain: Plain) -> None:
    answer = plain("""
        work = "import os, time\\nif os.fork(): os.wait()\\n"
        work += "end = time.process_time() + 0.15\\nwhile time.process_time() < end: pass"
        group, child, reader = launch(*PYTHON, "-c", work)
        samples = []
        while child.reap() is None:
            samples.append(reader.read_fast()[0])
            time.sleep(0.01)
        totals = finish(group, child)
        group, child, _ = launch(*PYTHON, "-c", "import os\\nif os.fork(): os.wait()")
        wait(child)
        nothing = finish(group, child)
        answer = [samples, totals.cpu_usage_usec, nothing.cpu_usage_usec,
                  totals.cpu_user_usec + totals.cpu_system_usec]
        """)

    samples, total, nothing, parts = answer
    assert samples == sorted(samples)
    assert abs(total - nothing - 300_000) < 15_000
    assert parts == total
    assert 200_000 < samples[-1] <= total + 20_000


def test_a_daemon_is_counted_and_ended(plain: Plain) -> None:
    answer = plain("""
        group, child, reader = launch(*PYTHON, f"{LOADS}/daemonize.py", "60")
        status = wait(child).status
        left = group.pids()
        populated = group.is_populated()
        fast = reader.read_fast()
        finish(group, child)
        exist = [os.path.exists(f"/proc/{p}") for p in left]
        answer = [status, len(left), populated, fast[2], exist, group.is_populated()]
        """)

    assert answer == [0, 1, True, 1, [False], False]


def test_the_last_process_of_the_tree_rings_the_alarm(plain: Plain) -> None:
    answer = plain("""
        group, child, _ = launch("sh", "-c", "sleep 0.3 &")
        alarm = group.empty_alarm()
        wait(child)
        early = bool(select.select([alarm.fd], [], [], 0)[0]) or not group.is_populated()
        rang = bool(select.select([alarm.fd], [], [], 5)[0])
        alarm.drain()
        again = bool(select.select([alarm.fd], [], [], 0)[0])
        populated = group.is_populated()
        finish(group, child)
        answer = [early, rang, again, populated]
        """)

    assert answer == [False, True, False, False]


@pytest.mark.parametrize("kind", ["plain", "frozen", "storm"])
def test_kill_returns_when_nothing_is_left(plain: Plain, kind: str) -> None:
    answer = plain(f"""
        storm = "import os\\nprint()\\nfor _ in range(3): os.fork()\\n"
        storm += "while True:\\n  if os.fork(): os._exit(0)\\n  os.getpid() % 2 or os.setsid()"
        argv = (*PYTHON, "-c", storm) if {kind!r} == "storm" else (
            "sh", "-c", "sleep 60 & setsid sleep 60 & sleep 60")
        group, child, reader = launch(*argv, limits=Limits(pids=500))
        time.sleep(0.2)
        if {kind!r} == "frozen":
            group.freeze(True)
        seen = group.pids()
        begin = time.monotonic()
        group.kill()
        took = time.monotonic() - begin
        left = group.pids()
        child.reap()
        finish(group, child)
        answer = [took, len(seen), left, [p for p in seen if os.path.exists(f"/proc/{{p}}")]]
        """)

    took, seen, left, alive = answer
    assert took < BUDGET_SEC
    assert (left, alive) == ([], [])
    assert seen >= 3 or kind == "storm"


def test_frozen_is_stopped_and_goes_on_again(plain: Plain) -> None:
    answer = plain("""
        group, child, reader = launch("sh", "-c", "while :; do :; done & while :; do :; done")
        time.sleep(0.1)
        group.freeze(True)
        until(lambda: all(open(f"/proc/{p}/stat").read().split()[2] == "T" for p in group.pids()))
        first = reader.read_fast()[0]
        time.sleep(0.15)
        second = reader.read_fast()[0]
        group.freeze(False)
        until(lambda: reader.read_fast()[0] > second)
        signalled = group.signal(signal.SIGTERM)
        end = wait(child).signal
        finish(group, child)
        answer = [second - first, signalled, end]
        """)

    assert answer == [0, 2, signal.SIGTERM]


# --- limits ---------------------------------------------------------------------------------------


def test_limits_become_affinity_and_rlimits_and_say_so(plain: Plain) -> None:
    answer = plain("""
        read_fd, write_fd = os.pipe()
        limits = Limits(cpus=0.5, memory_bytes=64 * MIB, pids=100, cpu_shares=512)
        code = "import os, resource as r; print(len(os.sched_getaffinity(0)), "
        code += "r.getrlimit(r.RLIMIT_DATA)[0] >> 20, r.getrlimit(r.RLIMIT_NPROC)[0])"
        group, child, _ = launch(*PYTHON, "-c", code, limits=limits, stdio=(None, write_fd, None))
        os.close(write_fd)
        wait(child)
        seen = list(map(int, os.read(read_fd, 100).split()))
        finish(group, child)
        answer = [seen, {r.name: [r.state.value, r.reason or ""] for r in group.reports}]
        """)

    (cpus, data_mib, nproc), reports = answer
    assert (cpus, data_mib) == (1, 320)
    assert 100 < nproc < 1000
    assert {name: state for name, (state, _) in reports.items()} == {
        "cpus": "approximated",
        "cpu_shares": "unavailable",
        "memory": "approximated",
        "memory_swap": "unavailable",
        "pids": "approximated",
    }
    assert all(reason for _, reason in reports.values())


def test_more_memory_than_the_limit_is_seen(plain: Plain) -> None:
    answer = plain("""
        answer = []
        for mib in (30, 90):
            code = f"b = bytearray({mib} << 20); print(flush=True); import time; time.sleep(60)"
            group, child, reader = launch(*PYTHON, "-c", code, limits=Limits(memory_bytes=64 * MIB))
            until(lambda: reader.read_fast() and reader.read_slow()[2] > mib * MIB)
            _, _, anon, file, shmem, swap, living = reader.read_slow()
            answer.append([group.over_limit(), anon >> 20, living])
            peak = finish(group, child)
            answer.append([peak.memory_peak_bytes >> 20, peak.memory_peak_source])
        """)

    (small, _), (large, peak) = (answer[:2], answer[2:])
    assert (small[0], large[0]) == (False, True)
    assert 90 <= large[1] <= 97
    assert 90 <= peak[0] <= 105
    assert peak[1] == "sampled"


def test_shared_and_mapped_memory_is_not_counted_again_and_again(plain: Plain) -> None:
    """Workers that share a model after a fork, and a model that is mapped from a file."""
    answer = plain("""
        answer = []
        with open("model", "wb") as file:
            file.write(os.urandom(1 << 20) * 100)
        fork = "b = bytearray(40 << 20)\\nimport os, time\\nfor _ in range(3):\\n  os.fork()\\n"
        fork += "time.sleep(60)"
        mapped = "import mmap, time\\nf = open('model', 'rb')\\n"
        mapped += "m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)\\n"
        mapped += "sum(m[i] for i in range(0, len(m), 4096))\\ntime.sleep(60)"
        for code in (fork, mapped):
            group, child, reader = launch(*PYTHON, "-c", code, limits=Limits(memory_bytes=64 * MIB))
            until(lambda: reader.read_fast()[1] > 90 * MIB)
            time.sleep(0.1)
            answer.append([reader.read_fast()[1] >> 20, group.over_limit()])
            finish(group, child)
        """)

    assert answer[0][0] >= 8 * 40
    assert answer[1][0] >= 100
    assert [over for _, over in answer] == [False, False]


def test_bytes_written_are_those_of_the_whole_tree(plain: Plain) -> None:
    answer = plain("""
        code = "import os\\nif os.fork(): os.wait()\\nelse:\\n"
        code += "  f = open('written', 'wb'); f.write(os.urandom(4 << 20)); f.flush()\\n"
        code += "  os.fsync(f.fileno()); os.unlink('written')"
        group, child, reader = launch(*PYTHON, "-c", code)
        wait(child)
        answer = [reader.read_fast()[4], group.unavailable["io"]]
        finish(group, child)
        """)

    assert 4 << 20 <= answer[0] < 5 << 20
    assert answer[1]


# --- the keeper's place ---------------------------------------------------------------------------


def test_the_program_is_in_our_session_and_the_keeper_is_not(plain: Plain) -> None:
    answer = plain("""
        group, child, _ = launch("sleep", "60")
        keeper = group._keeper.pid
        until(lambda: os.getsid(keeper) == keeper)
        until(lambda: open(f"/proc/{keeper}/comm").read() == "sandbox-keeper\\n")
        fds = {n: os.readlink(f"/proc/{keeper}/fd/{n}") for n in os.listdir(f"/proc/{keeper}/fd")}
        # The loader opens libraries as the next descriptor for a moment.
        until(lambda: len(os.listdir(f"/proc/{child.pid}/fd")) <= 3)
        answer = [os.getsid(child.pid) == os.getsid(0), os.getpgid(child.pid) == os.getpgid(0),
                  [fds.pop(n) for n in "012"], sorted(v.split(":")[0] for v in fds.values()),
                  sorted(os.listdir(f"/proc/{child.pid}/fd"))]
        finish(group, child)
        """)

    assert answer[:3] == [True, True, ["/dev/null"] * 3]
    assert answer[3] == ["anon_inode", "pipe", "pipe", "pipe"]
    assert answer[4] == ["0", "1", "2"]


def test_the_terminal_stays_the_programs() -> None:
    code = "group, child, _ = launch(*PYTHON, f'{LOADS}/tty.py')\nwait(child)\nfinish(group, child)"
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, [sys.executable, "-c", PRELUDE + code], environment)
    output = b""
    while select.select([terminal], [], [], TIMEOUT_SEC)[0]:
        try:
            output += os.read(terminal, 4096)
        except OSError:  # the last descriptor of the other side is closed
            break
    os.close(terminal)
    _, status = os.waitpid(pid, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert output.split() == [b"stdin=True", b"stdout=True", b"stderr=True", b"foreground=True"]


@pytest.mark.parametrize("whom", ["supervisor", "process group"])
@pytest.mark.parametrize(
    "argv",
    [
        ["sleep", "60"],
        ["setsid", "sleep", "60"],
        ["sh", "-c", f"{sys.executable} -I -S {LOADS}/daemonize.py 60; sleep 60"],
        [sys.executable, "-I", "-S", f"{LOADS}/ignore_signals.py", "60"],
        ["sh", "-c", "sleep 60 & kill -STOP $!; kill -STOP $$"],
    ],
    ids=["plain", "setsid", "daemon", "deaf", "stopped"],
)
def test_a_killed_supervisor_leaves_no_process(whom: str, argv: list[str]) -> None:
    code = textwrap.dedent(f"""
        group, child, _ = launch(*{argv!r})
        time.sleep(0.15)
        print(group._keeper.pid, *group.pids(), flush=True)
        time.sleep(60)
        """)
    with subprocess.Popen(
        [sys.executable, "-c", PRELUDE + code],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        process_group=0,
    ) as process:
        assert process.stdout is not None
        pids = _read_pids(process.stdout.fileno())
        begin = time.monotonic()
        if whom == "supervisor":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
        while any(map(_is_alive, pids)) and time.monotonic() - begin < TIMEOUT_SEC:
            time.sleep(0.002)
        took = time.monotonic() - begin
        process.wait(TIMEOUT_SEC)

    assert len(pids) >= 2
    assert took < BUDGET_SEC


def _read_pids(fd: int) -> list[int]:
    """Read until the line of numbers: programs may write before it."""
    text = ""
    while True:
        assert select.select([fd], [], [], TIMEOUT_SEC)[0]
        text += os.read(fd, 4096).decode()
        for line in text.splitlines(keepends=True):
            words = line.split()
            if line.endswith("\n") and len(words) > 1 and all(map(str.isdecimal, words)):
                return list(map(int, words))


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def test_the_program_does_not_survive_its_keeper(plain: Plain) -> None:
    answer = plain("""
        group, child, reader = launch("sh", "-c", "setsid sleep 60 & sleep 60 & wait")
        until(lambda: reader.read_fast()[2] >= 3)
        seen = group.pids()
        os.kill(group._keeper.pid, signal.SIGKILL)
        end = wait(child)
        populated = group.is_populated()
        group.kill()
        alive = [p for p in seen if os.path.exists(f"/proc/{p}/exe")]
        finish(group, child)
        answer = [end.status, end.signal, len(seen), populated, alive, group.is_populated()]
        """)

    assert answer == [None, signal.SIGKILL, 3, True, [], False]


def test_a_keeper_that_somebody_stopped_still_obeys(plain: Plain) -> None:
    answer = plain("""
        group, child, _ = launch("sleep", "60")
        os.kill(group._keeper.pid, signal.SIGSTOP)
        begin = time.monotonic()
        group.kill()
        answer = [time.monotonic() - begin < 1, wait(child).signal]
        finish(group, child)
        """)

    assert answer == [True, signal.SIGKILL]


def test_a_child_that_is_abandoned_never_runs(plain: Plain) -> None:
    answer = plain("""
        group, child, _ = launch("touch", "started", release=False)
        child.abandon()
        child.abandon()
        group.remove()
        group.close()
        answer = [os.path.exists("started"), os.path.exists(f"/proc/{child.pid}")]
        """)

    assert answer == [False, False]


def test_a_keeper_launches_only_where_there_is_no_group() -> None:
    class Other:
        mode = Mode.HYBRID

    with pytest.raises(KernelError, match="a group of mode hybrid"):
        KeeperLauncher().start(Program(argv=("true",), environment={}), Other())  # type: ignore[arg-type]


def test_memory_of_the_fork_is_not_the_programs(plain: Plain) -> None:
    answer = plain("""
        ours = bytearray(os.urandom(1 << 20)) * 60
        group, child, reader = launch("sleep", "60", release=False)
        before = reader.read_fast()[1], reader.read_slow()[2]
        child.release()
        until(lambda: reader.read_fast()[1] > 0)  # it takes a moment to have pages of its own
        after = reader.read_fast()[1], reader.read_slow()[2]
        totals = finish(group, child)
        answer = [before, after, totals.memory_peak_bytes]
        """)

    absent = -(1 << 63)
    assert answer[0] == [absent, absent]
    assert 0 < answer[1][0] < 10 << 20
    assert 0 <= answer[1][1] < 10 << 20
    assert answer[2] < 10 << 20
