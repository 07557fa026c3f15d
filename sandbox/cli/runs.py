"""`sandbox runs`: the runs that were recorded: list, show, remove."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from sandbox.cli.console import CommandExit, has_color, has_unicode, print_error, width_of
from sandbox.errors import StoreError
from sandbox.records.codec import to_plain
from sandbox.records.light import replace
from sandbox.records.result import Outcome, RunResult

if TYPE_CHECKING:
    from sandbox.store.reading import RunEntry

app = typer.Typer(
    help="List, show and remove recorded runs.", no_args_is_help=True, rich_markup_mode=None
)

_CURVE_POINTS = 64


@app.command("ls")
def list_recorded(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only ids.")] = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", metavar="N", min=1, help="Only the newest N of them."),
    ] = None,
) -> None:
    """List the runs, newest first."""
    from sandbox.report.listing import render_list
    from sandbox.store.home import find_home
    from sandbox.store.reading import list_runs

    good = _readable(list_runs(find_home()))
    more = 0 if limit is None else max(len(good) - limit, 0)
    good = good[:limit]
    if as_json:
        for result in good:
            typer.echo(json.dumps(to_plain(result)))
    elif quiet:
        for result in good:
            typer.echo(result.run_id)
    else:
        typer.echo(
            render_list(
                good,
                now_utc_ns=time.time_ns(),
                width=width_of(sys.stdout),
                color=has_color(sys.stdout),
                unicode=has_unicode(sys.stdout),
            )
        )
    if more:
        typer.echo(f"not shown: {more} older", err=True)


def _readable(entries: list[RunEntry]) -> list[RunResult]:
    """Return the records that can be read, and say what is wrong with the others."""
    good = []
    half_made = 0
    for entry in entries:
        if entry.is_half_made:
            half_made += 1
        elif entry.result is None:
            typer.echo(f"{entry.run_id}: {entry.broken}", err=True)
        elif entry.result.outcome is Outcome.RUNNING and not entry.is_live:
            good.append(replace(entry.result, outcome=Outcome.SUPERVISOR_LOST))
        else:
            good.append(entry.result)
    if half_made:
        what = f"{half_made} that were killed while starting"
        typer.echo(f"not shown: {what}; `sandbox clean` removes what they left", err=True)
    return good


@app.command("show")
def show(
    run: Annotated[str, typer.Argument(help="An id, its beginning, a name, or a path.")],
    as_json: Annotated[bool, typer.Option("--json", help="The whole record as JSON.")] = False,
) -> None:
    """Show all that is known of a run, and the end of what it printed if that was kept."""
    from sandbox.analysis.curve import find_curve
    from sandbox.report.captured import captured_lines
    from sandbox.report.details import render_details
    from sandbox.report.style import Style
    from sandbox.store.reading import load

    stored = load(run)
    result = stored.result
    if result.outcome is Outcome.SUPERVISOR_LOST and result.summary is None:
        from sandbox.analysis.summary import summarize

        # Nobody was left to do it; the samples say as much as they can.
        result = replace(result, summary=summarize(result, stored.blocks()))
    if as_json:
        typer.echo(json.dumps(to_plain(result), indent=2))
        return
    typer.echo(
        render_details(
            result,
            width=width_of(sys.stdout),
            color=has_color(sys.stdout),
            unicode=has_unicode(sys.stdout),
            curve=find_curve(result, stored.blocks(), _CURVE_POINTS),
        )
    )
    style = Style(
        width=width_of(sys.stdout), color=has_color(sys.stdout), unicode=has_unicode(sys.stdout)
    )
    for line in captured_lines(stored.output_paths() or (), style):
        typer.echo(style.plain(line))


@app.command("rm")
def remove(
    runs: Annotated[list[str], typer.Argument(help="Ids, their beginnings, or names.")],
) -> None:
    """Remove recorded runs; one that is live is refused."""
    from sandbox.store.home import find_home
    from sandbox.store.reading import remove_run

    failed = False
    for run in runs:
        try:
            typer.echo(remove_run(find_home(), run).name)
        except StoreError as error:
            print_error(error)
            failed = True
    if failed:
        raise CommandExit(1)
