"""A plain user on a server, nothing prepared: limits hold, nothing is left, nobody is asked."""

from __future__ import annotations

import json
import os
import pwd
import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
OneRun = Callable[..., Any]
Text = Callable[[str, str], str]
Read = Callable[[Any], Any]
CGROUP = Path("/sys/fs/cgroup")
LOADS = Path(__file__).parents[2] / "loads"
MIB = 1 << 20
SETTLE_SECONDS = 5.0
CRON_SECONDS = 100
LONG = "612.345"  # seconds; nobody else waits as long
WAYS = ["login", "ssh", "su -", "su", "sudo", "setpriv", "service"]


def manager_of(user: str) -> str:
    uid = pwd.getpwnam(user).pw_uid
    return f"/user.slice/user-{uid}.slice/user@{uid}.service"


def our_groups() -> list[str]:
    """Every group of ours on this machine, a scope's too."""
    names = re.compile(r"sandbox-[0-9a-f]{12}\.scope|run-[0-9a-f]{12}")
    return [path for path, _, _ in os.walk(CGROUP) if names.fullmatch(Path(path).name)]


def our_processes() -> list[str]:
    """Every guard, and whatever the programs of these tests have left."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue  # it has ended
            if b"\0sandbox-guard\0" in line or LONG.encode() in line:
                found.append(f"{entry.name}: {line[:80]!r}")
    return found


def wait_until_gone(seconds: float = SETTLE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while our_groups() or our_processes():
        assert time.monotonic() < deadline, (our_groups(), our_processes())
        time.sleep(0.05)


@pytest.fixture(autouse=True)
def _leaves_no_group() -> Iterator[None]:
    yield
    wait_until_gone()


# --- whoever she has become -----------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_limits_hold_for_alice_however_she_came(way: str, sandbox_as: OneRun) -> None:
    ran = sandbox_as("alice", way, "--cpus 0.5 -m 64m --pids-limit 50", "cat /proc/self/cgroup")

    assert ran.status == 0, ran.stderr
    assert ran.result["host"]["mode"] == "v2"
    assert set(ran.states.values()) == {"enforced"}
    assert {name: limit["value"] for name, limit in ran.limits.items()} == {
        "cpus": "50000 100000",
        "memory": str(64 * MIB),
        "memory_swap": "0",
        "pids": "50",
    }
    run_id = ran.result["run_id"]
    place = rf"0::{manager_of('alice')}(/[^/]+\.slice)*/sandbox-{run_id}.scope/run-{run_id}/main"
    assert re.fullmatch(place, ran.stdout.strip())


def test_the_files_say_so_inside(sandbox_as: OneRun) -> None:
    show = (
        "g=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup); cd ${g%/main}; "
        "grep . cpu.max memory.max memory.swap.max pids.max memory.oom.group"
    )
    command = f"sh -c {shlex.quote(show)}"

    ran = sandbox_as("alice", "su -", "--cpus 0.5 -m 64m", command)

    assert ran.stdout.split("\n") == [
        "cpu.max:50000 100000",
        f"memory.max:{64 * MIB}",
        "memory.swap.max:0",
        "pids.max:4096",
        "memory.oom.group:1",
        "",
    ]


def test_limits_hold_in_a_system_service_without_an_environment(
    run: Run, as_root: None, line_of: Text, read: Read
) -> None:
    line = line_of("-m 64m", "true").replace("$", "$$")
    done = run(
        *("systemd-run", "--quiet", "--pipe", "--wait", "--collect"),
        *("setpriv", "--reuid=alice", "--regid=alice", "--init-groups", "--reset-env"),
        *("sh", "-c", line),
    )

    assert read(done).states == dict.fromkeys(("memory", "memory_swap", "pids"), "enforced")


def test_limits_hold_for_a_job_of_cron(run: Run, as_root: None, line_of: Text) -> None:
    output = Path("/tmp/rootless-cron")
    table = Path("/etc/cron.d/rootless")
    script = Path("/tmp/rootless-cron.sh")
    script.write_text(f"( {line_of('-m 64m', 'true')} ) >{output}.new; mv {output}.new {output}\n")
    table.write_text(f"PATH=/usr/local/bin:/usr/bin:/bin\n@reboot alice sh {script}\n")
    Path("/run/crond.reboot").unlink(missing_ok=True)  # else a start of cron is no reboot
    run("systemctl", "restart", "cron.service")
    try:
        deadline = time.monotonic() + CRON_SECONDS
        while not output.exists():
            assert time.monotonic() < deadline
            time.sleep(0.5)
        stdout = output.read_text()
    finally:
        table.unlink()
        script.unlink()
        output.unlink(missing_ok=True)

    _, _, rest = stdout.rpartition("\nSTATUS=")
    status, _, text = rest.partition("\n")
    assert status == "0"
    assert json.loads(text)["host"]["mode"] == "v2"


def test_more_memory_than_allowed_ends_with_137(sandbox_as: OneRun) -> None:
    ran = sandbox_as("alice", "su -", "-m 64m", f"/opt/venv/bin/python {LOADS}/touch.py 200")

    assert ran.status == 137
    assert ran.result["outcome"] == "oom_killed"
    assert 60 * MIB <= ran.result["totals"]["memory_peak_bytes"] <= 64 * MIB


def test_a_quota_throttles(sandbox_as: OneRun) -> None:
    ran = sandbox_as("alice", "su -", "--cpus 0.2", f"/opt/venv/bin/python {LOADS}/burn.py 0.6")

    totals = ran.result["totals"]
    assert ran.status == 0
    assert totals["cpu_throttled_periods"] > 5
    assert totals["cpu_usage_usec"] <= 0.2 * ran.result["wall_ns"] / 1_000 + 50_000


def test_a_program_that_is_not_found_leaves_no_scope(sandbox_as: OneRun) -> None:
    ran = sandbox_as("alice", "su -", "-m 64m", "/no/such/program")

    assert ran.status == 127


def test_a_sandbox_in_a_sandbox_stays_inside(sandbox_as: OneRun) -> None:
    ran = sandbox_as(
        "alice",
        "su -",
        "-m 64m",
        "sandbox run -q -m 100m -o /tmp/inner.json -- cat /proc/self/cgroup",
    )
    inner = json.loads(Path("/tmp/inner.json").read_text())
    Path("/tmp/inner.json").unlink()

    outer = f"sandbox-{ran.result['run_id']}.scope/run-{ran.result['run_id']}"
    assert ran.stdout.strip().endswith(f"{outer}/run-{inner['run_id']}/main")
    memory = next(limit for limit in inner["limits"] if limit["name"] == "memory")
    assert (memory["state"], memory["effective"]) == ("enforced", "64 MiB")


def test_the_library_does_it_too(run_as: Run) -> None:
    code = (
        "import sandbox; from sandbox import Limits; "
        "r = sandbox.run(['true'], limits=Limits(memory_bytes=64 << 20)); "
        "print(r.host.mode, r.outcome, {limit.state.value for limit in r.limits})"
    )
    line = f"cd /tmp; SANDBOX_HOME=$(mktemp -d) /opt/venv/bin/python -c {shlex.quote(code)}"

    assert run_as("alice", "su -", line).stdout.split() == ["v2", "exited", "{'enforced'}"]


# --- nothing is left ------------------------------------------------------------------------------


@pytest.mark.parametrize("delay_seconds", [0.3, 0.8, 1.4, 2.0, 5.0])
def test_a_supervisor_that_is_killed_leaves_nothing(delay_seconds: float, run_as: Run) -> None:
    daemon = f"/opt/venv/bin/python -I -S {LOADS}/daemonize.py {LONG}"
    command = f"sh -c '{daemon}; exec sleep {LONG}'"
    line = (
        f"cd /; export SANDBOX_HOME=$(mktemp -d); sandbox run -m 64m -- {command} & "
        f"sleep {delay_seconds}; kill -KILL $!; wait $!; rm -rf $SANDBOX_HOME"
    )

    assert "killed" not in run_as("alice", "su -", line, fails=True).stderr

    wait_until_gone()


# --- around us ------------------------------------------------------------------------------------


def test_the_limits_of_our_own_unit_are_not_escaped(
    run: Run, as_root: None, line_of: Text, read: Read
) -> None:
    command = f"/opt/venv/bin/python {LOADS}/touch.py 80"
    done = run(
        *("systemd-run", "--quiet", "--pipe", "--wait", "--collect", "--uid=alice"),
        *("-p", "MemoryMax=48M", "-p", "MemorySwapMax=0", "-p", "TasksMax=77"),
        *("sh", "-c", line_of("-m 200m", command).replace("$", "$$")),
        fails=True,
    )

    ran = read(done)
    assert ran.status == 137
    assert ran.limits["memory"]["effective"] == "48 MiB"
    assert ran.limits["pids"]["effective"] == "77"


def test_a_delegated_unit_of_our_own_is_used_as_it_is(run: Run, as_root: None) -> None:
    done = run(
        *("systemd-run", "--quiet", "--pipe", "--wait", "--collect", "--uid=alice"),
        *("--unit=ours.service", "-p", "Delegate=yes", "-p", "MemoryMax=40M"),
        *("--setenv=SANDBOX_HOME=/tmp/ours", "sandbox", "run", "-q", "-m", "64m", "--"),
        *("cat", "/proc/self/cgroup"),
    )
    (record,) = Path("/tmp/ours/runs").glob("*/run.json")
    result = json.loads(record.read_text())
    shutil.rmtree("/tmp/ours")

    run_id = result["run_id"]
    assert done.stdout.strip() == f"0::/system.slice/ours.service/run-{run_id}/main"
    memory = next(limit for limit in result["limits"] if limit["name"] == "memory")
    assert (memory["state"], memory["effective"]) == ("enforced", "40 MiB")


def test_a_scope_that_was_not_delegated_is_left_alone(
    run_as: Run, line_of: Text, read: Read
) -> None:
    line = line_of("-m 64m", "cat /proc/self/cgroup").replace(
        "sandbox run",
        "XDG_RUNTIME_DIR=/run/user/$(id -u) systemd-run --user --scope --quiet "
        "--unit=theirs.scope -p MemoryMax=40M sandbox run",
    )

    ran = read(run_as("alice", "su -", line))

    assert "theirs.scope" not in ran.stdout
    assert f"sandbox-{ran.result['run_id']}.scope" in ran.stdout
    assert ran.limits["memory"]["effective"] == "40 MiB"


# --- nobody answers -------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["su -", "su", "service"])
def test_without_a_manager_the_run_is_degraded_and_says_what_to_do(
    way: str, sandbox_as: OneRun
) -> None:
    ran = sandbox_as("bob", way, "-m 64m", "true")

    assert ran.status == 0
    assert ran.result["host"]["mode"] == "none"
    assert "`sudo loginctl enable-linger bob`" in ran.result["host"]["mode_reason"]
    assert ran.states["memory"] == "approximated"


def test_what_it_says_helps(run: Run, sandbox_as: OneRun) -> None:
    run("loginctl", "enable-linger", "bob")
    try:
        deadline = time.monotonic() + 60
        while not Path(f"/run/user/{pwd.getpwnam('bob').pw_uid}/systemd/private").exists():
            assert time.monotonic() < deadline
            time.sleep(0.2)
        ran = sandbox_as("bob", "su -", "-m 64m", "true")
    finally:
        run("loginctl", "disable-linger", "bob")
        run("systemctl", "stop", f"user@{pwd.getpwnam('bob').pw_uid}.service")

    assert ran.states["memory"] == "enforced"


def test_a_delegated_service_needs_no_manager(
    run: Run, as_root: None, line_of: Text, read: Read
) -> None:
    done = run(
        *("systemd-run", "--quiet", "--pipe", "--wait", "--collect", "--uid=bob"),
        *("--unit=given.service", "-p", "Delegate=yes"),
        *("sh", "-c", line_of("-m 64m", "cat /proc/self/cgroup").replace("$", "$$")),
    )

    ran = read(done)
    assert ran.stdout.strip() == f"0::/system.slice/given.service/run-{ran.result['run_id']}/main"
    assert ran.states["memory"] == "enforced"


# --- root -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "slice_name"), [("login", "user.slice/user-0.slice"), ("service", "system.slice")]
)
def test_root_has_a_scope_of_its_own_beside_its_unit(
    way: str, slice_name: str, sandbox_as: OneRun
) -> None:
    ran = sandbox_as("root", way, "--cpus 0.5 -m 64m --cpuset-cpus 1", "cat /proc/self/cgroup")

    run_id = ran.result["run_id"]
    group = f"0::/{slice_name}/sandbox-{run_id}.scope/run-{run_id}/main"
    assert ran.stdout.strip() == group, ran.stderr
    assert set(ran.states.values()) == {"enforced"}
    assert ran.result["totals"]["io"] is not None
