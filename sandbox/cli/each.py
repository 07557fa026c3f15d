"""Commands that are given several sandboxes: each is done, and what fails is told one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from sandbox.cli.console import CommandExit, print_error
from sandbox.errors import SandboxError

SANDBOXES = typer.Argument(
    metavar="SANDBOX...", show_default=False, help="Names, ids or beginnings of ids."
)
Sandboxes = Annotated[list[str], SANDBOXES]


def for_each(names: Iterable[str], act: Callable[[str], object]) -> None:
    """Do `act` for each name and print what it returns, or the name; exit 1 if any failed."""
    failed = False
    for name in names:
        try:
            said = act(name)
        except SandboxError as error:
            print_error(error)
            failed = True
        else:
            typer.echo(name if said is None else said)
    if failed:
        raise CommandExit(1)
