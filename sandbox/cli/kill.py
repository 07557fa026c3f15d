"""`sandbox kill`: a signal for running sandboxes."""

from __future__ import annotations

from typing import Annotated

import typer

from sandbox.cli.each import Sandboxes, for_each


def kill(
    sandboxes: Sandboxes,
    signal: Annotated[
        str, typer.Option("--signal", "-s", metavar="SIGNAL", help="A name or a number.")
    ] = "KILL",
) -> None:
    """Kill running sandboxes with all their processes, or send their programs another signal.

    SIGKILL is waited for; it ends a paused sandbox too, and one whose supervisor is stopped.
    """
    from sandbox.control.ending import send_signal
    from sandbox.control.naming import Names
    from sandbox.spec import parse_signal

    number, names = parse_signal(signal), Names()
    for_each(sandboxes, lambda asked: send_signal(names.running(asked), number))
