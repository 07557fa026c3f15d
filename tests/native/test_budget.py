"""The smallest limit of known loads, found by real runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

MIB = 1 << 20


@pytest.mark.both
def test_a_load_of_known_size_needs_that_and_little_more(
    cli: Callable[..., Any], load: Callable[..., list[str]]
) -> None:
    done = cli(
        "budget", "--json", "--proofs", "1", "--precision", "4m", "--", *load("touch", 40, 0)
    )

    assert done.status == 0, done.stderr
    found = json.loads(done.stdout)
    assert 40 * MIB < found["smallest"] <= 60 * MIB
    assert found["smallest"] % (4 * MIB) == 0
    assert found["largest_failing"] == found["smallest"] - 4 * MIB
    below = [t for t in found["trials"] if t["limit"] == found["largest_failing"]]
    assert "out of memory" in {trial["why"] for trial in below}
    assert found["recommended"] >= found["smallest"]


@pytest.mark.slow
def test_a_second_of_cpu_time_in_two_seconds_takes_half_a_cpu(
    cli: Callable[..., Any], load: Callable[..., list[str]]
) -> None:
    done = cli(
        "budget", "--json", "--proofs", "1", "--precision", "0.1", "--max-time", "2.4s", "--",
        *load("burn", 1), timeout=55,
    )  # fmt: skip

    assert done.status == 0, done.stderr
    found = json.loads(done.stdout)
    assert 300 <= found["smallest"] <= 700  # thousandths; a busy machine gives less than the quota


def test_what_fails_without_a_limit_is_an_error(cli: Callable[..., Any]) -> None:
    done = cli("budget", "--", "false")

    assert (done.status, done.stdout) == (1, "")
    assert "`false` fails without a memory limit too: exited 1" in done.stderr


def test_what_is_not_there_is_not_tried(cli: Callable[..., Any]) -> None:
    done = cli("budget", "--", "/no/such/program")

    assert done.status == 1
    assert done.stderr.startswith("sandbox: error: cannot execute /no/such/program")
