"""The server guest is what it promises: systemd, one unified hierarchy, the project, its kernel."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

CGROUP = Path("/sys/fs/cgroup")


def test_systemd_is_the_first_process_and_found_nothing_wrong(run: Callable[..., object]) -> None:
    assert Path("/proc/1/comm").read_text() == "systemd\n"
    assert run("systemctl", "--failed", "--no-legend", "--plain").stdout == ""


def test_there_is_one_unified_hierarchy_with_every_controller() -> None:
    kinds = {line.split(" - ")[1].split()[0] for line in _mounts() if " - cgroup" in line}
    controllers = set((CGROUP / "cgroup.controllers").read_text().split())

    assert kinds == {"cgroup2"}
    assert controllers >= {"cpu", "cpuset", "io", "memory", "pids"}


def _mounts() -> list[str]:
    return Path("/proc/self/mountinfo").read_text().splitlines()


def test_the_kernel_can_say_what_it_is_used_for() -> None:
    release = tuple(int(part) for part in platform.release().split(".")[:2])
    peak = (CGROUP / "user.slice/memory.peak").stat()

    assert release in {(6, 1), (6, 12)}
    assert bool(peak.st_mode & 0o200) == (release >= (6, 12)), "only new kernels reset a peak"
    assert Path("/proc/pressure/memory").read_text().startswith("some avg10=")


def test_we_are_in_a_session_of_our_own() -> None:
    path = Path("/proc/self/cgroup").read_text().strip()

    assert path.startswith(f"0::/user.slice/user-{os.getuid()}.slice/session-")
    assert os.environ["XDG_RUNTIME_DIR"] == f"/run/user/{os.getuid()}"


def test_the_project_is_the_hosts_and_read_only() -> None:
    import sandbox

    assert Path(sandbox.__file__).is_relative_to("/project")
    assert sys.executable.startswith("/opt/venv/")
    with pytest.raises(OSError, match=r"Read-only file system|Permission denied"):
        Path("/project/written").touch()


@pytest.mark.parametrize("user", ["root", "alice", "bob"])
def test_everybody_can_call_the_command(user: str, run_as: Callable[..., object]) -> None:
    assert run_as(user, "su -", "sandbox --version").stdout.startswith("sandbox ")
