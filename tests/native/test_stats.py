"""`sandbox stats` on real groups: at once, in pipes and on terminals, for whatever runs."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sandbox.control.running import RunningSandbox, running_sandboxes
from sandbox.kernel.find_group import find_group
from sandbox.kernel.roots import Roots

pytestmark = [
    pytest.mark.both,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to limit memory on this host"),
]

COLUMNS = "CONTAINER ID   NAME"
LONG_SEC = 25

Start = Callable[..., str]
Spawn = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(cli: Any) -> Iterator[Start]:
    """`start("name", *words)` runs a sandbox in the background; it is killed at the end."""
    started: list[str] = []

    def begin(name: str, *words: str, limits: tuple[str, ...] = ("-m", "64m")) -> str:
        done = cli("run", "-d", "--timeout", "40s", "--name", name, *limits, "--", *words)
        assert done.status == 0, done.stderr
        started.append(name)
        return str(done.stdout.strip())

    yield begin
    if started:
        cli("kill", *started)
        wait_for(lambda found: not found)


@pytest.fixture
def spawn(sandbox_home: Path) -> Iterator[Spawn]:
    """`spawn(*words)` starts `sandbox stats` with a pipe for its output."""
    spawned: list[subprocess.Popen[str]] = []

    def begin(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "sandbox", "stats", *words]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        spawned.append(process)
        return process

    yield begin
    for process in spawned:
        with process:
            process.kill()


def burn(seconds: float = LONG_SEC) -> tuple[str, ...]:
    return ("timeout", str(seconds), "sh", "-c", "while :; do :; done")


def until(file: Path) -> tuple[str, ...]:
    """A command that ends once there is a file."""
    return ("sh", "-c", 'until [ -e "$0" ]; do sleep 0.02; done', str(file))


def wait_for(one_is: Callable[[list[RunningSandbox]], bool]) -> list[RunningSandbox]:
    deadline = time.monotonic() + 10
    while True:
        found = running_sandboxes(others=False)
        if one_is(found) or time.monotonic() > deadline:
            return found
        time.sleep(0.02)


def percent(text: str) -> float:
    return float(text.removesuffix("%"))


def read_lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(count)]


def test_the_first_picture_has_figures_already(start: Start, spawn: Spawn) -> None:
    start("hot", *burn())
    wait_for(lambda found: any(one.started_ns for one in found))
    time.sleep(0.3)  # what it has used by then is no longer a rounding error

    header, row = read_lines(spawn("--interval", "1h"), 2)

    assert header.startswith(COLUMNS)
    fields = re.split(r" {3,}", row.strip())
    assert fields[1] == "hot"
    assert percent(fields[2]) > 1
    assert fields[3].endswith(" / 64MiB")
    assert int(fields[-1]) >= 2


def test_in_a_pipe_there_is_nothing_but_text_and_it_ends_with_the_last_one(
    start: Start, spawn: Spawn, tmp_path: Path
) -> None:
    start("first", *until(tmp_path / "first"))
    start("last", *until(tmp_path / "last"))
    wait_for(lambda found: len(found) == 2 and all(one.started_ns for one in found))

    process = spawn("first", "last", "--interval", "100ms")
    early = "".join(read_lines(process, 6))
    (tmp_path / "first").touch()
    (tmp_path / "last").touch()
    assert process.stdout is not None
    late = process.stdout.read()

    assert process.wait(15) == 0
    text = early + late
    assert "\033" not in text
    assert "\r" not in text
    assert early.count(COLUMNS) == 2
    assert early.count(" / 64MiB") == 4
    assert late.split(COLUMNS)[-1].count("0B / 0B             0.00%") == 2  # both have ended


def test_one_that_was_named_ends_in_zeros(start: Start, spawn: Spawn, tmp_path: Path) -> None:
    run_id = start("named", *until(tmp_path / "over"))
    wait_for(lambda found: any(one.started_ns for one in found))

    process = spawn("named", "--interval", "100ms", "--format", "json")
    lines = read_lines(process, 1)
    (tmp_path / "over").touch()
    assert process.stdout is not None
    lines += process.stdout

    rows = [json.loads(line) for line in lines]
    assert {row["Container"] for row in rows} == {"named"}
    assert {row["ID"] for row in rows} == {run_id}
    assert int(rows[0]["PIDs"]) >= 1
    assert rows[-1]["PIDs"] == "0"
    assert rows[-1]["MemUsage"] == "0B / 0B"


def test_raw_rows_come_every_ten_milliseconds(start: Start, spawn: Spawn) -> None:
    start("hot", *burn())
    wait_for(lambda found: any(one.started_ns for one in found))
    process = spawn("hot", "--interval", "10ms", "--jsonl")

    rows = [json.loads(line) for line in read_lines(process, 60)]

    times = [row["time_ns"] for row in rows]
    usages = [row["cpu_usage_ns"] for row in rows]
    assert times == sorted(set(times))
    assert usages == sorted(usages)
    assert min(after - before for before, after in pairwise(times)) < 100e6
    assert rows[0]["memory_limit_bytes"] == 64 << 20
    assert rows[0]["processes"] >= 1
    assert rows[0]["network"] == "host"


@pytest.mark.slow
def test_csv_has_its_header_once(start: Start, spawn: Spawn) -> None:
    start("steady", "sleep", "20")
    wait_for(lambda found: any(one.started_ns for one in found))

    lines = read_lines(spawn("steady", "--csv", "--interval", "50ms"), 5)

    rows = list(csv.DictReader(io.StringIO("".join(lines))))
    assert len(rows) == 4
    assert {(row["name"], row["state"]) for row in rows} == {("steady", "running")}
    assert all(row["memory_usage_bytes"].isdecimal() for row in rows)


@pytest.mark.slow
def test_the_api_s_object_is_whole(cli: Any, start: Start) -> None:
    run_id = start("api", *burn())
    wait_for(lambda found: any(one.started_ns for one in found))

    done = cli("stats", "api", "--no-stream", "--format", "api")

    answer = json.loads(done.stdout)
    assert (answer["id"], answer["name"]) == (run_id, "/api")
    assert answer["memory_stats"]["limit"] == 64 << 20
    now, before = answer["cpu_stats"], answer["precpu_stats"]
    assert now["cpu_usage"]["total_usage"] > before["cpu_usage"]["total_usage"]
    assert now["system_cpu_usage"] > before["system_cpu_usage"]
    assert now["online_cpus"] == os.cpu_count()


def test_any_group_is_shown_by_its_path(start: Start, spawn: Spawn) -> None:
    start("boxed", *burn(), limits=("-m", "64m", "--cpus", "0.5"))
    (one,) = wait_for(lambda found: any(one.started_ns for one in found))
    place = one.v1.get("memory", one.v2)
    assert place is not None

    process = spawn("--cgroup", str(place), "--interval", "100ms", "--format", "json", "--wide")
    first, *later = (json.loads(line) for line in read_lines(process, 5))

    assert (first["CPUPerc"], first["Name"]) == ("--", place.name)
    assert first["MemUsage"].endswith(" / 64MiB")
    assert int(first["PIDs"]) >= 2
    assert 5 < percent(later[-1]["CPULimitPerc"]) < 200
    assert later[-1]["Network"] == "host"
    found = find_group(str(place), Roots())
    assert (found.groups.v2, dict(found.groups.v1).keys() >= one.v1.keys()) == (one.v2, True)


@pytest.mark.slow
def test_all_shows_the_ended_too(cli: Any) -> None:
    assert cli("run", "--name", "past", "--", "true").status == 0

    lines = cli("stats", "-a", "--no-stream").stdout.splitlines()

    (past,) = (line for line in lines if " past " in line)
    assert past.split()[-1] == "0"
    assert not [line for line in cli("stats", "--no-stream").stdout.splitlines() if "past" in line]


@pytest.mark.slow
def test_watch_stays_for_those_that_come_later(start: Start, spawn: Spawn) -> None:
    process = spawn("--watch", "--interval", "50ms")
    assert all(COLUMNS in "".join(read_lines(process, 3)) for _ in range(2))

    start("later", "sleep", "10")

    assert process.stdout is not None
    assert any("later" in line for line in process.stdout)


# --- terminals ------------------------------------------------------------------------------------


# What a shell does: a job of its own that has the terminal, and waiting for it.
SHELL = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = subprocess.Popen(sys.argv[1:], process_group=0, restore_signals=True,
    preexec_fn=lambda: signal.signal(signal.SIGTTOU, signal.SIG_DFL))
os.tcsetpgrp(0, job.pid)
status = job.wait()
sys.exit(status if status >= 0 else 128 - status)
"""


