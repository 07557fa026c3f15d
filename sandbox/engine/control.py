"""Requests to the supervisor of a live run: end it, pause it, change its limits.

A request is one JSON object in one letter, and so is its answer. Only the run's user and root may
ask, and nobody from inside: a program could raise its own limits. Whatever is done becomes an
event of the run, so that its result tells of it.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from sandbox.engine.live_limits import Change, LiveLimits
from sandbox.engine.mailbox import Letter, answer, receive
from sandbox.engine.watch import Watch
from sandbox.errors import SandboxError, SpecError
from sandbox.kernel.group import Group
from sandbox.records.light import dataclass
from sandbox.records.result import RunWarning
from sandbox.units import format_duration

_MOST_BYTES = 4096
_LETTERS_AT_ONCE = 16
_MOST_REFUSED = 1_000
"""So many letters of strangers are read; after them, `sandbox kill` alone still works."""
_MOST_TOLD = 3
"""Changes that the result's warning tells of; the events have all of them."""
_FOREVER_NS = 1 << 62
_REFUSED = "only the run's own user and root may do this, and nobody from inside the run"

Emit = Callable[[str, dict[str, Any]], None]


@dataclass(frozen=True)
class Sender:
    """Who asks, as the kernel says."""

    pid: int
    uid: int

    def describe(self, command: str) -> str:
        """Return `sandbox stop` of root (process 12)."""
        user = "root" if self.uid == 0 else f"user {self.uid}"
        return f"`sandbox {command}` of {user}" + (f" (process {self.pid})" if self.pid else "")

    def plain(self) -> dict[str, int]:
        """Return what an event says of it."""
        return {"pid": self.pid, "uid": self.uid}


class Control:
    """Does what is asked for from outside while a run goes on."""

    def __init__(  # noqa: PLR0913 - all that a run can be asked to do
        self,
        *,
        fd: int,
        watch: Watch,
        group: Group,
        limits: LiveLimits,
        emit: Emit,
        changed: Callable[[], None],
    ) -> None:
        """`fd` receives the requests and remains the caller's; `changed` follows new limits."""
        self._fd = fd
        self._watch = watch
        self._group = group
        self._limits = limits
        self._emit = emit
        self._changed = changed
        self._refused = 0
        self._changed_times = 0
        self._changes: deque[tuple[int, Change]] = deque(maxlen=_MOST_TOLD)

    def serve(self) -> bool:
        """Take the requests that wait; return whether more of them will be taken."""
        for _ in range(_LETTERS_AT_ONCE):
            letter = receive(self._fd, _MOST_BYTES)
            if letter is None:
                break
            reply = self._take(letter)
            if reply is not None:
                answer(self._fd, letter, json.dumps(reply).encode())
        return self._refused < _MOST_REFUSED

    def _take(self, letter: Letter) -> dict[str, Any] | None:
        if letter.uid not in {0, os.geteuid()} or letter.pid in self._group.pids():
            self._refused += 1
            return {"error": _REFUSED, "hint": None}
        if self._watch.is_over():
            return {"error": "it has just ended", "hint": None, "over": True}
        request = _parse(letter.data)
        until_ns = request.get("until_ns")
        if isinstance(until_ns, int) and time.monotonic_ns() > until_ns:
            return None  # we were stopped meanwhile, and who asked was told so
        try:
            return {"warnings": self._do(request, Sender(letter.pid, letter.uid))}
        except SandboxError as error:
            return {"error": str(error), "hint": error.hint}

    def _do(self, request: Mapping[str, Any], sender: Sender) -> list[str]:
        match request:
            case {"act": "signal", "signal": int(number)}:
                self._emit("signal", {"signal": number, "by": sender.plain()})
                self._watch.request_signal(number, sender.describe("kill"), sender.pid)
            case {"act": "stop", "signal": int() | None as number, "grace_ns": int() | None as ns}:
                self._stop(number, ns, sender)
            case {"act": "pause"}:
                self._pause(sender)
            case {"act": "unpause"}:
                if not self._watch.is_paused:
                    raise SpecError("it is not paused", hint="`sandbox ps` says what is")
                self._watch.unpause(sender.plain())
            case {"act": "update", "limits": dict(values)}:
                return self._update(values, sender)
            case _:
                raise SpecError(
                    "its supervisor does not know this request",
                    hint="it was started by another version of sandbox",
                )
        return []

    def _stop(self, number: int | None, grace_ns: int | None, sender: Sender) -> None:
        detail = {"signal": number, "grace_ns": grace_ns, "by": sender.plain()}
        self._emit("stop", detail)
        forever = grace_ns is not None and grace_ns < 0
        self._watch.request_stop(
            number,
            _FOREVER_NS if forever else grace_ns,
            sender.describe("stop"),
            sender.pid,
        )

    def _pause(self, sender: Sender) -> None:
        if self._watch.is_paused:
            raise SpecError("it is paused already", hint="`sandbox unpause` lets it go on")
        self._watch.pause(sender.plain())

    def _update(self, values: Mapping[str, Any], sender: Sender) -> list[str]:
        try:
            change = self._limits.change(values)
        finally:
            self._changed()  # what was put back after a refusal was read again, too
        self._changed_times += 1
        self._changes.append((time.monotonic_ns(), change))
        changed = {
            new.name: {
                "from": None if old is None else old.asked,
                "to": new.asked,
                "state": new.state.value,
                "file": new.file,
                "value": new.value,
            }
            for old, new in change.limits
        }
        self._emit("update", {"changed": changed, "by": sender.plain()})
        return list(change.warnings)

    def problems(self) -> tuple[RunWarning, ...]:
        """Return what a reader of the result should know of all this."""
        warnings: list[RunWarning] = []
        if self._changes:
            told = "; ".join(self._describe(*change) for change in self._changes)
            times = "" if self._changed_times <= _MOST_TOLD else f" {self._changed_times} times"
            last = ", the last ones" if times else ""
            warnings.append(
                RunWarning(
                    code="updated",
                    text=f"limits were changed{times} while it ran{last}: {told}",
                    hint="shares of a limit are those of the last one",
                )
            )
        return (*warnings, *self._paused())

    def _describe(self, at_ns: int, change: Change) -> str:
        parts = [
            f"{new.name} from {'none' if old is None else old.asked} to {new.asked}"
            for old, new in change.limits
        ]
        since_start = format_duration(max(0, at_ns - self._watch.started_ns))
        return f"{', '.join(parts)} at {since_start}"

    def _paused(self) -> tuple[RunWarning, ...]:
        paused_ns = self._watch.paused_ns
        if not self._watch.pauses:
            return ()
        times = "once" if self._watch.pauses == 1 else f"{self._watch.pauses} times"
        return (
            RunWarning(
                code="paused",
                text=f"it was paused {times}, for {format_duration(paused_ns)} of its time",
            ),
        )


def _parse(data: bytes) -> Mapping[str, Any]:
    try:
        plain = json.loads(data)
    except (ValueError, RecursionError):
        plain = None
    return plain if isinstance(plain, dict) else {}
