"""`sandbox sweep`: every model in every budget, again and again, and one table of it."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from sandbox.cli.console import CommandExit, Interrupted, has_color, has_unicode, say, width_of
from sandbox.cli.security_options import HardenEach
from sandbox.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sandbox.helper.client import Stream
    from sandbox.kernel.roots import Roots
    from sandbox.records.result import RunResult
    from sandbox.records.sweep import Cell, SweepPlan, SweepTrial
    from sandbox.spec import RunSpec

    Streams = tuple[Stream, Stream, Stream]
    RunSpecIn = Callable[[RunSpec, Streams], RunResult]

CONTEXT_SETTINGS = {"allow_interspersed_args": False}
_KIND = "sweeps"


def sweep(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND...",
            show_default=False,
            help="After `--`; {model} stands for the model, which else is the last argument.",
        ),
    ] = None,
    models: Annotated[
        str | None, typer.Option("--models", "-m", metavar="A,B,C", help="The models.")
    ] = None,
    model_file: Annotated[
        str | None,
        typer.Option(
            "--model-file", "-f", metavar="FILE", help="The models, one a line; # comments."
        ),
    ] = None,
    cpus: Annotated[
        str | None, typer.Option(metavar="A,B,C", help="CPU limits, as 0.5,1,2.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="A,B,C", help="Memory limits, as 256m,512m,1g.")
    ] = None,
    runs: Annotated[int, typer.Option("--runs", "-r", help="Runs of each combination.")] = 3,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="End a run that takes longer.")
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs",
            "-j",
            min=1,
            metavar="N",
            help="Runs at once, each on CPUs of its own; needs --cpus.",
        ),
    ] = 1,
    harden: HardenEach = False,
    resume: Annotated[
        str | None, typer.Option(metavar="ID", help="Go on with a sweep that was cut short.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Run every model in every budget and compare: one table, ranks, where more stops helping.

    One run at a time unless -j says otherwise, all combinations once before any is run twice, each
    saved as it ends. A combination whose program fails is not run again; one that this host cannot
    give is shown as unavailable. Exit status 1 if one of the models ended well in no budget.
    """
    from sandbox.helper.client import run_spec
    from sandbox.kernel.host import read_host
    from sandbox.kernel.place import find_place
    from sandbox.kernel.roots import Roots
    from sandbox.records.codec import from_plain, to_plain
    from sandbox.records.light import replace
    from sandbox.records.sweep import SweepPlan, SweepTrial
    from sandbox.store.home import find_home
    from sandbox.store.journal import Journal
    from sandbox.sweeps.session import Around, check_plan, run_sweep

    asked = (command, models, model_file, cpus, memory, timeout)
    if resume is not None:
        if any(value for value in asked):
            raise SpecError(
                "--resume goes on with what was planned: give nothing else",
                hint="`sandbox sweep --resume ID`",
            )
        journal, lines = Journal.resume(find_home(), _KIND, resume)
        if not lines:
            raise SpecError(
                f"the sweep {resume} has no plan: start it anew",
                hint="it was ended before it was planned",
            )
        plan = from_plain(SweepPlan, lines[0])
        if harden and not plan.is_hardened:
            raise SpecError(
                f"the sweep {resume} was begun without --harden, and its runs are to be alike",
                hint="start it anew; if you did not ask for it, `unset SANDBOX_HARDEN`",
            )
        done = [from_plain(SweepTrial, line) for line in lines[1:]]
    else:
        plan = _plan(command or (), models, model_file, cpus, memory, runs, timeout)
        plan = replace(plan, is_hardened=harden)
        check_plan(plan)
        done = []
        journal = Journal.create(find_home(), _KIND, plan.sweep_id, to_plain(plan))
    if jobs > 1 and not plan.cpus:
        raise SpecError("runs at once need CPUs of their own", hint="give --cpus, or leave out -j")
    roots = Roots()
    host = read_host(roots, find_place(roots))
    execute = run_spec if jobs == 1 else _on_own_cpus(run_spec, host.cpus_allowed, roots)
    with journal, open(os.devnull) as nothing:  # noqa: PTH123 - one run would read what others miss
        around = Around(
            execute=lambda spec: execute(spec, (nothing, None, None)),
            save=lambda trial: journal.append(to_plain(trial)),
            progress=_progress,
            host_cpus=len(host.cpus_allowed),
            host_memory_bytes=host.memory_total_bytes,
        )
        try:
            found = run_sweep(plan, done, around, jobs=jobs)
        except Interrupted as stop:
            stop.hint = f"go on with `sandbox sweep --resume {plan.sweep_id}`"
            raise
    _show(plan, found.trials, dict(found.unavailable), as_json=as_json)


