"""What the doctor says of logins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sandbox.kernel.sessions import read_sessions

Judge = Callable[..., None]
ALICE = 1000
NAMES = ("user-manager", "runtime-directory", "linger", "delegated", "subuids", "subgids")


@pytest.fixture
def alice(host: Any) -> Any:
    """A plain user on a host with systemd, not logged in."""
    host.become(ALICE)
    host.boot_systemd()
    return host


@pytest.mark.parametrize("name", NAMES)
def test_root_needs_none_of_it(host: Any, judge: Judge, name: str) -> None:
    host.boot_systemd()

    judge(host.find(name), "skip", "root")


def test_systemd_by_its_version(host: Any, judge: Judge) -> None:
    judge(host.find("systemd"), "skip", "does not run")

    host.boot_systemd(249)
    judge(host.find("systemd"), "ok", "249")

    host.become(ALICE)
    judge(host.find("systemd"), "warn", "hands users no CPU controller", "Delegate=")

    host.remove("usr/lib/x86_64-linux-gnu/systemd")
    judge(host.find("systemd"), "ok", "does not show")

    host.write("usr/lib/systemd/libsystemd-shared-257.3-1.fc42.so", "")
    judge(host.find("systemd"), "ok", "257")


def test_a_host_without_systemd(host: Any, judge: Judge) -> None:
    host.become(ALICE)

    judge(host.find("user-manager"), "skip", "does not run")
    judge(host.find("linger"), "skip", "does not run")


def test_a_manager_that_runs_can_be_asked(alice: Any, judge: Judge) -> None:
    judge(alice.find("user-manager"), "warn", "no user manager", "sudo loginctl enable-linger")

    alice.log_in(owner=ALICE)

    judge(alice.find("user-manager"), "ok", "/systemd/private")


def test_the_runtime_directory_of_another_is_ignored(alice: Any, judge: Judge) -> None:
    judge(alice.find("runtime-directory"), "ok", "unset: /run/user/1000")

    other = alice.base / "run/user/0"
    alice.environ = {"XDG_RUNTIME_DIR": str(other)}
    judge(alice.find("runtime-directory"), "warn", "not there", "unset XDG_RUNTIME_DIR")

    other.mkdir(parents=True)
    judge(alice.find("runtime-directory"), "warn", "uid 0", "unset XDG_RUNTIME_DIR")

    own = alice.log_in(owner=ALICE)
    judge(alice.find("user-manager"), "ok", str(own))
    alice.environ = {"XDG_RUNTIME_DIR": str(own)}
    judge(alice.find("runtime-directory"), "ok", "our own")


def test_a_directory_that_another_user_has_made_is_never_trusted(alice: Any, judge: Judge) -> None:
    directory = alice.log_in(owner=ALICE + 1)
    alice.environ = {"XDG_RUNTIME_DIR": str(directory)}

    judge(alice.find("user-manager"), "warn", "no user manager", "enable-linger")


def test_lingering(alice: Any, judge: Judge) -> None:
    judge(alice.find("linger"), "warn", "ends with the last login", "enable-linger")

    user = read_sessions(alice.roots, {}).user
    alice.write(f"var/lib/systemd/linger/{user}", "")
    judge(alice.find("linger"), "ok", "without a login")


@pytest.mark.parametrize(
    ("given", "state", "words"),
    [
        ("cpuset cpu io memory pids", "ok", "handed on: cpu, memory, pids, io, cpuset"),
        ("cpu memory pids", "warn", "not io, cpuset: stand-ins"),
        ("memory pids", "warn", "not cpu, io, cpuset: a limit is lacking"),
        ("", "warn", "handed on: none"),
    ],
)
def test_what_is_handed_on(alice: Any, judge: Judge, given: str, state: str, words: str) -> None:
    judge(alice.find("delegated"), "skip", "no group")

    alice.log_in(owner=ALICE, controllers=given)

    judge(alice.find("delegated"), state, words, "Delegate=cpu cpuset" if state == "warn" else None)


def test_v1_controllers_are_not_for_users(hybrid: Any, judge: Judge) -> None:
    hybrid.become(ALICE)

    judge(hybrid.find("delegated"), "skip", "v1")


@pytest.mark.parametrize(
    ("name", "file", "option"),
    [("subuids", "subuid", "--add-subuids"), ("subgids", "subgid", "--add-subgids")],
)
def test_ranges_of_ids(alice: Any, judge: Judge, name: str, file: str, option: str) -> None:
    judge(alice.find(name), "warn", f"has 0 ids in /etc/{file}", f"sudo usermod {option}")

    alice.write(f"etc/{file}", f"# ranges\nbob:100000:65536\n{ALICE}:165536:1000")
    judge(alice.find(name), "warn", "has 1000 ids", option)

    alice.write(f"etc/{file}", f"{ALICE}:165536:65536")
    judge(alice.find(name), "warn", "not installed", "uidmap")

    for tool in ("newuidmap", "newgidmap"):
        alice.write(f"usr/bin/{tool}", "")
    judge(alice.find(name), "ok", "65536 ids")
