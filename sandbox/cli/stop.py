"""`sandbox stop`: ask running sandboxes to end, and end them if they do not."""

from __future__ import annotations

from typing import Annotated

import typer

from sandbox.cli.each import Sandboxes, for_each
from sandbox.errors import SandboxError
from sandbox.units import parse_duration

_FOREVER_NS = -1


def parse_grace(text: str) -> int:
    """Return nanoseconds; -1 for no end, as in docker."""
    return _FOREVER_NS if text.strip() == "-1" else parse_duration(text)


def stop(
    sandboxes: Sandboxes,
    signal: Annotated[
        str | None,
        typer.Option(
            "--signal",
            "-s",
            metavar="SIGNAL",
            show_default=False,
            help="What to send first; else the sandbox's --stop-signal.",
        ),
    ] = None,
    timeout: Annotated[
        int | None,
        typer.Option(
            "--timeout",
            "--time",
            "-t",
            metavar="TIME",
            show_default=False,
            parser=parse_grace,
            help="Grace before SIGKILL: 10, 500ms, -1 for none; else its --stop-timeout or 10 s.",
        ),
    ] = None,
) -> None:
    """Stop running sandboxes and wait until they are over.

    The program is sent its stop signal; what is left of the tree after the grace is killed.
    """
    from sandbox.control.ending import ask_to_stop, wait_until_over
    from sandbox.control.naming import Names
    from sandbox.spec import parse_signal

    number, names = None if signal is None else parse_signal(signal), Names()
    refused: dict[str, SandboxError] = {}
    for asked in sandboxes:  # all at once: the grace of one is not the next one's
        try:
            found = names.find(asked)
            if found is None:
                names.stored(asked)  # what has ended is stopped, as in docker
            else:
                ask_to_stop(found, number=number, grace_ns=timeout)
        except SandboxError as error:
            refused[asked] = error

    def wait(asked: str) -> None:
        if asked in refused:
            raise refused[asked]
        found = names.find(asked)
        if found is not None:
            wait_until_over(found)

    for_each(sandboxes, wait)
