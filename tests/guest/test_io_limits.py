"""On unified cgroup v2, the limits of block I/O are what `io.max` says, and they hold."""

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

DISK = Path("/dev/vda")
SHOW = 'group=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup); cat "${group%/*}/io.max"'


@pytest.fixture(autouse=True)
def _disk() -> None:
    if "io" not in find_place(Roots()).controllers:
        assert os.geteuid() != 0, "root lacks the io controller"
        pytest.skip("this user was not given the io controller")
    if not DISK.is_block_device():
        pytest.skip(f"there is no {DISK}")


def number() -> str:
    device = DISK.stat().st_rdev
    return f"{os.major(device)}:{os.minor(device)}"


def test_rates_are_in_the_file_and_enforced(cli: Cli, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    flags = ["--device-read-bps", f"{DISK}:1mb", "--device-write-iops", f"{DISK}:100"]

    done = cli("run", "-q", "--strict", "-o", result, *flags, "--", "sh", "-c", SHOW)

    assert done.status == 0, done.stderr
    words = done.stdout.split()
    assert words[0] == number()
    assert {"rbps=1048576", "wiops=100", "wbps=max", "riops=max"} == set(words[1:])
    states = {each["name"]: each["state"] for each in json.loads(result.read_text())["limits"]}
    assert states["device_read_bps"] == states["device_write_iops"] == "enforced"


def test_a_disk_is_read_no_faster_than_that(cli: Cli, tmp_path: Path) -> None:
    if not os.access(DISK, os.R_OK):
        pytest.skip("the disk may not be read by this user")
    result = tmp_path / "result.json"
    # Three times the rate: at most a second's worth is free, in any number of pieces.
    read = ["dd", f"if={DISK}", "of=/dev/null", "bs=64k", "count=48", "iflag=direct"]

    done = cli(
        "run", "-q", "-o", result, "--device-read-bps", f"{DISK}:1mb", "--", *read, timeout=60
    )

    assert done.status == 0, done.stderr
    record = json.loads(result.read_text())
    assert record["wall_ns"] > 1_500_000_000
    assert record["totals"]["io"][0]["read_bytes"] >= 3 << 20


def test_a_weight_that_nobody_keeps_is_said(cli: Cli, tmp_path: Path) -> None:
    result = tmp_path / "result.json"

    done = cli("run", "-q", "-o", result, "--blkio-weight", "300", "--", "true")

    assert done.status == 0, done.stderr
    (weight,) = (
        each for each in json.loads(result.read_text())["limits"] if each["name"] == "blkio_weight"
    )
    if "[bfq]" in (Path("/sys/block") / DISK.name / "queue/scheduler").read_text():
        assert (weight["state"], weight["value"]) == ("enforced", "default 300")
    else:
        assert weight["state"] == "unavailable"
        refused = cli("run", "--strict", "--blkio-weight", "300", "--", "true")
        assert refused.status == 125
        assert "no disk of this host has a scheduler" in refused.stderr


def test_a_part_or_a_file_is_no_disk(cli: Cli) -> None:
    done = cli("run", "--device-read-bps", "/dev/null:1mb", "--", "true")

    assert done.status == 125
    assert "/dev/null is not a disk" in done.stderr
