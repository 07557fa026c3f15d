"""Who has a user manager of systemd, what it was given, and who can find it."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., object]
REPORT = 'echo "${XDG_RUNTIME_DIR-unset}"; cat /proc/self/cgroup'


def manager_of(user: str) -> Path:
    uid = pwd.getpwnam(user).pw_uid
    return Path(f"/sys/fs/cgroup/user.slice/user-{uid}.slice/user@{uid}.service")


def test_the_lingering_user_has_a_manager_with_three_controllers() -> None:
    controllers = (manager_of("alice") / "cgroup.controllers").read_text().split()

    assert sorted(controllers) == ["cpu", "memory", "pids"]
    assert (manager_of("alice") / "cgroup.procs").owner() == "alice"
    assert Path("/run/user", str(pwd.getpwnam("alice").pw_uid), "systemd/private").is_socket()


def test_the_other_user_has_none() -> None:
    assert not manager_of("bob").exists()
    assert not Path("/run/user", str(pwd.getpwnam("bob").pw_uid)).exists()


@pytest.mark.parametrize(
    ("way", "runtime_directory", "group"),
    [
        ("login", "/run/user/1000", "/user.slice/user-1000.slice/session-"),
        ("ssh", "/run/user/1000", "/user.slice/user-1000.slice/session-"),
        ("su -", "unset", "/user.slice/user-0.slice/session-"),
        ("su", "/run/user/0", "/user.slice/user-0.slice/session-"),
        ("sudo", "unset", "/user.slice/user-0.slice/session-"),
        ("setpriv", "unset", "/user.slice/user-0.slice/session-"),
        ("service", "unset", "/system.slice/run-u"),
    ],
)
def test_what_a_way_to_become_alice_leaves_of_her_session(
    way: str, runtime_directory: str, group: str, run_as: Run
) -> None:
    found, path = run_as("alice", way, REPORT).stdout.splitlines()

    assert found == runtime_directory
    assert path.startswith(f"0::{group}")


@pytest.mark.parametrize("way", ["su -", "sudo", "setpriv", "service"])
def test_without_a_session_and_lingering_nobody_answers(way: str, run_as: Run) -> None:
    line = f"XDG_RUNTIME_DIR=/run/user/{pwd.getpwnam('bob').pw_uid} systemctl --user status"
    done = run_as("bob", way, line, fails=True)

    assert done.returncode != 0
    assert "Failed to connect to bus" in done.stderr


def test_alices_manager_gives_a_scope_with_a_limit(as_alice: None, run: Run) -> None:
    limit, directory = run(
        *(
            "systemd-run",
            "--user",
            "--scope",
            "--quiet",
            "-p",
            "MemoryMax=64M",
            "-p",
            "Delegate=yes",
        ),
        *(
            "sh",
            "-c",
            'd=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup); cat "$d/memory.max"; echo $d',
        ),
    ).stdout.split()

    assert int(limit) == 64 << 20
    assert Path(directory).is_relative_to(manager_of("alice"))
    assert os.environ["USER"] == "alice"
