"""The commands for running sandboxes, on real runs: what they do is read in the kernel."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import sandbox
from sandbox.control.ending import send_signal, wait_until_over
from sandbox.control.naming import Names
from sandbox.control.request import DeafError, RefusedError, ask
from sandbox.control.running import RunningSandbox, running_sandboxes
from sandbox.errors import SandboxError
from sandbox.kernel.place import find_place
from sandbox.kernel.roots import Roots
from sandbox.records.host import Mode
from sandbox.records.stats import State

both = pytest.mark.both
Command = Callable[..., Any]
MIB = 1 << 20
PATIENCE_SEC = 15.0


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SEC
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


@pytest.fixture
def _with_groups(need_kernel: Callable[[object, str], None]) -> None:
    need_kernel(find_place(Roots()).mode is not Mode.NONE, "no group can be made here")


@pytest.fixture
def start(cli: Command, _with_groups: None, sandbox_home: Path) -> Iterator[Command]:
    """`start("x", "sleep", "60")` runs a command in the background; all of them are ended."""

    def run(name: str, *command: str, flags: tuple[str, ...] = ()) -> RunningSandbox:
        done = cli("run", "-d", "--name", name, *flags, "--", *command)
        assert done.status == 0, done.stderr
        return Names().running(name)

    yield run
    for one in running_sandboxes(others=False):
        if one.supervisor_pid is not None:
            os.kill(one.supervisor_pid, signal.SIGCONT)
        with suppress(SandboxError):
            send_signal(one, signal.SIGKILL)
        assert wait_until_over(one, PATIENCE_SEC)


def state_of(one: RunningSandbox) -> State:
    return Names().running(one.id).state


def kinds(name: str) -> list[str]:
    return [event.kind for event in sandbox.load(name).events()]


@both
def test_a_sandbox_is_listed_paused_changed_let_go_and_stopped(
    cli: Command, start: Command
) -> None:
    start("x", "sleep", "60", flags=("-m", "64m"))

    assert cli("pause", "x").stdout == "x\n"
    # Others may use this machine: root sees their runs, too.
    listed = json.loads(cli("ps", "--format", "json", "--filter", "name=x").stdout)
    assert (listed["Names"], listed["State"], listed["PIDs"]) == ("x", "paused", "1")

    assert cli("update", "--cpus", "0.5", "-m", "32m", "--pids-limit", "77", "x").stdout == "x\n"
    (view,) = json.loads(cli("inspect", "x").stdout)
    host = view["HostConfig"]
    assert (host["NanoCpus"], host["Memory"], host["PidsLimit"]) == (500_000_000, 32 * MIB, 77)
    assert view["State"]["Status"] == "paused"
    main = Path("/proc", str(view["State"]["Pid"]), "cmdline").read_bytes()
    assert main == b"sleep\x0060\x00"

    assert cli("unpause", "x").status == 0
    assert state_of(Names().running("x")) is State.RUNNING
    assert cli("stop", "x").stdout == "x\n"
    assert cli("ps", "-q", "--filter", "name=x").stdout == ""

    result = sandbox.load("x").result
    assert kinds("x") == ["pause", "update", "unpause", "stop", "ended"]
    assert (result.outcome, result.exit_code) == ("killed", 143)
    assert result.reason.startswith("stopped by `sandbox stop` of ")
    assert {warning.code for warning in result.warnings} >= {"updated", "paused"}
    memory = next(limit for limit in result.limits if limit.name == "memory")
    assert (memory.asked, memory.state) == ("32 MiB", "enforced")


@both
def test_a_paused_run_uses_nothing_and_can_be_killed(start: Command, load: Command) -> None:
    one = start("frozen", *load("burn", 60))
    ask(one, {"act": "pause"})
    assert one.v2 is not None
    stat = one.v2 / "cpu.stat"
    until(lambda: state_of(one) is State.PAUSED)
    before = stat.read_text().split()[1]
    time.sleep(0.05)  # if it ran, it would have used half of that
    assert stat.read_text().split()[1] == before

    send_signal(one, signal.SIGKILL)

    result = sandbox.load("frozen").result
    assert (result.outcome, result.exit_code, result.program_signal) == ("killed", 137, 9)
    assert result.reason.startswith("killed by `sandbox kill` of ")
    assert not any(Path(group).exists() for group in result.groups)


@both
def test_a_paused_run_whose_supervisor_is_killed_dies_too(start: Command) -> None:
    one = start("orphan", "sleep", "60")
    ask(one, {"act": "pause"})
    assert one.supervisor_pid is not None

    os.kill(one.supervisor_pid, signal.SIGKILL)

    assert wait_until_over(one, PATIENCE_SEC)
    groups = [Path(group) for group in sandbox.load("orphan").result.groups]
    until(lambda: not any(group.exists() for group in groups))
    assert sandbox.load("orphan").result.outcome == "supervisor_lost"


@both
def test_a_paused_run_takes_the_signal_that_stops_it(start: Command) -> None:
    one = start("napping", "sh", "-c", "trap 'exit 7' TERM; while :; do sleep 0.01; done")
    ask(one, {"act": "pause"})

    ask(one, {"act": "stop", "signal": None, "grace_ns": -1})

    assert wait_until_over(one, PATIENCE_SEC)
    assert sandbox.load("napping").result.exit_code == 7


@both
@pytest.mark.slow
def test_a_paused_run_ends_at_its_time_limit(start: Command) -> None:
    one = start("late", "sleep", "60", flags=("--timeout", "300ms", "--stop-timeout", "20s"))
    ask(one, {"act": "pause"})

    assert wait_until_over(one, PATIENCE_SEC)

    assert sandbox.load("late").result.outcome == "timed_out"
    assert sandbox.load("late").result.program_signal == signal.SIGTERM


@both
@pytest.mark.slow
def test_what_does_not_stop_is_killed_after_its_grace(cli: Command, start: Command) -> None:
    start("deaf", "sh", "-c", "trap '' TERM; while :; do sleep 1; done")

    assert cli("stop", "-t", "100ms", "deaf").status == 0

    result = sandbox.load("deaf").result
    assert (result.outcome, result.exit_code) == ("killed", 137)
    assert "stopped by `sandbox stop`" in result.reason


@both
@pytest.mark.slow
def test_another_signal_reaches_the_program_alone(cli: Command, start: Command) -> None:
    start("chatty", "sh", "-c", "trap 'exit 9' USR1; sleep 60 & wait")

    assert cli("kill", "-s", "USR1", "chatty").stdout == "chatty\n"

    assert cli("wait", "chatty").stdout == "9\n"
    assert sandbox.load("chatty").result.outcome == "exited"


@both
def test_a_signal_that_ends_the_program_says_who_sent_it(start: Command) -> None:
    one = start("hit", "sleep", "60")
    send_signal(one, signal.SIGINT)

    assert wait_until_over(one, PATIENCE_SEC)
    result = sandbox.load("hit").result

    assert (result.outcome, result.exit_code) == ("killed", 130)
    assert "`sandbox kill`" in result.reason


def test_waiting_prints_each_exit_status_as_docker_does(cli: Command, start: Command) -> None:
    cli("run", "-q", "--name", "over", "--", "sh", "-c", "exit 3")
    start("going", "sh", "-c", "sleep 0.3; exit 4")

    done = cli("wait", "going", "over", "nothing")

    assert (done.stdout, done.status) == ("4\n3\n", 1)
    assert done.stderr.count("error:") == 1
    assert "no such sandbox: nothing" in done.stderr


def test_each_name_that_is_unknown_is_one_error_and_the_others_are_done(
    cli: Command, start: Command
) -> None:
    one = start("known", "sleep", "60")

    done = cli("pause", "unknown", one.id[:8], "../known")

    assert (done.status, done.stdout) == (1, f"{one.id[:8]}\n")
    assert done.stderr.count("error: no such sandbox: ") == 2
    assert "Traceback" not in done.stderr
    assert state_of(one) is State.PAUSED


def test_what_has_ended_can_be_stopped_again_but_not_killed(
    cli: Command, sandbox_home: Path
) -> None:
    cli("run", "-q", "--name", "over", "--", "true")

    assert cli("stop", "over").status == 0
    done = cli("kill", "over")

    assert done.status == 1
    assert "over is not running: exited 0" in done.stderr


# --- limits that cannot be


@both
def test_an_update_that_cannot_be_leaves_everything_as_it_was(start: Command) -> None:
    one = start("same", "sleep", "60", flags=("--cpus", "1"))

    for limits, words in (
        ({"cpus": 10_000.0}, "CPUs were asked for"),
        ({"memory_bytes": 5}, "too small"),
        ({"cpus": "many"}, "these are no limits"),
        ({"timeout_ns": 5}, "no limit that can be changed"),
        ({}, "no limit is given"),
    ):
        with pytest.raises(RefusedError, match=words):
            ask(one, {"act": "update", "limits": {"pids": 50, **limits} if limits else limits})

    (view,) = [row for row in running_sandboxes(others=False) if row.id == one.id]
    assert view.result is not None
    pids = next(limit for limit in view.result.limits if limit.name == "pids")
    assert (pids.asked, pids.by_default) == ("4096", True)
    assert "update" not in kinds("same")


def test_less_memory_than_is_in_use_is_refused_on_v1_and_nothing_else_changes(
    start: Command, load: Command, need_kernel: Callable[[object, str], None]
) -> None:
    need_kernel(find_place(Roots()).mode is Mode.HYBRID, "cgroup v2 kills instead")
    script = "import time; block = b'1' * (96 << 20); print(flush=True); time.sleep(60)"
    python = os.path.realpath(sys.executable)
    one = start("full", python, "-I", "-S", "-c", script, flags=("-m", "256m"))
    output = sandbox.load("full").output_paths()
    assert output is not None
    until(output[0].read_bytes)

    with pytest.raises(RefusedError, match="more than that is in use") as caught:
        ask(one, {"act": "update", "limits": {"memory_bytes": 32 * MIB, "cpus": 0.5}})

    assert caught.value.hint == "nothing was changed"
    memory = one.v1["memory"]
    assert int((memory / "memory.limit_in_bytes").read_text()) == 256 * MIB
    assert int((memory / "memory.memsw.limit_in_bytes").read_text()) == 256 * MIB
    assert "update" not in kinds("full")


@both
@pytest.mark.slow
def test_a_new_cpu_limit_holds_the_program_from_then_on(start: Command, load: Command) -> None:
    one = start("fast", *load("burn", 60), flags=("--cpus", "1"))
    ask(one, {"act": "update", "limits": {"cpus": 0.2}})
    assert one.v2 is not None

    def used_usec() -> int:
        return int((one.v2 / "cpu.stat").read_text().split()[1])  # type: ignore[operator]

    before, began = used_usec(), time.monotonic()
    time.sleep(0.6)
    share = (used_usec() - before) / 1e6 / (time.monotonic() - began)

    assert share < 0.6  # of the CPU that it had before


@both
@pytest.mark.slow
def test_a_limit_on_cpu_time_goes_by_the_new_speed(start: Command, load: Command) -> None:
    one = start("spent", *load("burn", 60), flags=("--cpus", "0.1", "--cpu-time", "300ms"))
    ask(one, {"act": "update", "limits": {"cpus": 1.0}})

    assert wait_until_over(one, PATIENCE_SEC)

    result = sandbox.load("spent").result
    assert result.outcome == "cpu_time_exceeded"
    # If it were looked at when 0.1 CPUs could have used it up, that would be after three seconds.
    assert (result.totals.cpu_usage_usec or 0) < 1_000_000


# --- who may, who is reached


@both
@pytest.mark.usefixtures("_with_groups")
def test_nobody_controls_a_run_from_inside(cli: Command) -> None:
    words = f"{sys.executable} -m sandbox pause $SANDBOX_RUN_ID"

    done = cli("run", "-q", "--", "sh", "-c", words)

    assert done.status == 1
    assert "nobody from inside" in done.stderr


def test_strangers_are_refused(start: Command, plain_user: Command) -> None:
    one = start("mine", "sleep", "60")
    letter = (
        "import socket, sys\n"
        "box = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "box.settimeout(20)\n"
        "box.bind('')\n"
        f"box.sendto(b'{{\"act\": \"pause\"}}', '\\0sandbox-control-{one.id}')\n"
        "print(box.recv(1000).decode())\n"
    )

    answered = plain_user("python", "-I", "-S", "-c", letter)
    asked = plain_user("python", "-m", "sandbox", "kill", one.id)

    assert "only the run's own user and root" in answered.stdout
    assert asked.status == 1
    assert f"no such sandbox: {one.id}" in asked.stderr
    assert state_of(one) is State.RUNNING


@both
def test_runs_recorded_elsewhere_are_known_by_id_and_owner(
    cli: Command, start: Command, tmp_path: Path
) -> None:
    one = start("here", "sleep", "60")
    other = {"SANDBOX_HOME": str(tmp_path / "other-home")}

    rows = [
        json.loads(line)
        for line in cli("ps", "--format", "json", env=other).stdout.splitlines()
        if one.id in line
    ]
    assert [(row["Names"], row["Command"], row["Owner"]) for row in rows] == [("", "--", one.owner)]
    assert cli("pause", one.id, env=other).status == 0
    assert state_of(one) is State.PAUSED
    assert cli("kill", one.id[:10], env=other).status == 0

    assert wait_until_over(one, PATIENCE_SEC)
    assert sandbox.load("here").result.exit_code == 137


@both
def test_a_stopped_supervisor_is_named_and_the_run_can_still_be_killed(start: Command) -> None:
    one = start("held", "sleep", "60")
    assert one.supervisor_pid is not None
    os.kill(one.supervisor_pid, signal.SIGSTOP)
    state = Path("/proc", str(one.supervisor_pid), "stat")
    until(lambda: ") T " in state.read_text())

    with pytest.raises(DeafError, match="is stopped") as caught:
        ask(one, {"act": "pause"})
    assert f"kill -CONT {one.supervisor_pid}" in str(caught.value.hint)
    send_signal(one, signal.SIGKILL)

    assert one.v2 is not None
    assert "populated 0" in (one.v2 / "cgroup.events").read_text()
    os.kill(one.supervisor_pid, signal.SIGCONT)
    assert wait_until_over(one, PATIENCE_SEC)
    assert (sandbox.load("held").result.exit_code, kinds("held")[-1]) == (137, "ended")


# --- without a group


def test_without_a_group_the_processes_themselves_are_paused_and_ended(
    plain_user: Command, plain_home: Path
) -> None:
    def command(*words: str) -> Any:
        return plain_user("python", "-m", "sandbox", *words)

    begun = command("run", "-d", "--name", "bare", "--", "sleep", "60")
    assert begun.status == 0, begun.stderr
    try:
        assert command("pause", "bare").stdout == "bare\n"
        assert command("ps", "--format", "{{.Names}} {{.State}}").stdout == "bare paused\n"
        assert command("unpause", "bare").status == 0
        assert command("ps", "--format", "{{.Names}} {{.State}}").stdout == "bare running\n"
        done = command("update", "-m", "64m", "bare")
        assert done.status == 0, done.stderr
        assert "is approximated: sampled" in done.stderr
        assert "they keep the lower one" not in done.stderr
        assert "they keep the lower one" in command("update", "-m", "1g", "bare").stderr
        refused = command("update", "--memory-high", "32m", "bare")
        assert "only a cgroup can hold it" in refused.stderr
        command("pause", "bare")
    finally:
        assert command("kill", "bare").status == 0
    assert command("wait", "bare").stdout == "137\n"
