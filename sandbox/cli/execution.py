"""From a RunSpec to an exit status: run it, print the table, write the file that was asked for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox.cli.console import has_color, has_unicode, print_error, say, width_of
from sandbox.errors import EXIT_GATE, SandboxError, SpecError
from sandbox.records.result import Outcome, RunResult
from sandbox.spec import RunSpec

if TYPE_CHECKING:
    from sandbox.analysis.gates import Gates


def read_env_files(paths: list[Path]) -> dict[str, str]:
    """Return the variables of some files; the last word about a name holds.

    Raises:
        SpecError: a file cannot be read, or is none of variables.
    """
    from sandbox.environment.env_file import parse_env_file

    values: dict[str, str] = {}
    for path in paths:
        try:
            text = path.read_text("utf-8-sig", errors="surrogateescape")
        except OSError as exc:
            raise SpecError(
                f"cannot read the file of variables {path}: {exc.strerror}",
                hint="it has a line `NAME=VALUE` for each",
            ) from None
        values |= parse_env_file(text, str(path))
    return values


def execute(
    spec: RunSpec,
    *,
    output: Path | None,
    force: bool,
    shown: bool,
    quiet: bool,
    gates: Gates | None = None,
) -> int:
    """Run it, in the background if that was asked for, and return the exit status.

    Raises:
        SandboxError: nothing was started.
    """
    if spec.detach and gates is not None:
        raise SpecError(
            "a run in the background has no exit status for a gate to change",
            hint="leave out --detach, or read the result with `sandbox inspect`",
        )
    if spec.detach:
        from sandbox.engine.background import run_in_background

        say(run_in_background(spec, _exporter(output, force=force)), sys.stdout)
        return 0
    from sandbox.engine.order import Surroundings
    from sandbox.engine.order import run as run_now

    on_copy = None
    if spec.root is not None and not quiet and sys.stderr.isatty():
        from sandbox.cli.progress import CopyLine

        on_copy = CopyLine()
    result = run_now(spec, Surroundings(on_copy=on_copy))
    if shown:
        from sandbox.report.table import render_result

        stream = sys.stderr
        say(
            render_result(
                result,
                width=width_of(stream),
                color=has_color(stream),
                unicode=has_unicode(stream),
            )
        )
    elif result.outcome is not Outcome.EXITED and not quiet:
        say(f"sandbox: {result.reason}")
    try:
        _exporter(output, force=force)(result)
    except SandboxError as error:
        print_error(error)
        if result.exit_code == 0:  # a program that failed is failure enough
            return error.exit_code
    if gates is not None and result.exit_code == 0:
        return _status_of_gates(gates, result)
    return result.exit_code if result.exit_code is not None else SandboxError.exit_code


def _status_of_gates(gates: Gates, result: RunResult) -> int:
    """Tell of the gates that a run has not passed; a program that failed is failure enough."""
    from sandbox.cli.gate_options import failures_of

    failures = failures_of(gates, result)
    for failure in failures:
        say(f"sandbox: gate: {failure}")
    return EXIT_GATE if failures else 0


def _exporter(output: Path | None, *, force: bool) -> Any:
    def export(result: RunResult) -> None:
        if output is None:
            return
        from sandbox.report.export import write_export
        from sandbox.store.reading import blocks_of

        write_export(output, result, blocks_of(result), force=force)

    return export
