"""Several threads at one image: when one fails, the others stop soon."""

from __future__ import annotations

import threading

from sandbox.errors import ImageError


class CancelledError(ImageError):
    """Something else went wrong before."""


class Flag:
    """Whether to stop; set once, by any thread."""

    def __init__(self) -> None:
        """Begin unset."""
        self._event = threading.Event()

    def set(self) -> None:
        """Let everybody stop who checks."""
        self._event.set()

    def check(self) -> None:
        """Stop here if somebody wants it.

        Raises:
            CancelledError: somebody does.
        """
        if self._event.is_set():
            raise CancelledError("something else went wrong before")

    def pause(self, seconds: float) -> None:
        """Wait for so long, or stop here as soon as somebody wants it.

        Raises:
            CancelledError: somebody does.
        """
        self._event.wait(seconds)
        self.check()
