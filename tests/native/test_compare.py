"""Comparing recorded runs and benchmarks, and failing a build over it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_more_memory_is_found_in_repeats_and_fails_the_gate(
    cli: Callable[..., Any], load: Callable[..., list[str]], tmp_path: Path
) -> None:
    files = []
    for size_mib in (8, 24):
        file = tmp_path / f"{size_mib}.json"
        words = load("touch", size_mib, 0)
        done = cli("bench", "-r", "3", "-w", "0", "--export-json", file, "--", *words)
        assert done.status == 0, done.stderr
        files.append(file)

    gated = cli("compare", *files, "--metrics", "memory", "--fail-over", "20%")
    same = cli("compare", files[0], files[0], "--json", "--fail-over", "20%")

    assert gated.status == 1, gated.stderr
    assert "TOO MUCH, more" in gated.stdout
    assert same.status == 0, same.stdout
    metrics = json.loads(same.stdout)["comparisons"][0]["metrics"]
    assert {one["metric"]: one["ratio"] for one in metrics} == {"time": 1, "cpu": 1, "memory": 1}


def test_runs_are_found_by_name_and_several_are_repeats(cli: Callable[..., Any]) -> None:
    for name in ("one", "two", "three"):
        assert cli("run", "-q", "--name", name, "--", "true").status == 0

    done = cli("compare", "one,two", "three")

    assert done.status == 0, done.stderr
    assert done.stdout.startswith("true\n")
    assert "a single figure has no error" in done.stdout


def test_what_cannot_be_meant_is_one_clear_error(cli: Callable[..., Any]) -> None:
    unknown = cli("compare", "nothing", "none")
    share = cli("compare", "a", "b", "--fail-over", "much")
    metric = cli("compare", "a", "b", "--metrics", "speed")

    assert "there is no run `nothing`" in unknown.stderr
    assert "`much` is not a share" in share.stderr
    assert "`speed` is no metric" in metric.stderr
    assert (unknown.status, share.status, metric.status) == (1, 2, 2)
