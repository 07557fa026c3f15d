"""Marks: how a program tells the supervisor of its run that another phase begins.

A mark is one datagram to a name that the run's environment holds, so it reaches the supervisor
from another user, another directory tree or a process that the program has started; the name is
abstract, so nothing is left behind. Nobody answers a program, and nothing can fail in it.
"""

from __future__ import annotations

import os
from contextlib import suppress

from sandbox.errors import HostError
from sandbox.records.program import MARKS_VARIABLE, mark_name

LONGEST_NAME_BYTES = 120

TAKEN = "taken"
"""The answer to a mark that has become a phase; any other one says why it has not."""

_FULL_SEC = 0.1
_ANSWER_SEC = 5.0
_ANSWER_BYTES = 1024


def mark(name: str) -> None:
    """Begin a phase of the run that this program is in; outside of a sandbox, do nothing.

    The result then tells of each phase what it used: time, CPU, memory, I/O. What comes before
    the first mark is the phase `start`. Returns at once, and never raises.
    """
    place = os.environ.get(MARKS_VARIABLE)
    if not place:
        return
    with suppress(Exception):  # a run without a supervisor goes on as if nothing had been said
        import socket

        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(_FULL_SEC)  # when many marks wait already
            sender.sendto(_to_bytes(str(name)), _address(place))


def request_mark(run_id: str, name: str) -> None:
    """Begin a phase of a run from outside, and wait until its supervisor has taken it.

    Raises:
        HostError: there is no such supervisor, or it refuses.
    """
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(_ANSWER_SEC)
        try:
            sender.bind("")  # the kernel finds a name that can be answered to
            sender.sendto(_to_bytes(name), _address("@" + mark_name(run_id)))
            answer = sender.recv(_ANSWER_BYTES).decode("utf-8", "replace")
        except (ConnectionError, FileNotFoundError):
            raise HostError(
                f"nobody takes marks for run {run_id}",
                hint="it has ended, has had too many marks, or is in another network namespace",
            ) from None
        except OSError as exc:
            raise HostError(
                f"the supervisor of run {run_id} does not answer: {exc.strerror or 'timed out'}",
                hint="it is stopped, or the mark was not from its own user",
            ) from exc
    if answer != TAKEN:
        raise HostError(f"the mark was refused: {answer}")


def _to_bytes(name: str) -> bytes:
    return name.encode("utf-8", "replace")[:LONGEST_NAME_BYTES]


def _address(place: str) -> str | bytes:
    return b"\0" + os.fsencode(place[1:]) if place.startswith("@") else place