class Terminal:
    """A terminal with a shell that has started `sandbox stats` on it."""

    def __init__(self, *words: str) -> None:
        self.fd, self.inside = pty.openpty()
        self.before = termios.tcgetattr(self.inside)
        command = [sys.executable, "-c", SHELL, sys.executable, "-m", "sandbox", "stats", *words]
        self.process = subprocess.Popen(
            command,
            start_new_session=True,
            preexec_fn=lambda: os.login_tty(os.dup(self.inside)),  # noqa: PLW1509 - one thread
        )
        self.seen = ""

    @property
    def job(self) -> int:
        """Return the process of `sandbox stats`."""
        return os.tcgetpgrp(self.fd)

    def send(self, keys_or_signal: str | signal.Signals) -> None:
        if isinstance(keys_or_signal, str):
            os.write(self.fd, keys_or_signal.encode())
        else:
            os.kill(self.job, keys_or_signal)

    def read_until(self, wanted: str, *, times: int = 1) -> None:
        deadline = time.monotonic() + 15
        while self.seen.count(wanted) < times and time.monotonic() < deadline:
            if select.select([self.fd], [], [], 0.05)[0]:
                self.seen += os.read(self.fd, 65536).decode()
        assert self.seen.count(wanted) >= times, self.seen

    def close(self) -> None:
        self.process.kill()  # the terminal hangs up with its leader, and so the job ends
        self.process.wait(10)
        os.close(self.fd)
        os.close(self.inside)


