"""The line that says how far the copy of a root file system is."""

from __future__ import annotations

import itertools

import pytest

from sandbox.cli import progress


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Go on 60 ms whenever the clock is asked."""
    clock = itertools.count(100.0, 0.06)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))


def test_a_short_copy_draws_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    line = progress.CopyLine()

    line(10, 1 << 20)
    line(None, 0)

    assert capsys.readouterr().err == ""


def test_a_long_one_is_drawn_now_and_then_and_vanishes(capsys: pytest.CaptureFixture[str]) -> None:
    line = progress.CopyLine()

    for number in range(1, 7):
        line(number, number << 20)
    drawn = capsys.readouterr().err.split("\r\033[K")
    line(None, 0)

    assert drawn == [
        "",
        "copying the root file system: 2 MiB in 2 entries",
        "copying the root file system: 4 MiB in 4 entries",
        "copying the root file system: 6 MiB in 6 entries",
    ]
    assert capsys.readouterr().err == "\r\033[K"
