"""`sandbox inspect`: all that is known of sandboxes, for programs."""

from __future__ import annotations

from typing import Annotated

import typer

from sandbox.cli.console import CommandExit, print_error
from sandbox.cli.each import Sandboxes
from sandbox.errors import StoreError


def inspect(
    sandboxes: Sandboxes,
    format_text: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="TEXT",
            show_default=False,
            help="json for an object a line, or a Go template such as '{{.State.Status}}'.",
        ),
    ] = "",
) -> None:
    """Print all that is known of sandboxes, running or ended, as a JSON array.

    Fields that docker has are named as there; `Run` is the record of the run, whole.
    """
    from sandbox.control.inspecting import inspect as look
    from sandbox.control.naming import Names
    from sandbox.report.inspection import inspection, render_inspection

    render_inspection((), format_text)  # a template that cannot be read is the only error then
    names, views, failed = Names(), [], False
    for asked in sandboxes:
        try:
            views.append(inspection(look(asked, names)))
        except StoreError as error:
            print_error(error)
            failed = True
    typer.echo(render_inspection(views, format_text), nl=False)
    if failed:
        raise CommandExit(1)
