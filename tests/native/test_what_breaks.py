"""Hosts of cgroup v1 on which no group can be made: each says why, and the run goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.kernel.place import find_place
from sandbox.kernel.roots import Roots
from sandbox.records.host import Mode

V2 = "/sys/fs/cgroup/unified"


@pytest.fixture
def on_v1(need_kernel: Callable[[object, str], None], sandbox_home: Path) -> Callable[..., Any]:
    """`on_v1("umount -l X")` is the result of a run in a mount namespace changed by that line."""
    if os.geteuid() != 0:
        pytest.skip("only root can change what is mounted")
    place = find_place(Roots())
    if place.mode is not Mode.HYBRID or str(place.v2_top) != V2:
        pytest.skip(f"this is no host with v1 and {V2}: {place.reason}")
    output = sandbox_home.parent / "result.json"
    command = [sys.executable, "-m", "sandbox", "run", "-q", "-m", "64m", "-o", str(output)]

    def run(change: str) -> dict[str, Any]:
        words = ["unshare", "--mount", "sh", "-c", f'{change} && exec "$@"', "sh", *command]
        done = subprocess.run(
            [*words, "--", "true"], check=False, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        result: dict[str, Any] = json.loads(output.read_text())
        return result

    return run


def states(result: dict[str, Any]) -> dict[str, str]:
    return {limit["name"]: limit["state"] for limit in result["limits"]}


def test_v1_without_a_v2_mount(on_v1: Callable[..., dict[str, Any]]) -> None:
    result = on_v1(f"umount -l {V2}")

    assert result["host"]["mode"] == "none"
    assert "v1 without a v2 mount" in result["host"]["mode_reason"]
    assert states(result)["memory"] == "approximated"


def test_v1_that_is_read_only(on_v1: Callable[..., dict[str, Any]]) -> None:
    result = on_v1("for d in /sys/fs/cgroup/*; do mount -o remount,ro,bind $d || :; done")

    assert result["host"]["mode"] == "none"
    assert "read-only" in result["host"]["mode_reason"]
    assert states(result)["memory"] == "approximated"


def test_v1_with_one_controller_less(on_v1: Callable[..., dict[str, Any]]) -> None:
    result = on_v1("umount -l /sys/fs/cgroup/memory")

    assert result["host"]["mode"] == "hybrid"
    assert states(result)["pids"] == "enforced"
    assert states(result)["memory"] != "enforced"
