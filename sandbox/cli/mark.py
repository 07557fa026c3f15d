"""`sandbox mark`: begin a phase of a run, from outside or from a script inside it."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from sandbox.errors import SpecError, StoreError


def mark(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[RUN] NAME", show_default=False, help="A run, and a phase's name."),
    ],
) -> None:
    """Begin the phase NAME of a run that goes on: its result tells of each phase what it used.

    RUN is an id, the beginning of one, or a name; a script inside a run leaves it out. Programs in
    Python call `sandbox.mark(NAME)` instead.
    """
    from sandbox.environment.host import RUN_ID_VARIABLE
    from sandbox.environment.marks import request_mark

    most = 2
    if len(words) > most:
        raise SpecError(
            f"`{words[most]}` is one word too many", hint="quote a name that has blanks"
        )
    run = words[0] if len(words) == most else os.environ.get(RUN_ID_VARIABLE)
    if not run:
        raise SpecError(
            "no run is named, and this is not inside one",
            hint="`sandbox mark RUN NAME`; `sandbox runs ls` lists runs",
        )
    request_mark(_find(run), words[-1])


def _find(run: str) -> str:
    """Return the id of a run; a whole id need not be in our own records."""
    from sandbox.store.names import is_run_id
    from sandbox.store.reading import find_run

    try:
        return find_run(run).name
    except StoreError:
        if is_run_id(run):
            return run
        raise
