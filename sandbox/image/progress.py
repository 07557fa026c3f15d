"""How far it is, for whoever wants to know."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told by several threads at once."""

    def expect(self, size_bytes: int) -> None:
        """So much more is to be fetched."""

    def advance(self, size_bytes: int) -> None:
        """So much was fetched; less than 0 when some was in vain."""


class NoProgress:
    """Nobody wants to know."""

    def expect(self, size_bytes: int) -> None:
        """Ignore it."""

    def advance(self, size_bytes: int) -> None:
        """Ignore it."""
