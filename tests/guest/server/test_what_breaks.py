"""Places in which a sandbox breaks elsewhere, each made here; and trouble from outside."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
Inside = Callable[..., dict[str, Any]]
CGROUP = Path("/sys/fs/cgroup")
LOADS = Path(__file__).parents[2] / "loads"
PYTHON = "/opt/venv/bin/python -I -S"
MIB = 1 << 20
SERVICE = ["systemd-run", "--quiet", "--pipe", "--wait", "--collect"]


def line_of(options: str, command: str) -> str:
    """A shell's line that runs a command in the sandbox, and prints its result as the last line."""
    return (
        "cd /; export SANDBOX_HOME=$(mktemp -d); "
        f"sandbox run -q -o $SANDBOX_HOME/r.json {options} -- {command}; "
        "echo; tr -d '\\n' <$SANDBOX_HOME/r.json; rm -rf $SANDBOX_HOME"
    )


def result_of(done: Any) -> dict[str, Any]:
    lines = done.stdout.splitlines()
    assert lines, done.stderr
    result: dict[str, Any] = json.loads(lines[-1])
    result["printed"] = lines[:-1]
    return result


def limit(result: dict[str, Any], name: str = "memory") -> dict[str, Any]:
    return next(entry for entry in result["limits"] if entry["name"] == name)


def codes(result: dict[str, Any]) -> set[str]:
    return {warning["code"] for warning in result["warnings"]}


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def inside(run: Run) -> Inside:
    """`inside("unshare", "--mount", options="-m 64m")` runs below what is said before."""

    def one(*before: str, options: str = "-m 64m", command: str = "true") -> dict[str, Any]:
        line = line_of(options, command)
        if "systemd-run" in before and "--scope" not in before:  # a service has variables
            line = line.replace("$", "$$")
        return result_of(run(*before, "sh", "-c", line))

    return one


# --- T21: a sandbox in a sandbox


def test_t21_what_runs_in_a_nested_sandbox_stays_in_the_outer_ones_limits(inside: Inside) -> None:
    inner = f"sandbox run -q -m 200m -- {PYTHON} {LOADS}/touch.py 150"

    result = inside(options="-m 64m --oom-continue", command=f"sh -c '{inner}; echo inner $?'")

    assert "inner 137" in result["printed"]
    assert "touched" not in result["printed"]
    assert result["totals"]["oom_kills"] >= 1
    assert 60 * MIB <= result["totals"]["memory_peak_bytes"] <= 64 * MIB


def test_t21_three_sandboxes_in_each_other_divide_one_group(inside: Inside) -> None:
    inner = "sandbox run -q -m 80m -- sandbox run -q -m 90m -- cat /proc/self/cgroup"

    result = inside(command=inner)

    own = result["printed"][0].split(f"/run-{result['run_id']}/", 1)[1]
    assert [part.partition("-")[0] for part in own.split("/")] == ["run", "run", "main"]


# --- T28: each place says what it is, and the run goes on


def test_t28_a_read_only_cgroup_mount(as_root: None, inside: Inside) -> None:
    remount = 'mount -o remount,ro,bind /sys/fs/cgroup && exec "$@"'

    result = inside("unshare", "--mount", "sh", "-c", remount, "sh")

    assert result["host"]["mode"] == "none"
    assert "read-only" in result["host"]["mode_reason"]
    assert limit(result)["state"] == "approximated"


def test_t28_no_cgroup_mount_at_all(as_root: None, inside: Inside) -> None:
    hide = 'umount -l /sys/fs/cgroup && exec "$@"'

    result = inside("unshare", "--mount", "sh", "-c", hide, "sh")

    assert result["host"]["mode"] == "none"
    assert "no cgroup hierarchy is mounted" in result["host"]["mode_reason"]
    assert limit(result)["state"] == "approximated"


