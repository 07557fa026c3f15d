"""What must hold when a run ends: by itself, by a signal, or because the supervisor is killed."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sandbox.kernel.place import find_place
from sandbox.kernel.roots import Roots
from sandbox.records.host import Mode

both = pytest.mark.both

PYTHON = sys.executable
SLEEPERS = """
import os, signal, sys, time
# One child stays, one leaves the session, one is a daemon, one stops itself.
for kind in ("plain", "setsid", "daemon", "stopped"):
    if os.fork() == 0:
        if kind != "plain":
            os.setsid()
        if kind == "daemon" and os.fork():
            os._exit(0)
        if kind == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(60)
        os._exit(0)
time.sleep(0.2)
print("ready", flush=True)
time.sleep(float(sys.argv[1]))
"""


def python(source: str, *arguments: object) -> list[str]:
    return [PYTHON, "-I", "-S", "-c", source, *map(str, arguments)]


@contextmanager
def supervised(home: Path, *words: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A `sandbox run` that goes on while the test looks; killed at the end in any case."""
    command = [PYTHON, "-m", "sandbox", "run", *words]
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.PIPE)
    options.setdefault("stdin", subprocess.DEVNULL)
    process = subprocess.Popen(
        command, text=True, env={**os.environ, "SANDBOX_HOME": str(home)}, **options
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(timeout=20)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def wait_for(condition: Callable[[], Any], seconds: float, what: str) -> float:
    """Return how long it took."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > seconds:
            pytest.fail(f"not within {seconds} s: {what}")
        time.sleep(0.002)
    return time.monotonic() - start


def the_run(home: Path) -> dict[str, Any]:
    (directory,) = home.glob("runs/*")
    run: dict[str, Any] = json.loads((directory / "run.json").read_text())
    return run


def groups_of(home: Path) -> list[Path]:
    (file,) = home.glob("runs/*/groups.json")
    return [Path(text) for text in json.loads(file.read_text())]


def processes_in(groups: list[Path]) -> set[int]:
    inside: set[int] = set()
    for group in groups:
        try:
            inside.update(map(int, (group / "cgroup.procs").read_text().split()))
        except OSError:
            continue
    return inside


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


# --- by itself


def test_t10_a_program_that_ignores_every_signal_dies_when_told_twice(
    sandbox_home: Path, load: Callable[..., list[str]]
) -> None:
    with supervised(sandbox_home, "--", *load("ignore_signals", 60)) as process:
        ready(process)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        assert process.poll() is None, "a program that ignores TERM has its grace"
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=20)

    assert the_run(sandbox_home)["outcome"] == "killed"


def test_t11_t12_what_outlives_the_main_process_is_killed_and_counted(
    cli: Callable[..., Any], sandbox_home: Path, load: Callable[..., list[str]]
) -> None:
    done = cli("run", "--", *load("daemonize", 60))

    assert done.status == 0
    assert the_run(sandbox_home)["leftover_processes"] == 1
    assert not is_alive(int(done.stdout))
    assert the_run(sandbox_home)["wall_ns"] < 20e9


@both
def test_t11_all_kinds_of_children_die_at_the_end(
    cli: Callable[..., Any], sandbox_home: Path
) -> None:
    done = cli("run", "--", *python(SLEEPERS, 0))

    assert done.status == 0
    assert the_run(sandbox_home)["leftover_processes"] == 4


@both
def test_with_wait_all_the_run_lasts_as_long_as_its_last_process(
    cli: Callable[..., Any], sandbox_home: Path, load: Callable[..., list[str]]
) -> None:
    done = cli("run", "--wait-all", "--", *load("daemonize", 0.5))

    assert done.status == 0
    run = the_run(sandbox_home)
    assert run["wall_ns"] >= 500_000_000
    assert run["leftover_processes"] == 0


NEST = """
import os, pathlib, sys, time
inside = [l.split(":", 2) for l in open("/proc/self/cgroup").read().split()]
path = next(p for n, c, p in inside if n == "0")
top = "/sys/fs/cgroup/unified" if os.path.exists("/sys/fs/cgroup/unified") else "/sys/fs/cgroup"
nested = pathlib.Path(top + path) / "a" / "b"
nested.mkdir(parents=True)
if os.fork() == 0:
    (nested / "cgroup.procs").write_text("0")
    (nested / "cgroup.freeze").write_text("1")
    time.sleep(60)
time.sleep(0.3)
for name in ("cgroup.procs", "cgroup.freeze", "cgroup.kill"):
    (nested / name).chmod(0)
nested.chmod(0)
"""


@both
def test_t14_t15_a_frozen_child_in_closed_nested_groups_is_killed_and_removed(
    cli: Callable[..., Any], sandbox_home: Path, need_kernel: Callable[..., None]
) -> None:
    need_kernel(find_place(Roots()).mode is not Mode.NONE, "no group can be made here")
    done = cli("run", "--", *python(NEST))

    assert done.status == 0, done.stderr
    run = the_run(sandbox_home)
    assert run["leftover_processes"] == 1
    assert not any(group.exists() for group in map(Path, run["groups"]))


def test_t17_a_group_with_leftover_page_cache_and_a_zombie_is_removed(
    cli: Callable[..., Any], sandbox_home: Path, tmp_path: Path
) -> None:
    source = """
import os, sys
open(sys.argv[1], "wb").write(b"x" * (8 << 20))
if os.fork() == 0:
    os._exit(0)
"""
    done = cli("run", "--", *python(source, tmp_path / "file"))

    assert done.status == 0
    assert not any(group.exists() for group in map(Path, the_run(sandbox_home)["groups"]))


# --- by a signal


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP])
def test_t18_t20_a_signal_to_the_supervisor_ends_the_tree_and_keeps_the_result(
    sandbox_home: Path, number: signal.Signals
) -> None:
    with supervised(sandbox_home, "--", *python(SLEEPERS, 60)) as process:
        ready(process)
        process.send_signal(number)
        process.wait(timeout=20)

    assert process.returncode == 128 + number
    run = the_run(sandbox_home)
    assert run["outcome"] == "killed"
    assert number.name in run["reason"]
    assert run["totals"]["cpu_usage_usec"] > 0
    assert run["leftover_processes"] == 4


@both
def test_a_program_that_handles_term_ends_in_its_own_way(sandbox_home: Path) -> None:
    script = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done"
    with supervised(sandbox_home, "--", "sh", "-c", script) as process:
        ready(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 7


@both
@pytest.mark.parametrize("kind", ["running", "frozen"])
def test_t19_a_killed_supervisor_leaves_no_process_and_no_group(
    sandbox_home: Path, kind: str
) -> None:
    with supervised(sandbox_home, "--memory", "256m", "--", *python(SLEEPERS, 60)) as process:
        ready(process)
        groups = groups_of(sandbox_home)
        inside = processes_in(groups)
        assert len(inside) >= 5
        if kind == "frozen":
            next(g for g in groups if (g / "cgroup.freeze").exists()).joinpath(
                "cgroup.freeze"
            ).write_text("1")
        process.kill()
        wait_for(lambda: not any(map(is_alive, inside)), 10, "every process dead")
        wait_for(lambda: not any(group.exists() for group in groups), 10, "every group gone")


def test_t19_a_killed_supervisor_in_the_first_moments_leaves_nothing(sandbox_home: Path) -> None:
    for delay in (0.0, 0.05, 0.1, 0.13, 0.16, 0.2):
        with supervised(sandbox_home, "--", "sleep", "60") as process:
            time.sleep(delay)
            process.kill()
            process.wait(timeout=10)

    def left() -> list[Path]:
        files = sandbox_home.glob("runs/*/groups.json")
        return [
            Path(text)
            for file in files
            for text in json.loads(file.read_text())
            if Path(text).exists()
        ]

    wait_for(lambda: not left(), 10, "groups of killed supervisors are gone")


def test_a_lost_run_is_shown_as_lost_and_clean_has_nothing_to_do(
    cli: Callable[..., Any], sandbox_home: Path
) -> None:
    with supervised(sandbox_home, "--", *python(SLEEPERS, 60)) as process:
        ready(process)
        groups = groups_of(sandbox_home)
        process.kill()
        process.wait(timeout=10)
        wait_for(lambda: not any(group.exists() for group in groups), 10, "groups are gone")

    assert "lost" in cli("runs", "ls").stdout
    # Other people's runs may be on this machine too, and are left alone.
    cleaned = cli("clean")
    assert the_run(sandbox_home)["run_id"] not in cleaned.stdout + cleaned.stderr


@both
def test_clean_ends_what_even_the_guard_has_left_and_spares_what_is_in_use(
    cli: Callable[..., Any], sandbox_home: Path
) -> None:
    with (
        supervised(sandbox_home, "--name", "used", "--", *python(SLEEPERS, 60)) as used,
    ):
        ready(used)
        with supervised(sandbox_home, "--name", "lost", "--", *python(SLEEPERS, 60)) as lost:
            ready(lost)
            (guard,) = (
                int(pid)
                for pid in Path(f"/proc/{lost.pid}/task/{lost.pid}/children").read_text().split()
                if b"guard" in Path(f"/proc/{pid}/cmdline").read_bytes()
            )
            os.kill(guard, signal.SIGKILL)
            lost.kill()
            lost.wait(timeout=10)
            done = cli("clean")
        assert "5 processes killed" in done.stdout, done.stderr
        assert used.poll() is None
        runs = json.loads("[" + ",".join(cli("runs", "ls", "--json").stdout.split("\n")[:-1]) + "]")
        by_name = {run["name"]: run for run in runs}
        assert by_name["lost"]["outcome"] == "supervisor_lost"
        assert not any(Path(group).exists() for group in by_name["lost"]["groups"])
        assert all(Path(group).exists() for group in by_name["used"]["groups"])
        used.terminate()
        used.wait(timeout=20)


# --- in a terminal


def in_a_terminal(home: Path, *words: str) -> tuple[int, int]:
    """Start `sandbox run` as the foreground of a terminal of its own; return pid and its end."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ["SANDBOX_HOME"] = str(home)
        os.execv(PYTHON, [PYTHON, "-m", "sandbox", "run", *words])
    return pid, fd


def read_until(fd: int, text: bytes, seconds: float = 20) -> bytes:
    seen = b""
    end = time.monotonic() + seconds
    while text not in seen:
        assert time.monotonic() < end, seen
        try:
            seen += os.read(fd, 4096)
        except OSError:
            break
    return seen


COUNT_INTERRUPTS = """
import signal, sys, time
got = []
signal.signal(signal.SIGINT, lambda *_: got.append(1))
print("ready", flush=True)
end = time.monotonic() + 1.0
while time.monotonic() < end:
    time.sleep(0.05)
print("interrupts", len(got), flush=True)
sys.exit(len(got))
"""


@both
def test_control_c_reaches_the_program_once_and_its_status_is_kept(sandbox_home: Path) -> None:
    pid, fd = in_a_terminal(sandbox_home, "--", *python(COUNT_INTERRUPTS))
    try:
        read_until(fd, b"ready")
        os.write(fd, b"\x03")
        assert b"interrupts 1" in read_until(fd, b"interrupts")
        while True:
            try:
                if not os.read(fd, 4096):
                    break
            except OSError:
                break
    finally:
        _, status = os.waitpid(pid, 0)
        os.close(fd)

    assert os.waitstatus_to_exitcode(status) == 1
    assert the_run(sandbox_home)["outcome"] == "exited"


def test_t20_the_end_of_the_terminal_ends_the_run(sandbox_home: Path) -> None:
    pid, fd = in_a_terminal(sandbox_home, "--", *python(SLEEPERS, 60))
    read_until(fd, b"ready")
    groups = groups_of(sandbox_home)
    os.close(fd)
    wait_for(lambda: not any(group.exists() for group in groups), 20, "the run has ended")
    os.waitpid(pid, 0)

    assert the_run(sandbox_home)["outcome"] in {"killed", "signaled"}


def test_the_program_keeps_its_terminal_and_is_its_foreground(
    sandbox_home: Path, load: Callable[..., list[str]]
) -> None:
    pid, fd = in_a_terminal(sandbox_home, "-q", "--", *load("tty"))
    seen = read_until(fd, b"foreground=")
    seen += read_until(fd, b"\n")
    os.waitpid(pid, 0)
    os.close(fd)

    assert b"stdin=True stdout=True stderr=True" in seen
    assert b"foreground=True" in seen
