"""Benchmarks of real commands."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


@pytest.mark.slow
def test_several_commands_are_compared_and_exported(cli: Cli, tmp_path: Path) -> None:
    export = tmp_path / "times.json"

    done = cli("bench", "-r", "3", "sleep 0.2", "sleep 0.01", "--export-json", export)

    assert done.status == 0, done.stderr
    assert "Benchmark 1: sleep 0.2" in done.stdout
    assert "sleep 0.01, " in done.stdout.split("Summary")[1].splitlines()[1]
    slow, fast = json.loads(export.read_text())["results"]
    assert slow["command"] == "sleep 0.2"
    assert len(slow["times"]) == len(slow["memory_usage_byte"]) == 3
    assert min(slow["times"]) >= 0.2
    assert fast["mean"] < slow["mean"]
    runs = cli("runs", "ls", "-q").stdout.split()
    assert {*slow["sandbox"]["run_ids"], *fast["sandbox"]["run_ids"]} <= set(runs)
    assert len(runs) == 8  # the warm-up runs are recorded too


def test_parameters_hooks_and_limits_reach_each_run(cli: Cli, tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = f'read -r held </dev/null; echo "run $1" >>{log}'

    done = cli(
        *("bench", "-r", "2", "-w", "1", "-L", "n", "1,2", "--interleave"),
        *("--setup", f"echo setup {{n}} >>{log}", "--prepare", f"echo prepare >>{log}"),
        *("--cleanup", f"echo cleanup {{n}} >>{log}", "--memory", "64m"),
        *("--", "sh", "-c", script, "sh", "{n}"),
    )

    assert done.status == 0, done.stderr
    turn = ["prepare", "run 1", "prepare", "run 2"]
    said = log.read_text().splitlines()
    assert said[:2] == ["setup 1", "setup 2"]
    assert said[2:14] == turn * 3
    assert sorted(said[14:]) == ["cleanup 1", "cleanup 2"]
    limits = json.loads(cli("runs", "ls", "--json").stdout.splitlines()[0])["spec"]["limits"]
    assert limits["memory_bytes"] == 64 << 20


def test_a_command_that_fails_is_named_with_what_it_said(cli: Cli) -> None:
    done = cli("bench", "--", "sh", "-c", "echo out of luck >&2; exit 7")

    assert done.status == 1
    assert "failed in warm-up 1/1: exited 7" in done.stderr
    assert "out of luck" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("bench",), "no command was given"),
        (("bench", "-L", "x"), "-L takes 2 values"),
        (("bench", "-L", "x", "1", "true"), "the parameter x is in no command"),
        (("bench", "true", "--reference", "2"), "there are only 1 commands"),
        (("bench", "a 'b"), "is not a command"),
        (("bench", "--runs", "0", "true"), "--runs"),
        (("bench", "--cpus", "0", "true"), "a limit of 0 CPUs cannot be set"),
    ],
)
def test_what_cannot_be_meant_is_refused(cli: Cli, words: tuple[str, ...], said: str) -> None:
    done = cli(*words)

    assert done.status in {1, 2}
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_it_agrees_with_hyperfine_on_the_same_command(cli: Cli, tmp_path: Path) -> None:
    if shutil.which("hyperfine") is None:
        pytest.skip("hyperfine is not installed")
    theirs, ours = tmp_path / "theirs.json", tmp_path / "ours.json"
    command = "sleep 0.3"
    subprocess.run(
        ["hyperfine", "-N", "-w", "1", "-r", "5", command, "--export-json", theirs],
        check=True,
        capture_output=True,
        timeout=30,
    )

    done = cli("bench", "-w", "1", "-r", "5", command, "--export-json", ours)

    assert done.status == 0, done.stderr
    times = [json.loads(path.read_text())["results"][0]["min"] for path in (theirs, ours)]
    assert times[1] == pytest.approx(times[0], rel=0.05)