def test_t28_no_bus_leaves_the_managers_own_socket(as_root: None, inside: Inside) -> None:
    hide = 'mount -t tmpfs none /run/dbus && exec "$@"'

    result = inside("unshare", "--mount", "sh", "-c", hide, "sh")

    assert limit(result)["state"] == "enforced"


def test_t28_no_socket_of_the_manager_leaves_the_bus(as_root: None, inside: Inside) -> None:
    hide = 'mount --bind /dev/null /run/systemd/private && exec "$@"'

    result = inside("unshare", "--mount", "sh", "-c", hide, "sh")

    assert limit(result)["state"] == "enforced"


def test_t28_no_manager_answers_a_user(as_root: None, inside: Inside) -> None:
    hide = (
        "mount -t tmpfs none /run/user && mount -t tmpfs none /run/dbus && "
        'exec setpriv --reuid=alice --regid=alice --init-groups --reset-env "$@"'
    )

    result = inside("unshare", "--mount", "sh", "-c", hide, "sh")

    assert result["host"]["mode"] == "none"
    assert "alice" in result["host"]["mode_reason"]
    assert limit(result)["state"] == "approximated"


def test_t28_no_systemd_at_all_lets_root_make_groups(as_root: None, inside: Inside) -> None:
    hide = 'mount -t tmpfs none /run/systemd && mount -t tmpfs none /run/dbus && exec "$@"'

    result = inside("unshare", "--mount", "sh", "-c", hide, "sh")

    assert result["host"]["mode"] == "v2"
    assert limit(result)["state"] == "enforced"


def test_t28_a_group_out_of_the_tree_that_is_seen(as_root: None, inside: Inside) -> None:
    first, second = CGROUP / "t28-first", CGROUP / "t28-second"
    first.mkdir()
    second.mkdir()
    move = (
        f"echo $$ >{first}/cgroup.procs; exec unshare --cgroup --mount sh -c '"
        "umount -l /sys/fs/cgroup; mkdir -p /tmp/t28; mount -t cgroup2 none /tmp/t28; "
        f'mount --move /tmp/t28 /sys/fs/cgroup; cat /tmp/t28-go; exec "$@"\' sh "$@"'
    )
    gate = Path("/tmp/t28-go")
    gate.unlink(missing_ok=True)
    os.mkfifo(gate)
    line = line_of("-m 64m", "true")
    process = subprocess.Popen(
        ["sh", "-c", move, "sh", "sh", "-c", line], stdout=subprocess.PIPE, text=True
    )
    try:
        writer = os.open(gate, os.O_WRONLY)  # once the reader is there
        (second / "cgroup.procs").write_text(str(process.pid))
        os.close(writer)
        stdout, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
        gate.unlink()
        wait_until(lambda: not (second / "cgroup.procs").read_text())
        first.rmdir()
        second.rmdir()
    result: dict[str, Any] = json.loads(stdout.splitlines()[-1])

    assert result["host"]["mode"] == "none"
    assert "/../" in result["host"]["mode_reason"]
    assert limit(result)["state"] == "approximated"


# --- places where users come from


def test_a_runner_that_becomes_its_user_by_su_login(as_root: None, inside: Inside) -> None:
    """GitLab's shell executor: a service of root's that feeds scripts to `su --login`."""
    result = inside(*SERVICE, "su", "--login", "alice", "--command", 'exec "$0" "$@"', "--")

    assert limit(result)["state"] == "enforced"


def test_a_runner_installed_as_a_service_without_delegation(as_root: None, inside: Inside) -> None:
    """GitHub's svc.sh: a unit with User= and nothing else."""
    lingering = inside(*SERVICE, "--uid=alice", "--unit=actions.runner.service")
    other = inside(*SERVICE, "--uid=bob", "--unit=actions.runner.service")

    assert limit(lingering)["state"] == "enforced"
    assert other["host"]["mode"] == "none"
    assert "enable-linger bob" in other["host"]["mode_reason"]


