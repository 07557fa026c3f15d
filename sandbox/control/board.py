"""What `sandbox top` remembers between two looks, and what its keys do."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from sandbox.control.ending import ask_to_stop, send_signal
from sandbox.control.naming import Names
from sandbox.control.request import ask
from sandbox.errors import SandboxError
from sandbox.records.stats import State, StatsRow
from sandbox.report.stats import docker_memory
from sandbox.report.top import Point, TopView, point_of

_MOST_POINTS = 600
_PAGE = 10
_MESSAGE_SEC = 5.0
KEYS = "q quit  up/down select  p pause  s stop  k kill  sort by: c CPU  m memory  n name  t age"
"""What is shown of the keys; those of a `Source` that has some of its own come instead."""
_MOVES = {
    "up": -1,
    "down": 1,
    "pageup": -_PAGE,
    "pagedown": _PAGE,
    "home": -1 << 30,
    "end": 1 << 30,
}


class Source(Protocol):
    """Where rows come from."""

    def read(self) -> list[StatsRow]:
        """Return the rows as they are now, the newest first."""
        ...


Act = Callable[[str, str], None]
"""Does `pause`, `unpause`, `stop` or `kill` to the sandbox of an id; raises SandboxError."""


def act(verb: str, run_id: str) -> None:
    """Do to a running sandbox what a key asks for.

    Raises:
        SandboxError: it has ended, or it cannot be done.
    """
    one = Names().running(run_id)
    if verb == "kill":
        send_signal(one, signal.SIGKILL)
    elif verb == "stop":
        ask_to_stop(one)
    else:
        ask(one, {"act": verb})


def _cpu(row: StatsRow) -> float:
    return -(point_of(row).cpu_percent or 0.0)


def _memory(row: StatsRow) -> float:
    memory = docker_memory(row)
    return 0 if memory is None else -memory[0]


_ORDERS: Mapping[str, tuple[str, Callable[[StatsRow], float | str]]] = {
    "c": ("CPU", _cpu),
    "m": ("memory", _memory),
    "n": ("name", lambda row: row.name or row.id),
    "t": ("age, newest first", lambda _row: 0),
}


class Board:
    """The rows of the last look, their past, and the one that is selected."""

    def __init__(  # noqa: PLR0913 - all that a display depends on
        self,
        source: Source,
        act: Act | None = act,
        *,
        title: str = "sandbox top",
        keys: str = KEYS,
        more: Callable[[str], str | None] | None = None,
        start: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        """Begin without rows.

        Args:
            source: Where rows come from.
            act: What does what keys ask for; None where nothing can be done.
            title: What stands at the top.
            keys: What is shown of the keys.
            more: Takes keys that mean nothing here; returns what to say of one, or None.
            start: Runs a slow action beside the display; a thread unless given.
        """
        self._source = source
        self._act = act
        self._title = title
        self._keys = keys
        self._more = more
        self._start = start or _in_a_thread
        self._rows: list[StatsRow] = []
        self._points: dict[str, deque[Point]] = {}
        self._newest_ns: dict[str, int] = {}
        self._order = "c"
        self._selected: str | None = None
        self._asked: tuple[str, str, str] | None = None
        """An action that waits for `y`: the verb, the id, and what it is called."""
        self._message = ""
        self._message_until = 0.0

    def look(self) -> None:
        """Read all rows once more."""
        self._rows = self._source.read()
        self._sort()
        kept: dict[str, deque[Point]] = {}
        for row in self._rows:
            kept[row.id] = self._points.get(row.id) or deque(maxlen=_MOST_POINTS)
            if row.now is None or row.before is None:
                continue
            if row.now.time_ns != self._newest_ns.get(row.id):  # else it was read before
                self._newest_ns[row.id] = row.now.time_ns
                kept[row.id].append(point_of(row))
        self._points = kept
        self._newest_ns = {key: ns for key, ns in self._newest_ns.items() if key in kept}
        if self._selected not in kept:
            self._selected = self._rows[0].id if self._rows else None

    def _sort(self) -> None:
        self._rows.sort(key=_ORDERS[self._order][1])

    def press(self, key: str) -> bool:
        """Do what a key asks for; return whether to go on."""
        if self._asked is not None:
            asked, self._asked = self._asked, None
            if key == "y":
                self._do(*asked)
            else:
                self._say("nothing was done")
            return True
        if key == "q":
            return False
        if key in _MOVES:
            self._move(_MOVES[key])
        elif key in _ORDERS:
            self._order = key
            self._sort()
        elif key in {"p", "s", "k"} and self._act is not None:
            self._ask(key)
        elif self._more is not None and (said := self._more(key)) is not None:
            self._say(said)
        return True

    def _move(self, by: int) -> None:
        ids = [row.id for row in self._rows]
        if self._selected in ids:
            at = ids.index(self._selected) + by
            self._selected = ids[max(0, min(at, len(ids) - 1))]

    def _ask(self, key: str) -> None:
        row = next((row for row in self._rows if row.id == self._selected), None)
        if row is None:
            return
        called = row.name or row.id
        if key == "p":
            self._do("unpause" if row.state is State.PAUSED else "pause", row.id, called)
        else:
            self._asked = ("stop" if key == "s" else "kill", row.id, called)

    def _do(self, verb: str, run_id: str, called: str) -> None:
        act = self._act
        if act is None:
            return

        def do() -> None:
            try:
                act(verb, run_id)
            except SandboxError as error:
                self._say(f"cannot {verb} {called}: {error}")
            else:
                self._say(f"{verb} {called}: done")

        self._say(f"{verb} {called} …")
        self._start(do)

    def _say(self, message: str) -> None:
        self._message, self._message_until = message, time.monotonic() + _MESSAGE_SEC

    def view(self) -> TopView:
        """Return what there is to see now."""
        prompt = self._message if time.monotonic() < self._message_until else ""
        if self._asked is not None:
            prompt = f"{self._asked[0]} {self._asked[2]}? y/n"
        points: Sequence[Point] = ()
        if self._selected is not None:
            points = tuple(self._points.get(self._selected, ()))
        return TopView(
            rows=tuple(self._rows),
            selected=self._selected,
            points=points,
            title=f"{self._title}  by {_ORDERS[self._order][0]}",
            keys=self._keys,
            prompt=prompt,
        )


def _in_a_thread(do: Callable[[], None]) -> None:
    threading.Thread(target=do, daemon=True).start()
