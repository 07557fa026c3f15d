"""What pages show of `sandbox doctor` in other places is what it says in places made like those."""

from __future__ import annotations

import pwd
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
PAGES = Path(__file__).parents[3] / "docs/how-to"
SERVICE = ["systemd-run", "--quiet", "--pipe", "--wait", "--collect"]
MACHINE = [
    word for name in ("usr", "opt", "project") for word in ("--volume", f"/{name}:/{name}:ro")
]
DOCTOR = "export LANG=C.UTF-8 SANDBOX_HOME=/tmp/pages PATH=/opt/venv/bin:/usr/bin:/bin; cd /; {}"
QUIET = "sandbox doctor -q cgroup delegation"
_VERDICT = re.compile(r"nothing fails|all is well|\d+ checks? fails?")
HOSTED = "export XDG_RUNTIME_DIR=/run/user/1000; "


def blocks(page: str) -> list[str]:
    """Return the outputs that a page shows."""
    text = (PAGES / f"{page}.md").read_text()
    return re.findall(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def findings(text: str) -> list[str]:
    """Return one line for each finding, command and verdict; only this one keeps its numbers."""
    found: list[str] = []
    for line in text.splitlines():
        is_new = re.match(r"  [✓!✗-] |    \$ |\S", line)
        if is_new or not found:
            found.append(line)
        else:
            found[-1] += f" {line}"
    lines = [" ".join(line.split()) for line in found if line.strip()]
    return [line if _VERDICT.match(line) else re.sub(r"-c?\d+|\d+", "N", line) for line in lines]


def check(page: str, number: int, said: str) -> None:
    """Compare a page's output, which may leave findings out, with what was said."""
    shown = findings(blocks(page)[number])
    missing = [line for line in shown if line not in findings(said)]
    assert not missing, f"{page} shows what is not said here:\n{missing}\n\n{said}"


def by(words: list[str], command: str) -> list[str]:
    line = DOCTOR.format(command)
    return [*words, "sh", "-c", line.replace("$", "$$") if words[:1] == SERVICE[:1] else line]


@pytest.mark.parametrize(
    ("page", "number", "user", "way", "command"),
    [
        ("use-on-a-lab-server", 0, "alice", "su -", "sandbox doctor cgroup"),
        ("use-on-a-lab-server", 1, "bob", "su -", "sandbox doctor user-manager"),
        ("use-on-a-lab-server", 3, "bob", "login", "sandbox doctor outer-limits"),
        ("use-on-github-runners", 0, "alice", "service", HOSTED + QUIET),
        ("use-on-github-runners", 1, "bob", "service", QUIET),
    ],
)
def test_a_page_for_users_of_a_server(
    page: str, number: int, user: str, way: str, command: str, run: Run, run_as: Run
) -> None:
    if (user, way) == ("bob", "service"):  # an earlier session's manager goes after some seconds
        run("systemctl", "stop", f"user@{pwd.getpwnam(user).pw_uid}.service")

    check(page, number, run_as(user, way, DOCTOR.format(command), fails=True).stdout)


def test_the_page_for_a_service_with_a_group_of_its_own(as_root: None, run: Run) -> None:
    words = [*SERVICE, "--uid=bob", "-p", "Delegate=yes"]

    check("use-on-github-runners", 2, run(*by(words, QUIET)).stdout)


def test_the_page_for_gitlabs_shell_executor(as_root: None, run: Run) -> None:
    words = [*SERVICE, "su", "--login", "bob", "--command", 'exec "$0" "$@"', "--"]

    check("use-on-gitlab-runners", 0, run(*by(words, QUIET)).stdout)


@pytest.mark.parametrize(("number", "option"), [(0, "--cgroupns=private"), (2, "--privileged")])
def test_the_page_for_docker(number: int, option: str, docker_image: str, run: Run) -> None:
    words = ["docker", "run", "--rm", "--network=none", *MACHINE, option, docker_image]
    done = run(*by(words, "sandbox doctor -q cgroup"), fails=True)

    check("use-inside-containers", number, done.stdout)


def test_the_page_for_podman(podman_image: str, run: Run) -> None:
    words = ["podman", "run", "--rm", "--network=none", *MACHINE]
    words += ["--security-opt=unmask=/sys/fs/cgroup", podman_image]

    check("use-inside-containers", 1, run(*by(words, "sandbox doctor -q cgroup")).stdout)
