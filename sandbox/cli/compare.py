"""`sandbox compare`: did it get slower, or need more?"""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from sandbox.cli.console import CommandExit, has_color, has_unicode, say, width_of
from sandbox.errors import SpecError

_WHAT = "Runs (id, name or run.json; several with commas are repeats), or a file of benchmarks."


def compare(
    before: Annotated[str, typer.Argument(metavar="BEFORE", show_default=False, help=_WHAT)],
    after: Annotated[str, typer.Argument(metavar="AFTER", show_default=False, help="Likewise.")],
    fail_over: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE", help="Exit with 1 if a ratio is above it, as 5%, or a run failed."
        ),
    ] = None,
    metrics: Annotated[
        str, typer.Option(metavar="A,B", help="Which: time, cpu, memory; the gate is on these.")
    ] = "time,cpu,memory",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Compare runs or benchmarks: time, CPU time and memory peak, their ratio and its error.

    With --fail-over 5% the exit status is 1 if a ratio is above 1.05 by more than its error, which
    needs repeats on both sides: `sandbox bench --export-json FILE`. It is 1, too, if a run after
    the change failed, or if none of the metrics was measured on both sides.
    """
    from sandbox.analysis.comparison import compare as compared
    from sandbox.analysis.comparison import failed_gate
    from sandbox.bench.exported import METRICS, pair, read_side
    from sandbox.records.codec import to_plain
    from sandbox.report.comparison import render_comparison
    from sandbox.report.style import Style
    from sandbox.store.reading import load

    asked = [word.strip() for word in metrics.split(",")]
    unknown = [word for word in asked if word not in METRICS]
    if unknown:
        raise SpecError(f"`{unknown[0]}` is no metric", hint=f"choose among {', '.join(METRICS)}")
    share = None if fail_over is None else _parse_share(fail_over)
    style = Style(
        width=width_of(sys.stdout), color=has_color(sys.stdout), unicode=has_unicode(sys.stdout)
    )
    plain: list[dict[str, Any]] = []
    reasons: list[str] = []
    pairs = pair(
        read_side(before, lambda text: load(text).result),
        read_side(after, lambda text: load(text).result),
    )
    for one, other in pairs:
        found = [c for c in compared(one.figures, other.figures) if c.metric in asked]
        over = [] if share is None else [c for c in found if c.exceeds(share)]
        if share is not None:
            reasons += (f"{other.name}: {why}" for why in failed_gate(other.failed, found, over))
        plain.append(
            {
                "before": one.name,
                "after": other.name,
                "failed": {"before": one.failed, "after": other.failed},
                "metrics": [
                    {**to_plain(c), "verdict": c.verdict, "is_over": c in over} for c in found
                ],
            }
        )
        if not as_json:
            name = one.name if one.name == other.name else f"{one.name}, beside {other.name}"
            typer.echo(render_comparison(name, found, style, over))
            for side, measured in (("before", one), ("after", other)):
                if measured.failed:
                    typer.echo(f"  {measured.failed} of the runs {side} failed")
    if as_json:
        typer.echo(json.dumps({"comparisons": plain}, indent=2))
    for reason in reasons:
        say(f"sandbox: gate: {reason}")
    if reasons:
        raise CommandExit(1)


def _parse_share(text: str) -> float:
    number = text.removesuffix("%")
    try:
        share = float(number) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < float("inf"):
        raise SpecError(f"`{text}` is not a share", hint="write `5%` or `0.05`")
    return share
