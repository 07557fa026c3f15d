"""Which controllers a user's systemd was given to hand on, and what becomes of limits without."""

from __future__ import annotations

import contextlib
import os
import platform
import pwd
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Run = Callable[..., Any]
OneRun = Callable[..., Any]
MIB = 1 << 20
PAGE = Path(__file__).parents[3] / "docs/how-to/use-on-a-lab-server.md"
DROP_IN = Path("/etc/systemd/system/user@.service.d/50-sandbox.conf")
ALL = "cpu cpuset io memory pids"
STARTING_SECONDS = 60
USERS_MOVE_FREELY = (6, 6)
"""Since then a kernel enables cpuset above another user's processes."""


def manager_of(user: str) -> Path:
    uid = pwd.getpwnam(user).pw_uid
    return Path(f"/sys/fs/cgroup/user.slice/user-{uid}.slice/user@{uid}.service")


@contextlib.contextmanager
def delegated(run: Run, controllers: str) -> Iterator[None]:
    """Have alice's manager be given other controllers than the distribution gives it."""
    unit = f"user@{pwd.getpwnam('alice').pw_uid}.service"
    DROP_IN.parent.mkdir(exist_ok=True)
    DROP_IN.write_text(f"[Service]\nDelegate=\nDelegate={controllers}\n")
    try:
        run("systemctl", "daemon-reload")
        run("systemctl", "restart", unit)
        yield
    finally:
        DROP_IN.unlink()
        run("systemctl", "daemon-reload")
        run("systemctl", "restart", unit)


def test_controllers_that_users_are_not_given_have_stand_ins(sandbox_as: OneRun) -> None:
    command = (
        "sh -c 'grep Cpus_allowed_list /proc/self/status; "
        "dd if=/dev/zero of=$HOME/written bs=1M count=20 oflag=direct 2>&1; rm $HOME/written'"
    )

    ran = sandbox_as("alice", "su -", "--cpuset-cpus 1", command)

    assert ran.stdout.split()[:2] == ["Cpus_allowed_list:", "1"]
    cpuset = ran.limits["cpuset_cpus"]
    assert (cpuset["state"], cpuset["file"]) == ("approximated", "sched_setaffinity")
    assert "affinity" in cpuset["reason"]
    assert "cpuset controller" in cpuset["reason"]
    assert ran.result["totals"]["io"] is None
    assert "/proc/PID/io" in ran.result["unavailable"]["io"]
    assert 20 * MIB <= ran.result["summary"]["io_write_bytes"] <= 21 * MIB


def test_strict_refuses_a_stand_in(sandbox_as: OneRun) -> None:
    ran = sandbox_as("alice", "su -", "--strict --cpuset-cpus 1", "true")

    assert ran.status == 125
    assert "affinity" in ran.stderr


def test_before_systemd_252_users_were_given_no_cpu(run: Run, sandbox_as: OneRun) -> None:
    with delegated(run, "pids memory"):
        ran = sandbox_as("alice", "su -", "--cpus 1 -m 64m", "nproc")

    assert ran.result["host"]["mode"] == "v2"
    assert ran.states["memory"] == ran.states["pids"] == "enforced"
    assert ran.states["cpus"] == "approximated"
    assert "not given the cpu controller" in ran.limits["cpus"]["reason"]
    assert ran.stdout.strip() == "1"


def test_what_an_admin_delegates_is_used(run: Run, run_as: Run, sandbox_as: OneRun) -> None:
    doctor = "LANG=C.UTF-8 sandbox doctor io cpuset delegated"
    with delegated(run, ALL):
        ran = sandbox_as("alice", "su -", "--cpuset-cpus 1", "true")
        said = run_as("alice", "su -", doctor).stdout
        crowded = _with_a_process_of_roots(sandbox_as)

    assert ran.states["cpuset_cpus"] == "enforced"
    assert set(ran.result["host"]["controllers"]) == set(ALL.split())
    assert ran.result["totals"]["io"] is not None
    page = PAGE.read_text()
    shown = [line for line in said.splitlines() if line.startswith("  ✓")]
    assert len(shown) == 3, said
    assert all(" ".join(line.split()) in " ".join(page.split()) for line in shown), said
    # An old kernel then refuses to enable cpuset for the whole tree, and systemd goes on without.
    release = tuple(map(int, platform.release().split(".")[:2]))
    state = "enforced" if release >= USERS_MOVE_FREELY else "approximated"
    assert crowded.states["cpuset_cpus"] == state, crowded.limits["cpuset_cpus"]
    assert crowded.states["memory"] == "enforced"


def _with_a_process_of_roots(sandbox_as: OneRun) -> Any:
    """Return a run while there is a process in alice's tree that is not hers."""
    _wait_until_no_scope_is_left()
    sleeper = subprocess.Popen(["sleep", "612.345"])
    try:
        (manager_of("alice") / "init.scope/cgroup.procs").write_text(str(sleeper.pid))
        return sandbox_as("alice", "su -", "--cpuset-cpus 1 -m 64m", "true")
    finally:
        sleeper.kill()
        sleeper.wait()


def _wait_until_no_scope_is_left() -> None:
    """Wait until nobody wants cpuset any more: then systemd has disabled it again."""
    deadline = time.monotonic() + STARTING_SECONDS
    while any(name.endswith(".scope") for name in _groups_below("app.slice")):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _groups_below(name: str) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        return os.listdir(manager_of("alice") / name)  # noqa: PTH208 - names are all that is needed
    return []
