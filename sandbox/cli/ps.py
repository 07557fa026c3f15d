"""`sandbox ps`: a list of sandboxes."""

from __future__ import annotations

import time
from typing import Annotated

import typer

_ENDED_KEYS = ("status=", "exited=")


def ps(
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Those that have ended, too.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only ids.")] = False,
    no_trunc: Annotated[bool, typer.Option("--no-trunc", help="Whole commands.")] = False,
    format_text: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="TEXT",
            show_default=False,
            help="table, json, 'table TEMPLATE' or a Go template such as '{{.Names}}'.",
        ),
    ] = "",
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            "-f",
            metavar="KEY=VALUE",
            help="id=, name=, status=, exited=, owner= or label=; may be repeated.",
        ),
    ] = None,
) -> None:
    """List the sandboxes that run, and with --all those that have ended; the newest first.

    To root every user's are shown, those of others by id and owner.
    """
    from sandbox.control.listing import list_sandboxes
    from sandbox.report.ps import parse_filters, render_ps

    texts = filters or []
    holds = parse_filters(texts)
    # As in docker: who asks for ended ones by a filter need not say --all.
    ended = everything or any(text.strip().lower().startswith(_ENDED_KEYS) for text in texts)
    listing = list_sandboxes(ended=ended)
    text = render_ps(
        filter(holds, listing.rows),
        now_utc_ns=time.time_ns(),
        format_text=format_text,
        truncate=not no_trunc,
        quiet=quiet,
    )
    typer.echo(text, nl=False)
    for problem in listing.problems:
        typer.echo(problem, err=True)
