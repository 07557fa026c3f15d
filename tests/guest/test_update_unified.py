"""On unified cgroup v2, an update of a running sandbox is what its control files say."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.kernel.place import find_place
from sandbox.kernel.roots import Roots

Cli = Callable[..., Any]
MIB = 1 << 20
UPDATE = (
    "--cpus 0.25 --cpu-shares 2048 -m 128m --memory-swap 160m --pids-limit 50 "
    "--memory-reservation 32m --memory-high 64m"
)
FULL = "import time; block = b'1' * (96 << 20); print('full', flush=True); time.sleep(600)"


@pytest.fixture
def start(cli: Cli) -> Iterator[Callable[..., Path]]:
    """Start a command in the background as `x` and return its group; `x` is ended."""

    def begin(flags: str, *command: str) -> Path:
        done = cli("run", "-d", "--name", "x", *flags.split(), "--", *command)
        assert done.status == 0, done.stderr
        return Path(cli("inspect", "-f", "{{.Cgroups.v2}}", "x").stdout.strip())

    yield begin
    cli("kill", "x")


def test_an_update_is_what_the_control_files_say(cli: Cli, start: Callable[..., Path]) -> None:
    group = start("--cpus 1 -m 256m", "sleep", "600")

    cpuset = ["--cpuset-cpus", "0"] if "cpuset" in find_place(Roots()).controllers else []
    done = cli("update", *UPDATE.split(), *cpuset, "x")

    assert done.status == 0, done.stderr
    texts = {
        "cpu.max": "25000 100000",
        "cpu.weight": "174",
        "memory.max": str(128 * MIB),
        "memory.swap.max": str(32 * MIB),
        "memory.low": str(32 * MIB),
        "memory.high": str(64 * MIB),
        "pids.max": "50",
        **({"cpuset.cpus": "0"} if cpuset else {}),
    }
    assert {name: (group / name).read_text().strip() for name in texts} == texts


def test_less_memory_than_is_in_use_ends_the_run(cli: Cli, start: Callable[..., Path]) -> None:
    start("-m 256m", os.path.realpath(sys.executable), "-I", "-S", "-c", FULL)
    (view,) = json.loads(cli("inspect", "x").stdout)
    output = Path(view["RunDirectory"], "stdout")
    deadline = time.monotonic() + 60
    while "full" not in output.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)

    # The kernel kills before it answers, so the supervisor may be gone before it can.
    cli("update", "-m", "32m", "x", timeout=50)

    assert cli("wait", "x", timeout=50).stdout == "137\n"
    (view,) = json.loads(cli("inspect", "x").stdout)
    assert view["State"]["OOMKilled"]
    assert view["Run"]["outcome"] == "oom_killed"
