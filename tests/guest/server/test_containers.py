"""Containers run here: Docker's as root, podman's as a plain user, with sandbox in them.

The slow ones tell what is wrong when test_sandbox_in_containers.py fails, which needs all of this.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

Run = Callable[..., object]
MACHINE = [
    word for name in ("usr", "opt", "project") for word in ("--volume", f"/{name}:/{name}:ro")
]
LIMIT_BYTES = 96 << 20


@pytest.mark.slow
def test_docker_runs_a_container_with_a_limit(docker_image: str, run: Run) -> None:
    done = run(
        *("docker", "run", "--rm", "--network=none", f"--memory={LIMIT_BYTES}", docker_image),
        *("/box/busybox", "cat", "/sys/fs/cgroup/memory.max", "/proc/self/cgroup"),
    )

    assert done.stdout.split() == [str(LIMIT_BYTES), "0::/"]


def test_docker_uses_systemd_on_version_2(docker_image: str, run: Run) -> None:
    form = "{{.CgroupDriver}} {{.CgroupVersion}}"

    assert run("docker", "info", "--format", form).stdout.split() == ["systemd", "2"]


@pytest.mark.slow
def test_a_container_of_docker_has_the_project(docker_image: str, run: Run) -> None:
    command = ["docker", "run", "--rm", "--network=none", *MACHINE, docker_image]

    done = run(*command, "/opt/venv/bin/sandbox", "--version")

    assert done.stdout.startswith("sandbox ")


@pytest.mark.slow
def test_podman_runs_a_container_of_alice_with_a_limit(podman_image: str, run: Run) -> None:
    done = run(
        *("podman", "run", "--rm", "--network=none", f"--memory={LIMIT_BYTES}", podman_image),
        *("/box/busybox", "cat", "/sys/fs/cgroup/memory.max", "/proc/self/uid_map"),
    )
    limit, inside, outside, _ = done.stdout.split()[:4]

    assert int(limit) == LIMIT_BYTES
    assert (int(inside), int(outside)) == (0, os.getuid())


@pytest.mark.slow
def test_a_container_of_podman_has_the_project(podman_image: str, run: Run) -> None:
    command = ["podman", "run", "--rm", "--network=none", *MACHINE, podman_image]

    done = run(*command, "/opt/venv/bin/sandbox", "--version")

    assert done.stdout.startswith("sandbox ")
