"""On unified cgroup v2, a limit is what its control file says: seen from inside the run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.kernel.place import find_place
from sandbox.kernel.roots import Roots

Cli = Callable[..., Any]

# `main` holds the program, its parent the limits.
SHOW = """
group=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)
for file in "$@"; do echo "$file=$(cat "${group%/*}/$file")"; done
"""

ALL_OPTIONS = (
    "--cpus 2 --cpuset-cpus 1 --cpu-shares 1024 --pids-limit 64 --memory 64m --memory-swap 96m "
    "--memory-reservation 32m --memory-high 48m --oom-continue"
)


def skip_without_cpuset(options: list[str]) -> None:
    """A user's systemd does not hand cpuset on; its stand-in is tested with the server."""
    if "--cpuset-cpus" in options and "cpuset" not in find_place(Roots()).controllers:
        assert os.geteuid() != 0, "root lacks the cpuset controller"
        pytest.skip("this user was not given the cpuset controller")


def seen(cli: Cli, options: list[str], *files: str) -> dict[str, str]:
    """Run with `options` and return what the run's own control files say."""
    skip_without_cpuset(options)
    done = cli("run", "-q", *options, "--", "sh", "-c", SHOW, "sh", *files)
    assert done.status == 0, done.stderr
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        (
            # As in the README, and what is there without being asked for.
            "--cpus 0.5 --memory 512m",
            {
                "cpu.max": "50000 100000",
                "memory.max": str(512 << 20),
                "memory.swap.max": "0",
                "memory.oom.group": "1",
                "pids.max": "4096",
            },
        ),
        (
            ALL_OPTIONS,
            {
                "cpu.max": "200000 100000",
                "cpuset.cpus": "1",
                "cpu.weight": "100",
                "pids.max": "64",
                "memory.max": str(64 << 20),
                "memory.swap.max": str(32 << 20),
                "memory.low": str(32 << 20),
                "memory.high": str(48 << 20),
                "memory.oom.group": "0",
            },
        ),
        ("", {"cpu.max": "max 100000", "memory.max": "max", "memory.swap.max": "max"}),
    ],
)
def test_a_limit_is_what_its_control_file_says(
    cli: Cli, options: str, texts: dict[str, str]
) -> None:
    assert seen(cli, options.split(), *texts) == texts


def test_the_result_names_the_file_and_what_it_said(cli: Cli, tmp_path: Path) -> None:
    output = tmp_path / "result.json"

    done = cli("run", "-q", "-o", output, "--cpus", "0.5", "--memory", "64m", "--", "true")

    assert done.status == 0, done.stderr
    result = json.loads(output.read_text())
    assert result["host"]["mode"] == "v2"
    states = {limit["name"]: limit for limit in result["limits"]}
    assert {limit["state"] for limit in states.values()} == {"enforced"}
    assert states["cpus"]["value"] == "50000 100000"
    assert states["memory"]["value"] == str(64 << 20)
    assert states["cpus"]["file"].endswith("cpu.max")
    assert states["memory"]["file"].endswith("memory.max")
