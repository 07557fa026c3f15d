"""Asking a supervisor: what its answers become, and what becomes of its silence."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sandbox.control import request as request_module
from sandbox.control.request import DeafError, EndedError, RefusedError, ask
from sandbox.control.running import RunningSandbox
from sandbox.records.host import Mode
from sandbox.records.light import replace
from sandbox.records.program import control_name
from sandbox.records.stats import State


def sandbox_of(pid: int | None = None) -> RunningSandbox:
    return RunningSandbox(
        id=uuid.uuid4().hex[:12],
        name="x",
        state=State.RUNNING,
        owner="me",
        mode=Mode.UNIFIED,
        supervisor_pid=pid,
        created_utc_ns=1,
    )


Answering = Callable[[RunningSandbox, bytes | None], list[dict[str, Any]]]


@pytest.fixture
def answering() -> Iterator[Answering]:
    """Answer one letter, or only take it for None; the letters are collected."""
    ends: list[Callable[[], None]] = []

    def begin(sandbox: RunningSandbox, answer: bytes | None) -> list[dict[str, Any]]:
        box = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        box.settimeout(10)
        box.bind(f"\0{control_name(sandbox.id)}")
        letters: list[dict[str, Any]] = []

        def serve() -> None:
            data, sender = box.recvfrom(4096)
            letters.append(json.loads(data))
            if answer is not None:
                box.sendto(answer, sender)

        thread = threading.Thread(target=serve)
        thread.start()
        ends.append(thread.join)
        ends.append(box.close)
        return letters

    yield begin
    for end in ends:
        end()


def test_what_the_supervisor_has_to_say_is_returned(answering: Answering) -> None:
    one = sandbox_of()
    letters = answering(one, b'{"warnings": ["take care"]}')

    assert ask(one, {"act": "pause"}) == ["take care"]

    (letter,) = letters
    assert letter.pop("until_ns") > time.monotonic_ns()
    assert letter == {"act": "pause"}


@pytest.mark.parametrize(
    ("answer", "error", "words", "hint"),
    [
        (b'{"error": "no", "hint": "do"}', RefusedError, "x: no", "do"),
        (b'{"error": "e", "hint": null, "over": true}', EndedError, "x has just ended", None),
    ],
)
def test_an_answer_may_be_an_error(
    answering: Answering, answer: bytes, error: type[Exception], words: str, hint: str | None
) -> None:
    one = sandbox_of()
    answering(one, answer)

    with pytest.raises(error) as caught:
        ask(one, {"act": "pause"})

    assert str(caught.value) == words
    assert getattr(caught.value, "hint", None) == hint


def test_nobody_there_is_one_error(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_module, "_NOBODY_SEC", 0.05)
    one = replace(sandbox_of(), v2=host.group("run-x", pids="9\n"))

    with pytest.raises(DeafError, match="nobody takes requests for x"):
        ask(one, {"act": "pause"})


def test_nobody_there_any_more_has_ended(host: Any) -> None:
    one = replace(sandbox_of(), v2=host.group("run-x"))

    with pytest.raises(EndedError, match="x has just ended"):
        ask(one, {"act": "pause"})


def test_who_is_not_there_yet_is_waited_for(host: Any, answering: Answering) -> None:
    one = replace(sandbox_of(), v2=host.group("run-x", pids="9\n"))
    later = threading.Timer(0.1, answering, (one, b"{}"))
    later.start()

    assert ask(one, {"act": "pause"}) == []

    later.join()


def test_silence_ends_in_time(answering: Answering) -> None:
    one = sandbox_of()
    answering(one, None)

    with pytest.raises(DeafError, match="does not answer: timed out") as caught:
        ask(one, {"act": "pause"}, timeout_sec=0.05)

    assert "`sandbox kill x` ends the run all the same" in str(caught.value.hint)


def test_a_stopped_supervisor_is_not_even_asked() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            with pytest.raises(DeafError, match="the supervisor of x is stopped") as caught:
                ask(sandbox_of(process.pid), {"act": "pause"})
        finally:
            process.kill()

    assert f"`kill -CONT {process.pid}`" in str(caught.value.hint)
