"""`sandbox bench`: flags to plans, benchmarks to a report."""

# Without `from __future__ import annotations`, as in `run`: typer reads the flags' types.

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sandbox.cli.bench_options import (
    AFTER_DASHES,
    BenchCommand,
    Environment,
    Memory,
    Packages,
    Requirements,
    Timeout,
    VenvPath,
    split_words,
)
from sandbox.cli.console import CommandExit, has_color, has_unicode, print_error, say, width_of
from sandbox.cli.environments import progress_line, provide_venv
from sandbox.cli.gate_options import MaxCpuTime, MaxPeak, MaxTime, make_gates
from sandbox.cli.limit_options import Cpus, CpusetCpus
from sandbox.cli.options import option, parse_cpuset
from sandbox.cli.security_options import HardenEach, harden_each
from sandbox.errors import SpecError, StoreError
from sandbox.report.style import Style
from sandbox.spec import Capture, Limits, RunSpec, parse_environment

if TYPE_CHECKING:
    from sandbox.analysis.gates import Gates
    from sandbox.bench.session import Around
    from sandbox.records.benchmark import Benchmark
    from sandbox.records.result import RunResult

COMMAND_CLASS = BenchCommand

_MANNERS, _PARAMETERS, _RESULTS = "Repeats", "Parameters", "Results"
_END_BYTES = 4_096


def bench(
    commands: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="'COMMAND'... | -- COMMAND [ARG]...",
            show_default=False,
            help="Commands, each in quotes; or one after --.",
        ),
    ] = None,
    runs: Annotated[
        int,
        option("--runs", "-r", panel=_MANNERS, metavar="N", min=1, help="Measured runs; 5."),
    ] = 5,
    warmup: Annotated[
        int,
        option("--warmup", "-w", panel=_MANNERS, metavar="N", min=0, help="Runs before them; 1."),
    ] = 1,
    interleave: Annotated[
        bool,
        option(
            "--interleave",
            panel=_MANNERS,
            help="One run of each command in turn: what drifts then disturbs all alike.",
        ),
    ] = False,
    prepare: Annotated[
        list[str] | None,
        option(
            "--prepare",
            "-p",
            panel=_MANNERS,
            metavar="CMD",
            help="Shell command before each run; one for all, or one for each command.",
        ),
    ] = None,
    setup: Annotated[
        str | None,
        option("--setup", "-s", panel=_MANNERS, metavar="CMD", help="Before a command's first."),
    ] = None,
    cleanup: Annotated[
        str | None,
        option("--cleanup", "-c", panel=_MANNERS, metavar="CMD", help="After a command's last."),
    ] = None,
    ignore_failure: Annotated[
        bool,
        option("--ignore-failure", "-i", panel=_MANNERS, help="Go on when a command fails."),
    ] = False,
    shell: Annotated[
        bool,
        option(
            "--shell",
            panel=_MANNERS,
            help="Run commands in quotes by /bin/sh, whose start is then measured too.",
        ),
    ] = False,
    parameter_list: Annotated[
        list[str] | None,
        option(
            "--parameter-list",
            "-L",
            panel=_PARAMETERS,
            metavar="VAR A,B,C",
            help="Repeat for each value in the place of {VAR}.",
        ),
    ] = None,
    parameter_scan: Annotated[
        list[str] | None,
        option(
            "--parameter-scan",
            "-P",
            panel=_PARAMETERS,
            metavar="VAR MIN MAX",
            help="Repeat for each number in the place of {VAR}.",
        ),
    ] = None,
    step: Annotated[
        str | None,
        option(
            "--parameter-step-size",
            "-D",
            panel=_PARAMETERS,
            metavar="N",
            help="Step of the scans; 1 unless given.",
        ),
    ] = None,
    command_name: Annotated[
        list[str] | None,
        option(
            "--command-name", "-n", panel=_PARAMETERS, metavar="NAME", help="What to call each."
        ),
    ] = None,
    cpus: Cpus = None,
    cpuset_cpus: CpusetCpus = None,
    memory: Memory = None,
    timeout: Timeout = None,
    max_peak: MaxPeak = None,
    max_time: MaxTime = None,
    max_cpu_time: MaxCpuTime = None,
    env: Environment = None,
    venv: VenvPath = None,
    requirements: Requirements = None,
    pip: Packages = None,
    harden: HardenEach = False,
    show_output: Annotated[
        bool, option("--show-output", panel=_RESULTS, help="Do not keep what they print: show it.")
    ] = False,
    export_json: Annotated[
        Path | None,
        option(
            "--export-json",
            panel=_RESULTS,
            metavar="FILE",
            help="Write all times and statistics in hyperfine's format.",
        ),
    ] = None,
    reference: Annotated[
        int | None,
        option(
            "--reference",
            panel=_RESULTS,
            metavar="N",
            min=1,
            help="Compare with the Nth command instead of the fastest.",
        ),
    ] = None,
) -> None:
    """Repeat commands inside a budget and compare what they used.

    Each run is a run of its own: recorded, limited and measured as by `sandbox run`.
    """
    from sandbox.bench.plan import Hooks, make_plans, split_command
    from sandbox.bench.session import Order, StoppedError, run_session

    values, unset = parse_environment(tuple(env or ()))
    words = [
        tuple(text.split(AFTER_DASHES)[1:])
        if text.startswith(AFTER_DASHES)
        else split_command(text, shell=shell)
        for text in commands or ()
    ]
    if not words:
        raise SpecError("no command was given", hint="`sandbox bench 'sleep 0.1' 'sleep 0.2'`")
    prepares: list[str | None] = [*prepare] if prepare else [None]
    hooks = [Hooks(setup=setup, prepare=text, cleanup=cleanup) for text in prepares]
    spec = RunSpec(
        command=words[0],
        limits=Limits(
            cpus=cpus,
            cpuset_cpus=None if cpuset_cpus is None else parse_cpuset(cpuset_cpus, cpus),
            memory_bytes=memory,
            timeout_ns=timeout,
        ),
        environment=values,
        environment_unset=unset,
        venv=provide_venv(venv, requirements or (), pip or ()),
        capture=Capture.NONE if show_output else Capture.FILE,
        **harden_each(harden=harden),
    )
    plans = make_plans(
        words,
        spec,
        parameters=_parameters(parameter_list or (), parameter_scan or (), step),
        hooks=hooks,
        names=command_name or (),
    )
    if reference is not None and reference > len(plans):
        raise SpecError(
            f"--reference {reference}: there are only {len(plans)} commands",
            hint="commands are counted from 1",
        )
    if export_json is not None:
        from sandbox.report.export import check_file

        check_file(export_json)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)  # no command may read what is meant for another one
    os.close(null)
    with progress_line() as progress:
        report = _Report(progress, export_json, runs=runs)
        order = Order(
            runs=runs, warmup=warmup, interleave=interleave, ignore_failure=ignore_failure
        )
        try:
            benchmarks = run_session(plans, report.around(), order)
        except StoppedError as stopped:
            report.show(stopped.benchmarks, whole=False)
            if report.problem is not None:
                print_error(report.problem)
            print_error(stopped)
            raise CommandExit(stopped.exit_code) from None
    report.compare(benchmarks, None if reference is None else reference - 1)
    gates = make_gates(max_peak, max_time, max_cpu_time)
    failed = gates is not None and _fail(gates, benchmarks)
    if report.problem is not None:
        raise report.problem
    if failed:
        raise CommandExit(1)


