"""`sandbox clean`: remove what killed supervisors, and their guards too, have left."""

from __future__ import annotations

import typer

from sandbox.cli.console import CommandExit


def clean() -> None:
    """Kill and remove what lost runs have left behind; runs that are in use are not touched.

    Exit status 1 when something is still there.
    """
    from sandbox.control.clean import clean as clean_up
    from sandbox.environment.venv_cache import VenvCache
    from sandbox.image.built import remove_abandoned
    from sandbox.image.store import ImageStore
    from sandbox.store.home import find_home

    leftovers = clean_up(find_home())
    for leftover in leftovers:
        if leftover.problem is None:
            killed = f", {leftover.processes} processes killed" if leftover.processes else ""
            count, what = len(leftover.directories), leftover.what
            typer.echo(f"{leftover.run_id}: removed {count} {what}{killed}")
        else:
            typer.echo(f"{leftover.run_id}: {leftover.problem}", err=True)
    unfinished = VenvCache(find_home()).remove_unfinished()
    for key in unfinished:
        typer.echo(f"environment {key}: removed, it was half-built")
    builds = remove_abandoned(ImageStore(find_home() / "images"))
    for path in builds:
        typer.echo(f"{path.name}: removed, the build was killed")
    if not (leftovers or unfinished or builds):
        typer.echo("nothing was left behind")
    if any(leftover.problem is not None for leftover in leftovers):
        raise CommandExit(1)
