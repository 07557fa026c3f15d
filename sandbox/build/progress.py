"""How far a build is, a line at a time: as buildx's plain output."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sandbox.build.options import Tell

_LONGEST = 120


class BuildProgress:
    """Numbers the steps of one build and tells of each."""

    def __init__(self, tell: Tell | None) -> None:
        """Tell nobody if `tell` is None."""
        self._tell = tell or _tell_nobody
        self._lock = threading.Lock()
        self._number = 0
        self.steps = 0
        self.cached = 0

    def say(self, text: str) -> None:
        """Tell a line of the step under way."""
        with self._lock:
            self._tell(f"#{self._number} {text}")

    @contextmanager
    def step(self, place: str, text: str) -> Iterator[None]:
        """Tell of one step, `[2/5] RUN make`, and at its end how long it took."""
        self._number += 1
        self.steps += 1
        before = self.cached
        begun = time.monotonic()
        self.say(f"[{place}] {shorten(text)}")
        try:
            yield
        except BaseException:
            self.say(f"ERROR {time.monotonic() - begun:.1f}s")
            raise
        if self.cached > before:
            self.say("CACHED")
        else:
            self.say(f"DONE {time.monotonic() - begun:.1f}s")

    def note(self, text: str) -> None:
        """Tell something that belongs to no step."""
        with self._lock:
            self._tell(_printable(text))


def shorten(text: str) -> str:
    """Return the first line of an instruction, cut where it is too long for one."""
    first, _, rest = _printable(text).partition("\n")
    if rest or len(first) > _LONGEST:
        return first[:_LONGEST].rstrip("\\ ") + " …"
    return first


def _printable(text: str) -> str:
    """Return a text that every stream can carry: bytes that are no UTF-8 are shown as such."""
    return text.encode("utf-8", "backslashreplace").decode()


def _tell_nobody(_line: str) -> None:
    pass