def _fail(gates: "Gates", benchmarks: "list[Benchmark]") -> bool:
    """Tell of the commands that do not pass; the highest peak and the mean times are judged."""
    from sandbox.analysis.gates import failed_gates
    from sandbox.report.bench import judged_figures

    failed = False
    for benchmark in benchmarks:
        for failure in failed_gates(gates, **judged_figures(benchmark)):
            say(f"sandbox: gate: {benchmark.command}: {failure}")
            failed = True
    return failed


def _parameters(lists: Sequence[str], scans: Sequence[str], step: str | None) -> dict[str, Any]:
    from sandbox.bench.plan import parse_list, parse_scan

    found: list[tuple[str, tuple[str, ...]]] = []
    for text in lists:
        name, values = split_words(text)
        found.append((name, parse_list(values)))
    for text in scans:
        name, low, high = split_words(text)
        found.append((name, parse_scan(low, high, step)))
    names = [name for name, _ in found]
    for name in names:
        if names.count(name) > 1:
            raise SpecError(
                f"the parameter {name} is given twice",
                hint="give all its values at once: `-L name a,b,c`",
            )
    return dict(found)


class _Report:
    """What is printed and written as the benchmarks come."""

    def __init__(
        self, progress: Callable[[str], None], export_json: Path | None, *, runs: int
    ) -> None:
        self._progress = progress
        self._export_json = export_json
        self._runs = runs
        self._shown = 0
        self.problem: StoreError | None = None
        """Why the last export was not written."""
        self._style = Style(
            width=width_of(sys.stdout), color=has_color(sys.stdout), unicode=has_unicode(sys.stdout)
        )

    def around(self) -> "Around":
        """Return what a session works with here."""
        from sandbox.bench.session import Around
        from sandbox.engine.series import run_one_of_several

        return Around(
            execute=run_one_of_several,
            shell=run_hook,
            output_of=end_of_output,
            progress=self._progress,
            finished=self.show,
        )

    def show(self, benchmarks: "list[Benchmark]", *, whole: bool = True) -> None:
        """Print the benchmarks that have all their runs and were not printed yet."""
        for number, benchmark in enumerate(benchmarks, 1):
            if number > self._shown and (len(benchmark.repeats) == self._runs or not whole):
                self._progress("")
                typer.echo(("" if number == 1 else "\n") + self._render(benchmark, number))
                self._shown = number
        if self._export_json is not None and benchmarks:
            self._export(self._export_json, benchmarks)

    def _export(self, path: Path, benchmarks: "list[Benchmark]") -> None:
        """Write them so far; what cannot be written, a full disk, ends no benchmark."""
        from sandbox.report.bench import hyperfine_json
        from sandbox.report.export import write_whole

        try:
            write_whole(path, hyperfine_json(benchmarks))
        except StoreError as error:
            self.problem = error
        else:
            self.problem = None

    def _render(self, benchmark: "Benchmark", number: int) -> str:
        from sandbox.report.bench import render_benchmark

        return render_benchmark(benchmark, number, self._style)

    def compare(self, benchmarks: "list[Benchmark]", reference: int | None) -> None:
        """Print how the commands compare, if there are several."""
        from sandbox.report.bench import render_ratios

        if len(benchmarks) > 1:
            typer.echo("\n" + render_ratios(benchmarks, self._style, reference))


def run_hook(text: str) -> int:
    """Run a shell command of the user's, outside of every measurement; return its status."""
    import subprocess

    return subprocess.run(["/bin/sh", "-c", text], stdin=subprocess.DEVNULL, check=False).returncode


def end_of_output(result: "RunResult") -> str:
    """Return the end of what a run wrote to stderr, or to stdout if that is empty."""
    if result.directory is None:
        return ""
    for name in ("stderr", "stdout"):
        try:
            data = Path(result.directory, name).read_bytes()[-_END_BYTES:]
        except OSError:
            continue
        if data.strip():
            return data.decode("utf-8", "replace")
    return ""
