"""Sweeps of real runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_models_in_budgets_end_as_they_must(
    cli: Callable[..., Any], load: Callable[..., list[str]], sandbox_home: Path
) -> None:
    words = load("touch")
    asked = ("--json", "-m", "8,48", "--memory", "32m,128m", "-r", "1")
    done = cli("sweep", *asked, "--", *words, "{model}", "0")

    assert done.status == 0, done.stderr
    found = {
        (one["cell"]["model"], one["cell"]["memory_bytes"] >> 20): one["failure"]
        for one in json.loads(done.stdout)["results"]
    }
    assert found == {
        ("8", 32): None,
        ("8", 128): None,
        ("48", 32): "out of memory",
        ("48", 128): None,
    }

    (journal,) = (sandbox_home / "sweeps").iterdir()
    again = cli("sweep", "--json", "--resume", journal.stem)
    assert again.status == 0, again.stderr
    assert json.loads(again.stdout)["trials"] == json.loads(done.stdout)["trials"]


def test_more_cpus_than_there_are_is_a_row_and_status_1(cli: Callable[..., Any]) -> None:
    done = cli("sweep", "--cpus", "5000", "--", "true")

    assert done.status == 1
    assert "unavailable: host has" in done.stdout


def test_what_varies_not_is_an_error(cli: Callable[..., Any]) -> None:
    done = cli("sweep", "--", "true")

    assert done.status == 2
    assert "nothing varies in this sweep" in done.stderr
    assert "hint: give models" in done.stderr


def test_a_file_of_models_is_read_as_profile_reads_it(
    cli: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "models").write_text("# two\n\nexit 0 # well\n  true\n")
    (tmp_path / "none").write_text("# nothing\n")

    done = cli("sweep", "--json", "-r", "1", "-f", tmp_path / "models", "--", "sh", "-c")
    empty = cli("sweep", "-f", tmp_path / "none", "--", "true")
    absent = cli("sweep", "-f", tmp_path / "absent", "--", "true")

    assert done.status == 0, done.stderr
    assert json.loads(done.stdout)["plan"]["models"] == ["exit 0", "true"]
    for failed, said in ((empty, "none names no model"), (absent, "No such file")):
        assert failed.status != 0
        assert said in failed.stderr
        assert "hint: " in failed.stderr
