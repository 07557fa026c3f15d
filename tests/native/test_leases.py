"""CPUs of one's own, leased by real runs."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SHOW = ("grep", "Cpus_allowed_list", "/proc/self/status")


def test_a_lease_is_where_the_program_runs(cli: Callable[..., Any]) -> None:
    done = cli("run", "-q", "--cpuset-cpus", "auto:1", "--", *SHOW)

    assert done.status == 0, done.stderr
    assert re.fullmatch(r"Cpus_allowed_list:\t\d+\n", done.stdout)


def test_a_detached_run_keeps_its_lease_until_it_ends(
    cli: Callable[..., Any], sandbox_home: Path
) -> None:
    every = len(os.sched_getaffinity(0))
    begun = cli("run", "-d", "--name", "all", "--cpuset-cpus", f"auto:{every}", "--", "sleep", "60")
    try:
        assert begun.status == 0, begun.stderr
        refused = cli("run", "-q", "--cpuset-cpus", "auto:1", "--", *SHOW)
        assert refused.status == 125
        assert "other runs have leased CPU" in refused.stderr
    finally:
        assert cli("kill", "all").status == 0

    deadline = time.monotonic() + 20
    while cli("run", "-q", "--cpuset-cpus", "auto", "--", *SHOW).status != 0:
        if time.monotonic() > deadline:
            pytest.fail("the lease outlived its run")


def test_runs_at_once_need_cpus_to_lease(cli: Callable[..., Any]) -> None:
    done = cli("sweep", "-j", "2", "--memory", "64m,128m", "--", "true")

    assert done.status == 2
    assert "runs at once need CPUs of their own" in done.stderr


def test_a_sweep_of_runs_at_once_makes_all_of_them(cli: Callable[..., Any]) -> None:
    done = cli("sweep", "-j", "2", "--cpus", "0.2,0.5,1", "-r", "2", "--", "true")

    assert done.status == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if re.match(r"\s+[\d.]+ ", line)]
    assert [row[:2] for row in rows] == [["0.2", "2"], ["0.5", "2"], ["1", "2"]]
