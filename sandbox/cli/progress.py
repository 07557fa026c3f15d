"""One line on a terminal that says how far something is; nothing where there is no terminal."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Self

from sandbox.cli.console import has_unicode
from sandbox.units import format_size

_INTERVAL_SEC = 0.1
_CELLS = 24


class ProgressBar:
    """Told by several threads; draws at most ten times a second, and vanishes at the end."""

    def __init__(self, label: str, *, quiet: bool = False) -> None:
        """Draw nothing before there is something to fetch."""
        self._label = label
        self._is_shown = sys.stderr.isatty() and not quiet
        self._lock = threading.Lock()
        self._expected = self._fetched = 0
        self._started = time.monotonic()
        self._drawn = 0.0
        self._marks = "█░" if has_unicode(sys.stderr) else "#."

    def expect(self, size_bytes: int) -> None:
        """So much more is to be fetched."""
        with self._lock:
            self._expected += size_bytes

    def advance(self, size_bytes: int) -> None:
        """So much was fetched."""
        with self._lock:
            self._fetched += size_bytes
            now = time.monotonic()
            if self._is_shown and now - self._drawn >= _INTERVAL_SEC:
                self._drawn = now
                self._draw(now - self._started)

    def _draw(self, elapsed_sec: float) -> None:
        share = min(self._fetched / self._expected, 1.0) if self._expected else 0.0
        full = round(share * _CELLS)
        bar = self._marks[0] * full + self._marks[1] * (_CELLS - full)
        speed = format_size(int(self._fetched / max(elapsed_sec, _INTERVAL_SEC)))
        sizes = f"{format_size(self._fetched)} of {format_size(self._expected)}"
        line = f"{self._label}  {bar} {share:4.0%}  {sizes}, {speed}/s"
        sys.stderr.write(f"\r\033[K{line}")
        sys.stderr.flush()

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the line as it was."""
        if self._drawn:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


class CopyLine:
    """Says how far the copy of a root file system is; vanishes when it is done."""

    def __init__(self) -> None:
        """Draw nothing before there is something to say."""
        self._is_drawn = False
        self._next = time.monotonic() + _INTERVAL_SEC

    def __call__(self, entries: int | None, size_bytes: int) -> None:
        """So much was copied; None: it is done."""
        now = time.monotonic()
        if entries is None:
            if self._is_drawn:
                sys.stderr.write("\r\033[K")
                sys.stderr.flush()
        elif now >= self._next:
            self._next = now + _INTERVAL_SEC
            self._is_drawn = True
            line = f"copying the root file system: {format_size(size_bytes)} in {entries} entries"
            sys.stderr.write(f"\r\033[K{line}")
            sys.stderr.flush()
