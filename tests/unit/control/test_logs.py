"""What a run has printed: all of it, what is still to come, and why there is nothing."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from sandbox.cli import _status_of
from sandbox.control.logs import copy_output
from sandbox.errors import StoreError
from sandbox.store.reading import load

RUN_ID = "aaaa00000001"
LONG = bytes(range(256)) * 1024  # more than one piece, and no text


@pytest.fixture
def kept(make_run: Any) -> tuple[Any, Path, Path]:
    """A live run and the files that it prints to."""
    run = make_run(RUN_ID, "kept")
    out, err = run.output_paths()
    out.write_bytes(LONG)
    err.write_bytes(b"oh")
    return run, out, err


def test_all_of_both_streams_is_passed_on(
    home: Path, kept: Any, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any
) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(home))
    for asked in ("kept", "aaaa"):
        assert _status_of(["logs", asked]) == 0
        assert capfdbinary.readouterr() == (LONG, b"oh")
    kept[0].close()
    assert _status_of(["logs", "--follow", "kept"]) == 0
    assert capfdbinary.readouterr() == (LONG, b"oh")


def test_what_is_still_to_come_is_waited_for_until_the_end(home: Path, kept: Any) -> None:
    run, out, _ = kept
    got: dict[int, bytes] = {1: b"", 2: b""}
    seen = threading.Event()

    def write(number: int, data: bytes) -> None:
        got[number] += data
        if got[1].endswith(b"more"):
            seen.set()

    follower = threading.Thread(
        target=copy_output, args=(load("kept", home), write), kwargs={"follow": True}, daemon=True
    )
    follower.start()
    with out.open("ab") as file:
        file.write(b"more")
    assert seen.wait(20)
    assert follower.is_alive()
    with out.open("ab") as file:
        file.write(b", and the end")
    run.close()
    follower.join(20)
    assert not follower.is_alive()
    assert got == {1: LONG + b"more, and the end", 2: b"oh"}


def test_what_a_program_adds_meanwhile_does_not_keep_us(home: Path, kept: Any) -> None:
    _, out, _ = kept
    got = []

    def write(number: int, data: bytes) -> None:
        got.append((number, len(data)))
        with out.open("ab") as file:
            file.write(data)

    copy_output(load("kept", home), write)
    assert sum(length for number, length in got if number == 1) == len(LONG)


def test_what_was_not_kept_is_told_with_a_remedy(home: Path, make_run: Any) -> None:
    make_run(RUN_ID, "mute")
    with pytest.raises(StoreError, match=r"^what mute prints was not kept$") as caught:
        copy_output(load("mute", home), lambda *_: None)
    assert "--capture" in (caught.value.hint or "")


def test_there_has_to_be_one(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(home))
    assert _status_of(["logs", "absent"]) == 1
    assert "no such sandbox: absent" in capsys.readouterr().err
