"""`sandbox port`: which ports of the host lead into a running sandbox."""

from __future__ import annotations

from typing import Annotated

import typer


def port(
    sandbox: Annotated[
        str,
        typer.Argument(
            metavar="SANDBOX", show_default=False, help="A name, an id or the beginning of one."
        ),
    ],
    inside: Annotated[
        str,
        typer.Argument(metavar="[PORT[/PROTOCOL]]", show_default=False, help="Only this one."),
    ] = "",
) -> None:
    """List the published ports of a running sandbox, or where one of them leads from."""
    from sandbox.control.naming import Names
    from sandbox.control.published import find_ports

    for found in find_ports(sandbox, inside, Names()):
        typer.echo(found.outside if inside else f"{found.inside} -> {found.outside}")
