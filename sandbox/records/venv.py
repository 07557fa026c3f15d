"""The virtual environment that a program runs in: part of what was asked, and so of the result."""

from __future__ import annotations

from sandbox.records.light import dataclass


@dataclass(frozen=True, kw_only=True)
class Venv:
    """One virtual environment that is ready to be used."""

    directory: str
    python: str
    """Its Python's version: `3.11.7`."""
    key: str | None = None
    """The name under which it is kept when it was built for the run; None for the user's own."""
    tool: str | None = None
    """What built it: `uv` or `pip`; None for the user's own."""
    packages: tuple[str, ...] = ()
    """What was resolved, `name==version`; empty for the user's own: it was not looked into."""