def test_a_runner_installed_as_a_service_with_a_drop_in(as_root: None, inside: Inside) -> None:
    result = inside(*SERVICE, "--uid=bob", "--unit=actions.runner.service", "-p", "Delegate=yes")

    assert limit(result)["state"] == "enforced"


@pytest.mark.parametrize("user", ["root", "alice", "bob"])
def test_a_runtime_directory_of_somebody_elses_in_everybodys_environment(
    user: str, as_root: None, run: Run
) -> None:
    """GitHub's hosted runners have the runner's in /etc/environment."""
    line = f"export XDG_RUNTIME_DIR=/run/user/1000; {line_of('-m 64m', 'true')}"
    become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]

    result = result_of(run(*become, "sh", "-c", line))

    assert limit(result)["state"] == ("approximated" if user == "bob" else "enforced")


def test_a_scope_of_the_systems_that_is_a_users(as_root: None, inside: Inside) -> None:
    """Delegated or not, such a scope's group may still be root's: then it is not used."""
    scope = ["systemd-run", "--quiet", "--scope", "--uid=alice", "-p", "Delegate=yes"]

    result = inside(*scope, "env")

    assert limit(result)["state"] == "enforced"


# --- T31: somebody moves the program


def test_t31_a_program_that_is_moved_away_is_noticed(as_root: None, tmp_path: Path) -> None:
    elsewhere = CGROUP / "t31"
    elsewhere.mkdir()
    pid_file = tmp_path / "pid"
    out = tmp_path / "out.json"
    program = f"echo $$ >{pid_file}; sleep 3; exec {PYTHON} {LOADS}/burn.py 2"
    process = subprocess.Popen(
        ["sandbox", "run", "-q", "-o", out, "-m", "64m", "--", "sh", "-c", program],
        env={**os.environ, "SANDBOX_HOME": str(tmp_path / "home")},
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: pid_file.exists() and pid_file.read_text().strip())
        (elsewhere / "cgroup.procs").write_text(pid_file.read_text())
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        wait_until(lambda: not (elsewhere / "cgroup.procs").read_text())
        elsewhere.rmdir()

    result = json.loads(out.read_text())
    assert "moved_away" in codes(result)
    assert result["outcome"] == "exited"


# --- T32: trouble of the machine is in the result


@contextlib.contextmanager
def beside(*command: str) -> Iterator[None]:
    """Have something else run on the machine."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def test_t32_other_load(as_root: None, inside: Inside) -> None:
    with beside("/opt/venv/bin/python", str(LOADS / "burn.py"), "60"):
        result = inside(command="sleep 4")

    assert "other_load" in codes(result)


def test_t32_a_host_that_swaps(as_root: None, inside: Inside, run: Run) -> None:
    file = Path("/swapfile")
    run("dd", "if=/dev/zero", f"of={file}", "bs=1M", "count=200")
    file.chmod(0o600)
    run("mkswap", str(file))
    run("swapon", str(file))
    try:
        hog = [*SERVICE, "-p", "MemoryMax=24M", *PYTHON.split(), f"{LOADS}/touch.py"]
        result = inside(command=f"sh -c {shlex.quote(shlex.join([*hog, '100', '0']))}")
    finally:
        run("swapoff", str(file))
        file.unlink()

    assert "host_swapped" in codes(result)


def test_t32_a_host_out_of_memory(as_root: None, inside: Inside) -> None:
    """The kernel is told to end whoever is the worst: somebody who is outside of the run."""
    hog = f"echo 1000 >/proc/self/oom_score_adj; exec {PYTHON} {LOADS}/touch.py 200 60"
    victim = subprocess.Popen(["sh", "-c", hog], stdout=subprocess.PIPE)
    try:
        assert victim.stdout is not None
        assert victim.stdout.readline() == b"touched\n"
        result = inside(command="sh -c 'echo f >/proc/sysrq-trigger; sleep 1'")
        assert victim.wait(60) == -9
    finally:
        victim.kill()
        victim.communicate()

    assert "host_out_of_memory" in codes(result)
    assert result["oom_kills"] == []