def _on_own_cpus(run: RunSpecIn, allowed: Sequence[int], roots: Roots) -> RunSpecIn:
    """Return what runs a spec on CPUs that it has leased; it waits until there are enough."""
    import math

    from sandbox.kernel.leases import lease_cpus_soon
    from sandbox.records.light import replace

    def execute(spec: RunSpec, streams: Streams) -> RunResult:
        with lease_cpus_soon(math.ceil(spec.limits.cpus or 1), allowed, roots) as lease:
            limits = replace(spec.limits, cpuset_cpus=lease.cpus)
            return run(replace(spec, limits=limits), streams)

    return execute


def _show(
    plan: SweepPlan,
    trials: Sequence[SweepTrial],
    unavailable: dict[Cell, str],
    *,
    as_json: bool,
) -> None:
    from sandbox.analysis.grids import models_that_failed, results_of
    from sandbox.records.codec import to_plain
    from sandbox.records.sweep import Sweep
    from sandbox.report.style import Style
    from sandbox.report.sweep import render_sweep
    from sandbox.sweeps.session import cells_of

    whole = Sweep(plan=plan, trials=tuple(trials), unavailable=tuple(unavailable.items()))
    results = results_of(whole, cells_of(plan))
    if as_json:
        plain = {**to_plain(whole), "results": to_plain(results)}
        typer.echo(json.dumps(plain, indent=2))
    else:
        style = Style(
            width=width_of(sys.stdout),
            color=has_color(sys.stdout),
            unicode=has_unicode(sys.stdout),
        )
        typer.echo(render_sweep(plan, results, style))
    if models_that_failed(results):
        raise CommandExit(1)


def _plan(
    command: Sequence[str],
    models: str | None,
    model_file: str | None,
    cpus: str | None,
    memory: str | None,
    runs: int,
    timeout: str | None,
) -> SweepPlan:
    from pathlib import Path

    from sandbox.profiler.models import read_model_file
    from sandbox.records.sweep import SweepPlan
    from sandbox.store.directory import new_run_id
    from sandbox.units import parse_cpus, parse_duration, parse_size

    if models is not None and model_file is not None:
        raise SpecError(
            "models are given twice: by --models and --model-file", hint="leave one of them out"
        )
    names = _split(models) if model_file is None else read_model_file(Path(model_file))
    return SweepPlan(
        sweep_id=new_run_id(),
        started_utc_ns=time.time_ns(),
        command=tuple(command),
        models=names,
        cpus=tuple(parse_cpus(text) for text in _split(cpus)),
        memory_bytes=tuple(parse_size(text) for text in _split(memory)),
        runs=runs,
        timeout_ns=None if timeout is None else parse_duration(timeout),
        workdir=os.getcwd(),  # noqa: PTH109 - a word, as the run takes it
    )


def _split(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    values = tuple(value.strip() for value in text.split(","))
    if not all(values):
        raise SpecError(f"`{text}` has an empty value", hint="separate values by single commas")
    return values


def _progress(number: int, total: int, cell: Cell) -> None:
    """Show what runs now, where a person looks."""
    if not sys.stderr.isatty():
        return
    from sandbox.analysis.grids import budget_of
    from sandbox.report.sweep import budget_text

    model = f"{cell.model} in " if cell.model else ""
    say(f"  run {number} of {total}: {model}{budget_text(budget_of(cell))}")
