"""What could not be recorded: said once for each cause, never raised into the run."""

from __future__ import annotations

import os


def describe(exc: OSError) -> str:
    """Return the cause of a failure as people read it: `No space left on device`."""
    return os.strerror(exc.errno) if exc.errno else str(exc)


class Problems:
    """Texts by what they are about; a later one about the same thing replaces the earlier."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def note(self, about: str, text: str) -> None:
        """Remember one problem."""
        self._texts[about] = text

    def failed(self, about: str, exc: OSError) -> None:
        """Remember that something could not be written."""
        self.note(about, f"{about} could not be written: {describe(exc)}")

    def thinned(self, stride: int) -> None:
        """Remember that the samples are not complete."""
        self.note(
            "thinned",
            f"the samples filled the room that they may take: about one of {stride} was kept",
        )

    def texts(self) -> tuple[str, ...]:
        """Return all problems in the order in which they came up."""
        return tuple(self._texts.values())
