"""`sandbox profile`, and `python -m sandbox.profiler`: an environment file to a table."""

# Without `from __future__ import annotations`, as in `run`: typer reads the flags' types.

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sandbox.cli.bench import end_of_output, run_hook
from sandbox.cli.console import CommandExit, say
from sandbox.cli.environments import provide_venv
from sandbox.cli.gate_options import MaxPeak, MaxTime, make_gates
from sandbox.cli.options import option
from sandbox.cli.security_options import HardenEach, harden_each

if TYPE_CHECKING:
    from sandbox.analysis.gates import Gates
    from sandbox.profiler.session import Profile
    from sandbox.profiler.settings import Settings
    from sandbox.records.venv import Venv

_ASKED, _RESULTS = "What to profile", "Results"


class Format(StrEnum):
    """How the rows are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"


def profile(
    environment: Annotated[
        Path,
        option("--environment", "-e", panel=_ASKED, metavar="FILE", help="The environment file."),
    ],
    modellist: Annotated[
        str | None,
        option(
            "--modellist",
            "-m",
            panel=_ASKED,
            metavar="A,B,C",
            help="Models: the script is run once for each, with it as first argument.",
        ),
    ] = None,
    modelfile: Annotated[
        Path | None,
        option("--modelfile", "-f", panel=_ASKED, metavar="FILE", help="Models, one a line."),
    ] = None,
    source_env: Annotated[
        bool,
        option(
            "--source-env",
            panel=_ASKED,
            help="Let a shell read the environment file: commands in it are then run.",
        ),
    ] = False,
    output_format: Annotated[
        Format, option("--format", panel=_RESULTS, help="table, json, csv or markdown.")
    ] = Format.TABLE,
    resume: Annotated[
        bool,
        option("--resume", panel=_RESULTS, help="Go on where a session of the same was ended."),
    ] = False,
    harden: HardenEach = False,
    max_peak: MaxPeak = None,
    max_time: MaxTime = None,
) -> None:
    """Run a script for several models in one budget and say what each used.

    Exit status 1 when a model's script failed; 2 when the environment file cannot be meant.
    """
    from sandbox.profiler.models import read_models
    from sandbox.profiler.session import check_paths
    from sandbox.profiler.settings import read_settings

    settings = _hardened(
        read_settings(environment, source=source_env, environ=os.environ), harden=harden
    )
    models = read_models(modellist, modelfile)
    check_paths(settings, models)
    venv = _venv_of(settings)
    for note in settings.notes:
        say(f"sandbox: warning: {note}")
    settings = _with_image(settings)
    _prerun(settings)
    done = _run(settings, models, venv, resume=resume)
    if done.rows or done.stopped_with is None:
        text = _rendered(done, output_format)
        typer.echo(text)
        _append(settings, done)
    if done.stopped_with is not None:
        say("sandbox: stopped by a signal; --resume goes on from here")
        raise CommandExit(done.stopped_with)
    gates = make_gates(max_peak, max_time)
    failed = gates is not None and _fail(gates, done)
    if failed or not all(row.is_good for row in done.rows):
        raise CommandExit(1)


def _hardened(settings: "Settings", *, harden: bool) -> "Settings":
    """Return settings by which each run is hardened, if it is to be; DOCK_ARGS say more of it."""
    from sandbox.records.light import replace

    has_own_root = settings.root is not None or settings.image is not None
    fields = harden_each(harden=harden, has_own_root=has_own_root)
    return replace(settings, fields={**fields, **settings.fields})


def _fail(gates: "Gates", done: "Profile") -> bool:
    """Tell of the models that do not pass; one that failed has its status in the table."""
    from sandbox.analysis.gates import failed_gates

    failed = False
    for row in done.rows:
        if row.is_good:
            figures = {"peak_bytes": row.memory_peak_bytes, "wall_ns": row.wall_ns}
            for failure in failed_gates(gates, **figures):
                say(f"sandbox: gate: {row.name}: {failure}")
                failed = True
    return failed


def _venv_of(settings: "Settings") -> "Venv | None":
    files, packages = [], []
    words = iter(settings.packages)
    for word in words:
        if word in {"-r", "--requirement"}:
            files.append(settings.directory / next(words, ""))
        else:
            packages.append(word)
    return provide_venv(None, files, packages)


def _with_image(settings: "Settings") -> "Settings":
    """Build the image, before the first model is tried, as far as it is not there yet."""
    if settings.image is None or settings.root is None:
        return settings
    from sandbox.profiler.images import build_plan
    from sandbox.records.light import replace

    image_id = build_plan(settings.image, settings.argv(None), say)
    return replace(settings, root=replace(settings.root, image=image_id))


def _prerun(settings: "Settings") -> None:
    if settings.prerun is None:
        return
    from sandbox.errors import HostError

    here = Path.cwd()
    os.chdir(settings.directory)
    try:
        status = run_hook(settings.prerun)
    finally:
        os.chdir(here)
    if status != 0:
        raise HostError(
            f"PRERUN ended with status {status}: {settings.prerun}",
            hint="nothing was profiled; try it by hand in DIR",
        )


def _run(settings: "Settings", models: Any, venv: "Venv | None", *, resume: bool) -> "Profile":
    from sandbox.engine.series import run_one_of_several
    from sandbox.profiler.session import Around, run_profile
    from sandbox.store.reading import blocks_of

    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)  # no model may read what is meant for another one
    os.close(null)
    around = Around(
        execute=run_one_of_several, blocks_of=blocks_of, output_of=end_of_output, say=say
    )
    return run_profile(settings, models, venv, around, resume=resume)


def _rendered(done: "Profile", output_format: Format) -> str:
    from sandbox.report.profile import render_csv, render_json, render_profiles

    if output_format is Format.JSON:
        return render_json(done.rows)
    if output_format is Format.CSV:
        return render_csv(done.rows)
    if output_format is Format.MARKDOWN:
        return render_profiles(done.rows, "github")
    return f"Final Usage Stats\n{render_profiles(done.rows)}"


def _append(settings: "Settings", done: "Profile") -> None:
    from sandbox.profiler.session import append_summary
    from sandbox.report.profile import render_profiles

    if done.rows:
        append_summary(settings, render_profiles(done.rows))
