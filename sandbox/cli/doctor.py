"""`sandbox doctor`: what this host can enforce and measure, and what would help."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from sandbox.cli.console import CommandExit, has_color, has_unicode, width_of


def doctor(
    checks: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CHECK|GROUP]...", show_default=False, help="Only these."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only what warns or fails.")] = False,
    list_checks: Annotated[
        bool, typer.Option("--list-checks", help="Name the checks and what each asks.")
    ] = False,
) -> None:
    """Say what this host can enforce and measure, why, and which commands would help.

    Nothing is changed. Exit status 0 if limits on CPU, memory and processes are enforced by the
    kernel and runs can be recorded, warnings or not; 1 if a check fails.
    """
    from sandbox.doctor.diagnosis import diagnose, select
    from sandbox.doctor.facts import gather
    from sandbox.records.codec import to_plain
    from sandbox.report.findings import render_checks, render_findings

    chosen = list(select(checks or ()))
    if list_checks:
        typer.echo(render_checks((group, check.name, check.question) for group, check in chosen))
        return
    diagnosis = diagnose(gather(groups={group for group, _ in chosen}), checks or ())
    if as_json:
        plain = {"usable": diagnosis.is_usable, **to_plain(diagnosis)}
        typer.echo(json.dumps(plain, indent=2))
    else:
        typer.echo(
            render_findings(
                diagnosis,
                width=width_of(sys.stdout),
                color=has_color(sys.stdout),
                unicode=has_unicode(sys.stdout),
                quiet=quiet,
            )
        )
    if not diagnosis.is_usable:
        raise CommandExit(1)
