"""`sandbox venv`: the environments that were built for runs and are kept: list, remove."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from sandbox.cli.console import CommandExit, print_error
from sandbox.errors import StoreError
from sandbox.records.codec import to_plain
from sandbox.units import format_size

app = typer.Typer(
    help="List and remove the environments that were built for runs.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("ls")
def list_kept(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only keys.")] = False,
) -> None:
    """List the environments that are kept."""
    from sandbox.cli.environments import open_cache

    kept = open_cache().kept()
    if as_json:
        for one in kept:
            typer.echo(json.dumps(to_plain(one)))
        return
    if quiet:
        for one in kept:
            typer.echo(one.key)
        return
    from tabulate import tabulate

    rows = [
        (
            one.key,
            "unfinished" if one.venv is None else "in use" if one.in_use else "kept",
            "-" if one.venv is None else one.venv.python,
            format_size(one.size_bytes),
            "-" if one.venv is None else _few(one.venv.packages),
        )
        for one in kept
    ]
    headers = ("KEY", "STATE", "PYTHON", "SIZE", "PACKAGES")
    typer.echo(tabulate(rows, headers, tablefmt="plain", disable_numparse=True))


def _few(packages: tuple[str, ...]) -> str:
    shown = ", ".join(packages[:3])
    return shown if len(packages) <= 3 else f"{shown} and {len(packages) - 3} more"  # noqa: PLR2004 - as many as are shown


@app.command("rm")
def remove(
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY]...", help="As `sandbox venv ls` says them.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Remove all that are not in use.")
    ] = False,
) -> None:
    """Remove environments; one that is in use is refused."""
    from sandbox.cli.environments import open_cache

    cache = open_cache()
    chosen = list(keys or ())
    if everything:
        chosen += [one.key for one in cache.kept() if not one.in_use]
    elif not chosen:
        raise StoreError("no environment was named", hint="`sandbox venv rm --all` removes them")
    failed = False
    for key in chosen:
        try:
            cache.remove(key)
            typer.echo(key)
        except StoreError as error:
            print_error(error)
            failed = True
    if failed:
        raise CommandExit(1)
