"""From the shell's exec to the end of `true`: beside Python and our peers; what protections add."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import _docker
import _podman
from _cli import cli
from _measure import (
    Options,
    Pairs,
    Result,
    Side,
    SkippedError,
    in_turns,
    measuring_cpu,
    pinned,
    skipped,
)

PYTHON_BAR = 1.6
_PYTHON = "python -c 'import typer'"
_OURS = "sandbox run -- true"
_WHAT = "wall time of `sandbox run -- true`"


def measure(options: Options) -> Iterator[Result]:
    """Yield one result a peer, and one a protection; who is not here is named with the reason."""
    import protection  # which takes `timed` from here

    yield from _beside_peers(options)
    yield from protection.measure(options)


def _beside_peers(options: Options) -> Iterator[Result]:
    with ExitStack() as stack:
        ours = stack.enter_context(cli())
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sandbox-bench-")))
        sides: dict[str, Side] = {
            _OURS: timed(ours.run("--", "true"), ours.environment),
            _PYTHON: timed([sys.executable, "-c", "import typer"], ours.environment),
        }
        absent: dict[str, object] = {}
        peers = {
            "docker run": lambda: _docker_side(stack),
            "podman run": lambda: _podman_side(stack),
            "runexec": lambda: _runexec_side(scratch),
        }
        for name, find in peers.items():
            try:
                sides[name] = find()
                sides[name]()  # once unmeasured: caches, and whether it works
            except SkippedError as reason:
                sides.pop(name, None)
                absent[name] = reason
        try:
            for side in (sides[_OURS], sides[_PYTHON]):
                side()
            with pinned(measuring_cpu()):
                found = in_turns(sides, options.pairs)
        except SkippedError as reason:
            yield skipped("launch", _WHAT, reason)
            return
    yield from _results(found)
    for name, reason in absent.items():
        yield skipped("launch", f"{_WHAT} beside `{name}`", reason)


def _results(found: Mapping[str, tuple[float, ...]]) -> Iterator[Result]:
    for name, values in found.items():
        if name != _OURS:
            yield Pairs(found[_OURS], values).result(
                benchmark="launch",
                what=f"{_WHAT} beside `{name}`",
                unit="ms",
                peer_name="theirs",
                bar=PYTHON_BAR if name == _PYTHON else 1.0,
            )


def timed(command: list[str], environment: Mapping[str, str] | None = None) -> Side:
    """Return a function that runs the command and returns its wall time in milliseconds."""

    def run() -> float:
        started_ns = time.perf_counter_ns()
        ended = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
        elapsed_ms = (time.perf_counter_ns() - started_ns) / 1e6
        if ended.returncode != 0:
            said = ended.stderr.decode(errors="replace").strip().splitlines()
            last = said[-1][:200] if said else "no message"
            raise SkippedError(f"`{command[0]}` exits {ended.returncode}: {last}")
        return elapsed_ms

    return run


def _docker_side(stack: ExitStack) -> Side:
    return timed(stack.enter_context(_docker.daemon()).run_command("true"))


def _podman_side(stack: ExitStack) -> Side:
    return timed(stack.enter_context(_podman.engine()).run_command("true"))


def _runexec_side(scratch: Path) -> Side:
    runexec = Path(sys.executable).with_name("runexec")
    if not runexec.exists():
        raise SkippedError("BenchExec is not installed")
    output = str(scratch / "runexec.log")
    command = [str(runexec), "--no-container", "--quiet", "--output", output]
    return timed([*command, "--", shutil.which("true") or "true"])
