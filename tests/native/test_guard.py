"""The guard: a supervisor that is SIGKILLed leaves no process and no group."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.kernel import guard as guard_module
from sandbox.kernel import lifeline
from sandbox.kernel.guard import Guard
from sandbox.kernel.place import find_place
from sandbox.kernel.roots import Roots
from sandbox.records.host import Mode

LOADS = Path(__file__).parents[1] / "loads"
PYTHON = os.path.realpath(sys.executable)
TIMEOUT_SEC = 20
BUDGET_SEC = 1.0

SUPERVISOR = textwrap.dedent(f"""
    import os, sys, time
    sys.path[:0] = {sys.path!r}
    from sandbox.kernel import guard
    from sandbox.kernel.backend import open_backend
    from sandbox.kernel.place import find_place
    from sandbox.kernel.roots import Roots
    from sandbox.kernel.signals import SignalState
    from sandbox.records.program import Program
    from sandbox.spec import Limits

    kind, moment, *argv = sys.argv[1:]
    if kind == "python":
        guard._SHELL = "/no/such/shell"
    elif kind == "old-kernel":
        guard.SCRIPT = guard.SCRIPT.replace("cgroup.kill", "no.such.file")
    roots = Roots()
    place = find_place(roots)
    backend = open_backend(
        place, roots, f"test-guard-{{os.getpid()}}", oom_group=True,
        signals=SignalState.capture(), keep_descriptors=False,
    )
    dismiss = backend.start_guard()
    print(dismiss.__self__.pid, *backend.group.directories, sep="\\n", end="\\n\\n", flush=True)
    backend.group.create()
    backend.group.apply(Limits().with_defaults())
    child = backend.launcher.start(
        Program(argv=tuple(argv), environment=dict(os.environb)), backend.group
    )
    if moment != "paused":
        child.release()
    if moment == "forked" and os.fork() == 0:
        time.sleep(1.2)  # as a worker that a library forks: it outlives the supervisor
        os._exit(0)
    print("running", flush=True)
    time.sleep(60)
    """)

FREEZER = """
import os, sys, time
from pathlib import Path
line = next(l for l in Path("/proc/self/cgroup").read_text().splitlines() if l[:3] == "0::")
mount = Path("/sys/fs/cgroup/unified")
own = (mount if mount.exists() else mount.parent) / line[4:]
below = own / "a b" / ".hidden"
below.mkdir(parents=True)
if os.fork() == 0:
    (below / "cgroup.procs").write_text("0")
    time.sleep(60)
while not (below / "cgroup.procs").read_text():
    time.sleep(0.001)
(below / "cgroup.freeze").write_text("1")
for file in below.iterdir():
    file.chmod(0)
below.chmod(0)
print("frozen", flush=True)
time.sleep(60)
"""

STORM = """
import os
print("storming", flush=True)
for _ in range(3):
    os.fork()
while True:
    if os.fork():
        os._exit(0)
    if os.getpid() % 2:
        os.setsid()
"""


@pytest.fixture(autouse=True)
def _needs_groups() -> None:
    if find_place(Roots()).mode is Mode.NONE:
        pytest.skip("no cgroup can be written here")


class Supervised:
    """A supervisor in a process of its own, with a guard and a program."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SUPERVISOR, *arguments], stdout=subprocess.PIPE, text=True
        )
        self.guard_pid = int(self.line())
        self.groups = [Path(line) for line in iter(self.line, "")]

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def wait_for(self, *lines: str) -> None:
        missing = set(lines)
        while missing:
            line = self.line()
            assert line, f"the supervisor ended before it said {missing}"
            missing.discard(line)

    def pids(self) -> set[int]:
        found = set()
        for group in self.groups:
            for file in (group / "cgroup.procs", *group.rglob("cgroup.procs")):
                found |= {int(word) for word in file.read_text().split()}
        return found

    def kill(self) -> float:
        """SIGKILL the supervisor; return the seconds until all groups and the guard are gone."""
        begin = time.monotonic()
        self.process.kill()
        self.process.wait(TIMEOUT_SEC)
        while time.monotonic() - begin < TIMEOUT_SEC:
            if not any(group.exists() for group in self.groups) and not is_alive(self.guard_pid):
                break
            time.sleep(0.002)
        return time.monotonic() - begin

    def close(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_SEC)
        if self.process.stdout is not None:
            self.process.stdout.close()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


@pytest.fixture
def supervise() -> Iterator[Callable[..., Supervised]]:
    started: list[Supervised] = []

    def start(*arguments: str) -> Supervised:
        started.append(Supervised(*arguments))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.mark.parametrize("kind", ["shell", "python", "old-kernel"])
@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["sh", "-c", "echo up; sleep 60"], "up"),
        ([PYTHON, "-I", "-S", str(LOADS / "ignore_signals.py"), "60"], "ready"),
        (["sh", "-c", f"{PYTHON} -I -S {LOADS}/daemonize.py 60; echo left; sleep 60"], "left"),
        (["setsid", "sh", "-c", "sleep 60 & echo up; sleep 60"], "up"),
        ([PYTHON, "-I", "-S", "-c", FREEZER], "frozen"),
        ([PYTHON, "-I", "-S", "-c", STORM], "storming"),
    ],
    ids=["plain", "deaf", "daemon", "setsid", "frozen", "storm"],
)
def test_a_killed_supervisor_leaves_no_process_and_no_group(
    supervise: Callable[..., Supervised], kind: str, argv: list[str], says: str
) -> None:
    supervised = supervise(kind, "running", *argv)
    supervised.wait_for(says, "running")
    before = supervised.pids()

    took = supervised.kill()

    assert took < BUDGET_SEC
    assert not any(group.exists() for group in supervised.groups)
    assert before or argv[-1] is STORM  # where whoever was listed has forked and gone
    assert not [pid for pid in before if is_alive(pid)]


