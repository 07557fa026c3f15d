"""`sandbox logs`: what a run has printed."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def logs(
    sandbox: Annotated[
        str,
        typer.Argument(
            metavar="SANDBOX", show_default=False, help="A name, an id or the beginning of one."
        ),
    ],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the sandbox has ended.")
    ] = False,
) -> None:
    """Print what a sandbox has printed, if it was kept: by `run --detach` or `run --capture`.

    What went to stdout goes to stdout, and what went to stderr to stderr.
    """
    from sandbox.control.logs import copy_output
    from sandbox.control.naming import Names

    def write(number: int, data: bytes) -> None:
        stream = (sys.stdout if number == 1 else sys.stderr).buffer
        stream.write(data)
        stream.flush()

    copy_output(Names().stored(sandbox), write, follow=follow)
