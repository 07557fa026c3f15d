"""`sandbox budget`: the smallest limit in which a command still ends well."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from sandbox.cli.console import CommandExit, has_color, has_unicode, say, width_of
from sandbox.cli.security_options import HardenEach
from sandbox.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.budget import Question
    from sandbox.records.budget import Trial

CONTEXT_SETTINGS = {"ignore_unknown_options": False, "allow_interspersed_args": False}


def budget(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", show_default=False, help="After `--`.")
    ],
    max_time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Look for the smallest --cpus that is done in TIME."),
    ] = None,
    cpus: Annotated[str | None, typer.Option(help="Keep this CPU limit in every run.")] = None,
    memory: Annotated[
        str | None,
        typer.Option("--memory", "-m", help="Keep this memory limit; beside --max-time."),
    ] = None,
    slower_than: Annotated[
        float,
        typer.Option(metavar="RATIO", help="Slower than RATIO x the unlimited run is a failure."),
    ] = 3.0,
    precision: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE|CPUS", help="How fine to look: 1 MiB or 2 % of the peak; 0.05 CPUs."
        ),
    ] = None,
    proofs: Annotated[int, typer.Option(help="More runs on each side of the border.")] = 3,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", metavar="NAME[=VALUE]", help="Set a variable."),
    ] = None,
    workdir: Annotated[str | None, typer.Option("--workdir", "-w", help="Start there.")] = None,
    harden: HardenEach = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Find the smallest memory limit in which a command still ends well.

    It is run again and again, in limits that are halved and bisected; each run is recorded as any
    other. A run has to exit with 0 and may take 3 times as long as without the limit. With
    --max-time the smallest CPU limit is looked for instead. Exit status 1 if no limit is enough.
    """
    from sandbox.budget import Question, find_budget
    from sandbox.helper.client import run_spec
    from sandbox.kernel.host import read_host
    from sandbox.kernel.place import find_place
    from sandbox.kernel.roots import Roots
    from sandbox.records.codec import to_plain
    from sandbox.report.budget import render_budget
    from sandbox.spec import Limits, parse_environment
    from sandbox.units import parse_cpus, parse_duration, parse_size

    roots = Roots()
    host = read_host(roots, find_place(roots))
    step = None
    if precision is not None:
        step = parse_size(precision) if max_time is None else _thousandths(precision)
    question = Question(
        command=tuple(command),
        limits=Limits(
            cpus=None if cpus is None else parse_cpus(cpus),
            memory_bytes=None if memory is None else parse_size(memory),
        ),
        environment=parse_environment(tuple(env or ()))[0],
        workdir=workdir,
        is_hardened=harden,
        max_wall_ns=None if max_time is None else parse_duration(max_time),
        slowest_ratio=slower_than,
        step=step,
        proofs=proofs,
    )
    with open(os.devnull) as nothing:  # noqa: PTH123 - what one run has read, the next would miss
        found = find_budget(
            question,
            lambda spec: run_spec(spec, (nothing, None, None)),
            host_cpus=len(host.cpus_allowed),
            host_memory_bytes=host.memory_total_bytes,
            on_trial=_progress(question),
        )
    if as_json:
        typer.echo(json.dumps(to_plain(found), indent=2))
    else:
        typer.echo(
            render_budget(
                found,
                width=width_of(sys.stdout),
                color=has_color(sys.stdout),
                unicode=has_unicode(sys.stdout),
            )
        )
    if found.smallest is None:
        raise CommandExit(1)


def _thousandths(text: str) -> int:
    from sandbox.units import parse_cpus

    step = round(parse_cpus(text) * 1_000)
    if step < 10:  # noqa: PLR2004 - the smallest quota
        raise SpecError(
            f"a precision of {text} CPUs is finer than the kernel's 0.01",
            hint="`--precision 0.05` is one more often wanted",
        )
    return step


def _progress(question: Question) -> Callable[[Trial], None]:
    """Return what shows each run as it ends, where a person looks."""
    from sandbox.report.budget import limit_text
    from sandbox.report.numbers import duration_text

    def show(trial: Trial) -> None:
        if sys.stderr.isatty():
            limit = limit_text(question.quantity, trial.limit)
            say(f"  {limit:>12}  {trial.why}, {duration_text(trial.wall_ns)}")

    return show
