"""Marks as a program sends them: they arrive, or nothing happens at all."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sandbox
from sandbox.environment.marks import LONGEST_NAME_BYTES, TAKEN, mark, request_mark
from sandbox.errors import HostError
from sandbox.kernel import libc
from sandbox.records.program import MARKS_VARIABLE, mark_name


@pytest.fixture
def run_id() -> str:
    return uuid.uuid4().hex[:12]


@pytest.fixture
def mailbox(run_id: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """What a supervisor has, and the environment of its program."""
    with socket.socket(fileno=libc.open_mailbox(mark_name(run_id).encode())) as box:
        monkeypatch.setenv(MARKS_VARIABLE, f"@{mark_name(run_id)}")
        yield box


def test_a_mark_arrives_with_its_senders_credentials(mailbox: socket.socket) -> None:
    sandbox.mark("warm-up")

    data, more, _, sender = mailbox.recvmsg(256, socket.CMSG_SPACE(12))

    assert (data, sender) == (b"warm-up", None)
    (level, kind, credentials) = more[0]
    assert (level, kind) == (socket.SOL_SOCKET, 2)
    assert int.from_bytes(credentials[:4], "little") == os.getpid()
    assert int.from_bytes(credentials[4:8], "little") == os.geteuid()


def test_outside_of_a_sandbox_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (None, "", "@sandbox-marks-gone", "/no/such/socket", "@", "\udcff"):
        if place is None:
            monkeypatch.delenv(MARKS_VARIABLE, raising=False)
        else:
            monkeypatch.setenv(MARKS_VARIABLE, place)
        mark("anything")


@pytest.mark.parametrize("name", ["", "a" * 10_000, "\udcff", "é" * 100, "a\nb", 7, None])
def test_no_name_can_fail_the_program(mailbox: socket.socket, name: Any) -> None:
    mark(name)

    assert len(mailbox.recv(1 << 16)) <= LONGEST_NAME_BYTES


def test_a_full_mailbox_holds_a_program_up_for_a_moment_only(mailbox: socket.socket) -> None:
    started = time.monotonic()
    for _ in range(15):
        mark("again")

    assert time.monotonic() - started < 10


def test_no_descriptor_stays_open(mailbox: socket.socket) -> None:
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are all that is needed

    mark("one")

    assert set(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - likewise


def test_a_socket_with_a_path_is_as_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the whole path may be too long for a socket's name
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as box:
        box.bind("marks")
        monkeypatch.setenv(MARKS_VARIABLE, "./marks")
        mark("here")

        assert box.recv(100) == b"here"


# --- from outside


def answer_with(mailbox: socket.socket, text: str) -> threading.Thread:
    def act() -> None:
        _, sender = mailbox.recvfrom(256)
        mailbox.setblocking(True)  # noqa: FBT003 - as the standard library has it
        mailbox.sendto(text.encode(), sender)

    mailbox.settimeout(10)
    thread = threading.Thread(target=act)
    thread.start()
    return thread


def test_a_request_waits_until_the_mark_is_taken(mailbox: socket.socket, run_id: str) -> None:
    thread = answer_with(mailbox, TAKEN)

    request_mark(run_id, "infer")

    thread.join(10)
    assert not thread.is_alive()


def test_a_refusal_is_an_error_with_its_reason(mailbox: socket.socket, run_id: str) -> None:
    thread = answer_with(mailbox, "a phase needs a name")

    with pytest.raises(HostError, match="refused: a phase needs a name"):
        request_mark(run_id, "infer")
    thread.join(10)


def test_a_run_that_has_ended_takes_no_marks(run_id: str) -> None:
    with pytest.raises(HostError, match=f"nobody takes marks for run {run_id}") as caught:
        request_mark(run_id, "late")

    assert "has ended" in (caught.value.hint or "")


def test_a_supervisor_that_does_not_answer_is_not_waited_for_long(
    mailbox: socket.socket, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox.environment.marks._ANSWER_SEC", 0.05)

    with pytest.raises(HostError, match="does not answer"):
        request_mark(run_id, "infer")
