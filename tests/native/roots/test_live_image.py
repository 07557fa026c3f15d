"""All that can be done to a run, done to runs in an image; read in the kernel and in the record."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sandbox.control.ending import send_signal
from sandbox.control.naming import Names
from sandbox.control.running import running_sandboxes
from sandbox.errors import SandboxError

MIB = 1 << 20
HEARS_INT = "trap 'echo interrupted; exit 7' INT; trap 'exit 8' TERM; echo up; "
HEARS_INT += "while true; do sleep 0.02; done"

Command = Callable[..., Any]
Eventually = Callable[..., bool]
IDLE = "while :; do sleep 0.05; done"


@pytest.fixture
def image(make_image: Callable[..., str]) -> str:
    return make_image(config={"StopSignal": "SIGINT"})


@pytest.fixture
def start(cli: Command, image: str) -> Iterator[Command]:
    """`start("x", "echo up")` runs a script in the background; all of them are ended."""

    def run(name: str, script: str, *flags: str) -> Any:
        words = ("run", "-d", "--name", name, "--image", image, *flags, "--", "sh", "-c", script)
        done = cli(*words)
        assert done.status == 0, done.stderr
        return Names().running(name)

    yield run
    for one in running_sandboxes(others=False):
        with suppress(SandboxError):
            send_signal(one, signal.SIGKILL)


def run_files(home: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in home.glob("runs/*/run.json")]


def test_one_in_the_background_is_seen_changed_paused_and_stopped_by_its_images_signal(
    cli: Command, start: Command, sandbox_home: Path, eventually: Eventually
) -> None:
    one = start("kept", HEARS_INT, "-m", "64m", "--cpus", "1")
    output = sandbox_home / "runs" / one.id / "stdout"
    assert eventually(lambda: output.exists() and "up" in output.read_text())

    listed = cli("ps", "--format", "{{.Names}}")
    stats = cli("stats", "--no-stream", "--format", "{{.Name}} {{.MemUsage}} {{.PIDs}}", "kept")
    changed = cli("update", "-m", "96m", "kept")
    paused = cli("pause", "kept")
    state = cli("inspect", "--format", "{{.State.Status}}", "kept")
    going = cli("unpause", "kept")
    stopped = cli("stop", "kept")
    waited = cli("wait", "kept")

    assert "kept" in listed.stdout.split()
    assert "/ 64MiB" in stats.stdout
    assert int(stats.stdout.split()[-1]) >= 1
    assert [done.status for done in (changed, paused, going, stopped)] == [0] * 4
    assert state.stdout.strip() == "paused"
    assert waited.stdout.strip() == "7"  # its handler of SIGINT, not of SIGTERM
    assert "interrupted" in output.read_text()
    (record,) = run_files(sandbox_home)
    limits = {limit["name"]: limit for limit in record["limits"]}
    assert limits["memory"]["asked"] == "96 MiB"
    assert record["summary"]["samples"] > 2
    assert record["totals"]["cpu_usage_usec"] > 0
    assert not list(sandbox_home.glob("runs/*/root"))


@pytest.mark.slow
def test_one_that_is_killed_says_so_and_leaves_nothing(
    cli: Command, start: Command, sandbox_home: Path
) -> None:
    start("doomed", f"sleep 60 & touch /written; {IDLE}")

    assert cli("kill", "doomed").status == 0
    assert cli("wait", "doomed").stdout.strip() == "137"

    (record,) = run_files(sandbox_home)
    assert (record["outcome"], record["exit_code"]) == ("killed", 137)
    assert not list(sandbox_home.glob("runs/*/root"))


@pytest.mark.slow
def test_two_runs_of_one_image_share_nothing_that_they_write(
    cli: Command, start: Command, sandbox_home: Path, eventually: Eventually
) -> None:
    script = "echo {0} >/tmp/who; sleep 0.5; cat /tmp/who; ls /tmp"

    runs = [start(name, script.format(name)) for name in ("one", "two")]

    for run, name in zip(runs, ("one", "two"), strict=True):
        assert cli("wait", name).stdout.strip() == "0"
        output = sandbox_home / "runs" / run.id / "stdout"
        assert output.read_text() == f"{name}\nwho\n"


@pytest.mark.slow
def test_an_image_stays_while_something_runs_in_it(
    cli: Command, start: Command, image: str, sandbox_home: Path
) -> None:
    start("holder", f"cat /etc/passwd; {IDLE}")

    refused = cli("image", "rm", image)
    pruned = cli("image", "prune", "--all")
    inside = cli("run", "-q", "--image", image, "--", "cat", "/etc/group")
    cli("kill", "holder")
    cli("wait", "holder")
    removed = cli("image", "rm", image)

    assert refused.status == 1
    assert "is in use" in refused.stderr
    assert pruned.status == 0
    assert inside.status == 0, inside.stderr
    assert "video:x:44" in inside.stdout
    assert removed.status == 0, removed.stderr
    assert not list((sandbox_home / "images/layers").iterdir())
    assert cli("run", "--image", image, "--", "true").status == 125


@pytest.mark.parametrize(
    ("flags", "script", "status", "outcome"),
    [
        (("--timeout", "300ms"), "sleep 60 & sleep 60", 124, "timed_out"),
        pytest.param(
            *(("--cpu-time", "200ms"), "(while :; do :; done) & wait", 124, "cpu_time_exceeded"),
            marks=pytest.mark.slow,
        ),
        (("-m", "16m"), "head -c 90000000 /dev/zero | sort >/dev/null", 137, "oom_killed"),
        (("-m", "16m", "--oom-continue"), "head -c 90000000 /dev/zero | sort; exit 5", 5, "exited"),
    ],
    ids=["time", "CPU time", "memory", "memory, going on"],
)
def test_limits_end_runs_in_an_image_as_anywhere(
    cli: Command,
    image: str,
    sandbox_home: Path,
    flags: tuple[str, ...],
    script: str,
    status: int,
    outcome: str,
) -> None:
    done = cli("run", "-q", "--image", image, *flags, "--", "sh", "-c", script)

    assert done.status == status, done.stderr
    (record,) = run_files(sandbox_home)
    assert record["outcome"] == outcome
    assert record["leftover_processes"] is not None
    assert bool(record["oom_kills"]) == ("-m" in flags)
    assert not list(sandbox_home.glob("runs/*/root"))


@pytest.mark.slow
def test_the_memory_of_shm_and_of_tmpfs_counts_as_the_runs(
    cli: Command, image: str, sandbox_home: Path
) -> None:
    script = "for i in /dev/shm/x /t/x; do dd if=/dev/zero of=$i bs=1M count=20; done"

    done = cli(
        *("run", "-q", "-m", "200m", "--tmpfs", "/t", "--image", image, "--", "sh", "-c", script)
    )

    assert done.status == 0, done.stderr
    (record,) = run_files(sandbox_home)
    assert record["totals"]["memory_peak_bytes"] >= 40 * MIB


def run_in(image: str, script: str) -> list[str]:
    sandbox = [sys.executable, "-m", "sandbox"]
    return [*sandbox, "run", "-q", "--image", image, "--", "sh", "-c", script]


def test_a_killed_supervisor_takes_its_image_run_with_it(
    image: str, sandbox_home: Path, eventually: Eventually
) -> None:
    mark = f"sleep {60_000 + os.getpid()}"
    script = f"touch /written; (setsid {mark} &) ; {mark}"
    words = run_in(image, script)
    process = subprocess.Popen(words)

    def sleepers() -> int:
        done = subprocess.run(["pgrep", "-fxc", mark], capture_output=True, text=True, check=False)
        return int(done.stdout)

    assert eventually(lambda: sleepers() >= 1)
    process.kill()
    process.wait(10)

    assert eventually(lambda: sleepers() == 0)
    assert eventually(lambda: not list(sandbox_home.glob("runs/*/root")))


def test_a_terminal_of_its_own_follows_the_size_of_ours(image: str) -> None:
    master, slave = pty.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 70, 0, 0))
    script = "tty; stty size; trap 'stty size; exit 3' WINCH; echo up; while :; do sleep 0.02; done"
    words = run_in(image, script)
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            for fd in range(3):
                os.dup2(slave, fd)
            os.execv(words[0], words)
        finally:
            os._exit(99)
    said, status, deadline = b"", None, time.monotonic() + 20
    try:
        while status is None and time.monotonic() < deadline:
            if select.select([master], [], [], 0.02)[0]:
                said += os.read(master, 4096)
                if said.endswith(b"up\r\n"):
                    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
            elif (ended := os.waitpid(pid, os.WNOHANG))[0]:
                status = os.waitstatus_to_exitcode(ended[1])
        if status is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    finally:
        os.close(slave)
        os.close(master)

    assert said.decode().splitlines()[:3] == ["/dev/pts/0", "20 70", "up"]
    assert "33 99" in said.decode()
    assert status == 3


@pytest.mark.slow
def test_an_init_reaps_and_the_signal_of_the_image_passes_through_it(
    cli: Command, start: Command, sandbox_home: Path, eventually: Eventually
) -> None:
    one = start(
        "tended", f"(sleep 0.01 &); sleep 0.3; ps -o stat | grep -c Z; {HEARS_INT}", "--init"
    )
    output = sandbox_home / "runs" / one.id / "stdout"
    assert eventually(lambda: output.exists() and "up" in output.read_text())

    assert cli("stop", "tended").status == 0
    assert cli("wait", "tended").stdout.strip() == "7"

    assert output.read_text().splitlines() == ["0", "up", "interrupted"]


def test_nothing_of_the_callers_ways_gets_inside(image: str, sandbox_home: Path) -> None:
    words = [sys.executable, "-m", "sandbox", "run", "-q", "--image", image, "--", "sh", "-c"]
    script = 'umask; stat -c %a / /etc/hosts; grep -c "127.0.1.1.$(hostname)$" /etc/hosts; pwd'

    for way in ("auto", "off"):
        done = subprocess.run(
            [*words, script],
            env={**os.environ, "SANDBOX_OVERLAY": way},
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            umask=0o077,
        )

        assert done.stdout == "0022\n755\n644\n1\n/\n", done.stderr