def test_a_paused_child_does_not_survive(supervise: Callable[..., Supervised]) -> None:
    supervised = supervise("shell", "paused", "sleep", "60")
    supervised.wait_for("running")
    before = supervised.pids()

    assert supervised.kill() < BUDGET_SEC
    assert before
    assert not [pid for pid in before if is_alive(pid)]


def test_a_plain_fork_of_the_supervisor_does_not_blind_the_guard(
    supervise: Callable[..., Supervised],
) -> None:
    supervised = supervise("shell", "forked", "sleep", "60")
    supervised.wait_for("running")

    assert supervised.kill() < BUDGET_SEC


@pytest.mark.parametrize("delay_ms", [0, 1, 2, 4, 7, 11, 16, 30])
def test_a_supervisor_may_be_killed_at_any_moment(
    supervise: Callable[..., Supervised], delay_ms: int
) -> None:
    supervised = supervise("shell", "running", "sleep", "60")
    time.sleep(delay_ms / 1000)

    assert supervised.kill() < BUDGET_SEC
    assert not any(group.exists() for group in supervised.groups)


# --- at its post ----------------------------------------------------------------------------------


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[Guard]:
    guard = Guard.start(kill_directory=None, directories=(tmp_path / "group",))
    try:
        yield guard
    finally:
        guard.dismiss()


def test_a_guard_holds_nothing_of_ours(tmp_path: Path) -> None:
    """Neither locks, nor pipes of our caller, nor his terminal, directory or session."""
    inherited = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(inherited, True)  # noqa: FBT003
    guard = Guard.start(kill_directory=None, directories=())
    proc = Path(f"/proc/{guard.pid}")
    try:
        _until(lambda: (proc / "cwd").readlink() == Path("/"))
        fds = {entry.name: str(entry.readlink()) for entry in (proc / "fd").iterdir()}
        session = os.getsid(guard.pid)
    finally:
        guard.dismiss()
        os.close(inherited)

    assert set(fds) == {"0", "1", "2"}
    assert fds["0"].startswith("pipe:")
    assert fds["1"] == fds["2"] == "/dev/null"
    assert session == guard.pid


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_dismissed_guard_has_touched_nothing(guard: Guard, tmp_path: Path) -> None:
    (tmp_path / "group").mkdir()

    assert guard.is_at_post()
    guard.dismiss()
    guard.dismiss()

    assert not guard.is_at_post()
    assert (tmp_path / "group").exists()
    assert not Path(f"/proc/{guard.pid}").exists()


def test_a_guard_that_somebody_stopped_can_be_dismissed(guard: Guard) -> None:
    os.kill(guard.pid, signal.SIGSTOP)

    guard.dismiss()

    assert not Path(f"/proc/{guard.pid}").exists()


@pytest.mark.parametrize(
    "number", [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP]
)
def test_only_sigkill_drives_a_guard_from_its_post(guard: Guard, number: int) -> None:
    for _ in range(5):
        os.kill(guard.pid, number)
        time.sleep(0.01)

    assert guard.is_at_post()
    os.kill(guard.pid, signal.SIGKILL)
    _until(lambda: not guard.is_at_post())


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash", "/no/such/shell"])
def test_any_path_is_removed_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    """Plain directories stand in for groups; an empty one is removed as a group would be."""
    monkeypatch.setattr(guard_module, "_SHELL", shell)
    odd = tmp_path / "a b'c\"d$(e)\n*-f;"
    (odd / ".hidden" / "deep").mkdir(parents=True)
    (odd / "plain").mkdir()
    beside = tmp_path / "beside"
    (beside / "inner").mkdir(parents=True)
    (odd / "link").symlink_to(beside)
    guard = Guard.start(kill_directory=None, directories=(odd / "plain", odd / ".hidden"))

    pid = os.fork()  # a stand-in for the supervisor: the pipe it inherits is closed in it
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    still_there = (odd / "plain").exists()
    lifeline.cut(guard._lifeline_fd)
    os.waitpid(guard.pid, 0)
    guard._lifeline_fd = os.open(os.devnull, os.O_RDONLY)  # for dismiss() to close
    guard.dismiss()

    assert still_there
    assert sorted(path.name for path in odd.iterdir()) == ["link"]
    assert (beside / "inner").exists()


@pytest.mark.parametrize("kind", ["shell", "python"])
def test_a_guard_can_be_told_later_where_to_stand_and_what_to_end(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "python":
        monkeypatch.setattr(guard_module, "_SHELL", "/no/such/shell")
    parent = find_place(Roots()).v2
    assert parent is not None
    post, run = (parent / f"test-{name}-{os.getpid()}" for name in ("post", "run"))
    main = run / "main"
    post.mkdir()
    main.mkdir(parents=True)
    guard = Guard.start()
    guard.enter(post)
    guard.take_charge(run, (run, main))
    program = subprocess.Popen(["sh", "-c", f"echo 0 >{main}/cgroup.procs; exec sleep 60"])
    wait_until(lambda: str(program.pid) in (main / "cgroup.procs").read_text().split())
    wait_until(lambda: (post / "cgroup.procs").read_text().split() == [str(guard.pid)])

    assert guard.act()

    assert program.wait(TIMEOUT_SEC) == -signal.SIGKILL
    assert not run.exists()
    wait_until(lambda: not (post / "cgroup.procs").read_text())
    post.rmdir()


@pytest.mark.parametrize("kind", ["shell", "python"])
def test_a_guard_that_was_told_nothing_ends_nothing(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "python":
        monkeypatch.setattr(guard_module, "_SHELL", "/no/such/shell")

    assert Guard.start().act()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_SEC
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)
