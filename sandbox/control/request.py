"""Asking the supervisor of a live run to do something: one datagram there, one back."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from sandbox.control.running import RunningSandbox, is_live
from sandbox.errors import HostError, SandboxError
from sandbox.kernel.processes import find_state
from sandbox.records.program import control_name

ANSWER_SEC = 15.0
"""Long enough for a group that is killed while its processes wait for a disk."""
_ANSWER_BYTES = 1 << 14
_NOBODY_SEC = 1.0
_RETRY_SEC = 0.01


class EndedError(SandboxError):
    """The run has ended before it could be asked."""


class DeafError(HostError):
    """Nobody takes requests for the run, or nobody answers."""


class RefusedError(SandboxError):
    """The supervisor will not, or cannot, do it; the text is its own."""


def ask(
    sandbox: RunningSandbox, request: Mapping[str, Any], *, timeout_sec: float = ANSWER_SEC
) -> list[str]:
    """Have the supervisor of a run do something; return what it has to say about it.

    Raises:
        EndedError: the run is over.
        DeafError: there is no such supervisor here, or it does not answer.
        RefusedError: it refuses, or it cannot be done.
    """
    deadline = time.monotonic() + _NOBODY_SEC
    while (plain := _exchange(sandbox, request, timeout_sec)) is None:
        if not is_live(sandbox):
            raise EndedError(f"{sandbox.called} has just ended")
        if time.monotonic() > deadline:
            raise DeafError(
                f"nobody takes requests for {sandbox.called}",
                hint="it was started by an older version, or runs in another network namespace, "
                "such as a container's",
            )
        time.sleep(_RETRY_SEC)  # it is about to begin, or to end
    if plain.get("over"):
        raise EndedError(f"{sandbox.called} has just ended")
    if "error" in plain:
        raise RefusedError(f"{sandbox.called}: {plain['error']}", hint=plain.get("hint"))
    return [str(text) for text in plain.get("warnings", [])]


def _exchange(
    sandbox: RunningSandbox, request: Mapping[str, Any], timeout_sec: float
) -> dict[str, Any] | None:
    """Return the answer; None if there is nobody to give one."""
    import socket

    if _is_stopped(sandbox):
        # It would do it later, when nobody expects it any more.
        raise DeafError(
            f"the supervisor of {sandbox.called} is stopped, as by ^Z", hint=_hint(sandbox)
        )
    until_ns = time.monotonic_ns() + int(timeout_sec * 1e9)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(timeout_sec)
        try:
            sender.bind("")  # the kernel finds a name that can be answered to
            sender.sendto(
                json.dumps({**request, "until_ns": until_ns}).encode(),
                f"\0{control_name(sandbox.id)}",
            )
            plain = json.loads(sender.recv(_ANSWER_BYTES))
        except (ConnectionError, FileNotFoundError):
            return None
        except OSError as exc:
            raise DeafError(
                f"the supervisor of {sandbox.called} does not answer: "
                f"{exc.strerror or 'timed out'}",
                hint=_hint(sandbox),
            ) from exc
    return plain if isinstance(plain, dict) else {}


def _is_stopped(sandbox: RunningSandbox) -> bool:
    pid = sandbox.supervisor_pid
    return pid is not None and find_state(pid) == "T"


def _hint(sandbox: RunningSandbox) -> str:
    if sandbox.supervisor_pid is None:
        return f"`sandbox kill {sandbox.called}` ends the run all the same"
    return (
        f"`kill -CONT {sandbox.supervisor_pid}` lets a stopped one go on; "
        f"`sandbox kill {sandbox.called}` ends the run all the same"
    )