@pytest.fixture
def terminal(sandbox_home: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def begin(*words: str) -> Terminal:
        opened.append(Terminal(*words))
        return opened[-1]

    yield begin
    for one in opened:
        one.close()


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("q", 0),
        pytest.param("\x03", 130, marks=pytest.mark.slow),
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow),
    ],
    ids=["q", "ctrl-c", "term", "hang-up"],
)
def test_the_terminal_is_as_it_was(
    start: Start, terminal: Callable[..., Terminal], ending: str | signal.Signals, status: int
) -> None:
    start("shown", "sleep", "20")
    one = terminal("shown", "--interval", "50ms")
    one.read_until(COLUMNS, times=3)
    assert termios.tcgetattr(one.inside)[3] & termios.ICANON == 0

    one.send(ending)

    assert one.process.wait(15) == status
    one.read_until("\033[?25h")
    assert termios.tcgetattr(one.inside) == one.before
    assert one.seen.rstrip().endswith("\033[?7h\033[?25h")
    assert "\033[2A" in one.seen  # the second picture is drawn over the first


@pytest.mark.slow
def test_it_ends_on_a_terminal_too(
    start: Start, terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    start("brief", *until(tmp_path / "over"))

    one = terminal("brief", "--interval", "50ms")
    one.read_until("brief")
    (tmp_path / "over").touch()

    assert one.process.wait(15) == 0
    one.read_until("\033[?25h")
    assert "0B / 0B" in one.seen.rpartition("\033[2A")[2]


@pytest.mark.slow
def test_stopped_by_the_shell_it_gives_the_terminal_back_and_takes_it_again(
    start: Start, terminal: Callable[..., Terminal]
) -> None:
    start("shown", "sleep", "20")
    one = terminal("shown", "--interval", "50ms")
    one.read_until(COLUMNS)

    one.send("\x1a")
    deadline = time.monotonic() + 10
    while _state(one.job) != "T" and time.monotonic() < deadline:
        time.sleep(0.01)

    assert _state(one.job) == "T"
    assert termios.tcgetattr(one.inside) == one.before
    one.send(signal.SIGCONT)
    one.seen = ""
    one.read_until(COLUMNS, times=2)
    one.send("q")
    assert one.process.wait(15) == 0


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
