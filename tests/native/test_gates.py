"""Gates of run, bench and profile: a status of their own, and what was above which bound."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


def test_a_run_above_its_gate_ends_with_123_and_says_why(cli: Cli, tmp_path: Path) -> None:
    output = tmp_path / "r.json"

    done = cli("run", "-q", "-o", output, "--max-time", "50ms", "--max-peak", "1g", "--",
               "sh", "-c", "sleep 0.1; echo done")  # fmt: skip

    assert (done.status, done.stdout) == (123, "done\n")
    assert "sandbox: gate: the wall time of" in done.stderr
    assert "is above --max-time 50.0 ms" in done.stderr
    assert json.loads(output.read_text())["exit_code"] == 0  # the program's own


def test_a_run_below_its_gates_keeps_its_status(cli: Cli) -> None:
    gates = ("--max-time", "20s", "--max-peak", "1g", "--max-cpu-time", "20s")

    assert cli("run", "-q", *gates, "--", "true").status == 0
    failed = cli("run", "-q", "--max-time", "1ms", "--", "sh", "-c", "sleep 0.1; exit 3")
    assert failed.status == 3  # the program's failure is failure enough
    assert "gate" not in failed.stderr


def test_a_run_in_the_background_has_no_status_to_change(cli: Cli) -> None:
    done = cli("run", "-d", "--max-time", "1s", "--", "true")

    assert done.status == 125
    assert "in the background" in done.stderr
    assert cli("runs", "ls", "-q").stdout == ""


def test_a_benchmark_names_the_command_that_fails_its_gate(cli: Cli) -> None:
    done = cli("bench", "-r", "2", "-w", "0", "--max-time", "200ms", "sleep 0.3", "true")

    assert done.status == 1
    assert "gate: sleep 0.3: the wall time of" in done.stderr
    assert "gate: true" not in done.stderr
    assert "Summary" in done.stdout


@pytest.mark.slow
def test_a_profile_names_the_model_that_fails_its_gate(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "wait.sh").write_text("sleep $1\n")
    (tmp_path / "env").write_text(
        "DIR=.\nSCRIPT=wait.sh\nCOMMAND=sh\nSAMPLETIME=1\nOUTPUTFILE=out.txt\n"
    )

    done = cli("profile", "-e", "env", "-m", "0,0.6", "--max-time", "500ms", cwd=tmp_path)

    assert done.status == 1
    assert "gate: 0.6: the wall time of" in done.stderr or "gate: 0: the wall" not in done.stderr
    assert done.stderr.count("sandbox: gate:") == 1
