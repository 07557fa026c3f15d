"""The sandbox inside of containers: whose cgroup it may write, it divides; else it is degraded."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]
MACHINE = [
    word for name in ("usr", "opt", "project") for word in ("--volume", f"/{name}:/{name}:ro")
]
MIB = 1 << 20

# What runs inside: a sandbox in a sandbox, and one that needs more than it may have.
SCRIPT = """
export PATH=/opt/venv/bin:$PATH SANDBOX_HOME=/tmp/home PYTHONDONTWRITEBYTECODE=1
sandbox run -q -o /tmp/outer.json --cpus 0.5 -m 64m -- \
    sandbox run -q -o /tmp/inner.json -m 100m -- cat /proc/self/cgroup >/tmp/group || exit
sandbox run -q -o /tmp/large.json -m 32m -- python /project/tests/loads/touch.py 100 >/dev/null
echo $?
cat /tmp/group
for result in outer inner large; do tr -d '\\n' </tmp/$result.json; echo; done
find /sys/fs/cgroup -mindepth 1 -type d
"""


class Inside:
    """What the script has printed."""

    def __init__(self, stdout: str) -> None:
        status, self.group, *rest = stdout.splitlines()
        self.status = int(status)
        self.outer, self.inner, self.large = (json.loads(line) for line in rest[:3])
        self.groups = rest[3:]


def limits(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {limit["name"]: limit for limit in result["limits"]}


def check_held(inside: Inside) -> None:
    outer, inner = inside.outer, inside.inner
    assert inside.group == f"0::/run-{outer['run_id']}/run-{inner['run_id']}/main"
    assert {limit["state"] for limit in limits(outer).values()} == {"enforced"}
    assert limits(outer)["cpus"]["value"] == "50000 100000"
    assert limits(outer)["memory"]["value"] == str(64 * MIB)
    assert limits(inner)["memory"]["effective"] == "64 MiB"
    assert inside.status == 137
    assert inside.large["outcome"] == "oom_killed"
    assert inside.groups == ["/sys/fs/cgroup/init"]  # where those wait who were there before


def check_degraded(inside: Inside) -> None:
    for result in (inside.outer, inside.inner):
        assert result["host"]["mode"] == "none"
        assert "read-only" in result["host"]["mode_reason"]
        assert limits(result)["memory"]["state"] == "approximated"
    assert inside.status == 137
    assert inside.groups == []


# --- Docker, as root


@pytest.fixture
def in_docker(docker_image: str, run: Run) -> Callable[..., Inside]:
    def command(*options: str) -> Inside:
        words = ["docker", "run", "--rm", "--network=none", *MACHINE, *options, docker_image]
        return Inside(run(*words, "sh", "-c", SCRIPT).stdout)

    return command


def test_a_container_of_docker_with_a_writable_cgroup(in_docker: Callable[..., Inside]) -> None:
    check_held(in_docker("--privileged"))


def test_the_limits_of_a_container_are_around_ours(in_docker: Callable[..., Inside]) -> None:
    inside = in_docker("--privileged", "--memory=48m", "--memory-swap=48m")

    assert limits(inside.outer)["memory"]["effective"] == "48 MiB"
    assert limits(inside.large)["memory"]["effective"] is None
    assert inside.status == 137


def test_a_container_of_docker_as_it_usually_is(in_docker: Callable[..., Inside]) -> None:
    check_degraded(in_docker())


def test_a_container_that_shares_the_hosts_view_stays_in_its_own_group(
    in_docker: Callable[..., Inside],
) -> None:
    inside = in_docker("--privileged", "--cgroupns=host")

    before, _, after = inside.group.partition(".scope/")
    assert before.startswith("0::/system.slice/docker-")
    assert after.startswith(f"run-{inside.outer['run_id']}/")
    assert limits(inside.outer)["memory"]["state"] == "enforced"
    assert inside.status == 137


# --- podman, as a plain user


@pytest.fixture
def in_podman(podman_image: str, run: Run) -> Callable[..., Inside]:
    def command(*options: str) -> Inside:
        words = ["podman", "run", "--rm", "--network=none", *MACHINE, *options, podman_image]
        return Inside(run(*words, "sh", "-c", SCRIPT).stdout)

    return command


@pytest.mark.parametrize("more", [[], ["--cgroups=split"]])
def test_a_rootless_container_with_a_writable_cgroup(
    more: list[str], in_podman: Callable[..., Inside]
) -> None:
    check_held(in_podman("--security-opt=unmask=/sys/fs/cgroup", *more))


def test_a_rootless_container_as_it_usually_is(in_podman: Callable[..., Inside]) -> None:
    check_degraded(in_podman())
