"""A second build that has nothing to do, of many Dockerfiles; one new step beside Docker's."""

from __future__ import annotations

import importlib.util
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType

import _docker
from _cli import Cli, cli
from _measure import Options, Pairs, Result, SkippedError, in_turns, progress, skipped
from launch import timed

BAR_MS = 500.0
_TESTS = Path(__file__).resolve().parents[2] / "tests"
_WHAT = "a second build, all of it from the cache"
_STEP = "a build with one new `RUN true`"


def measure(options: Options) -> Iterator[Result]:
    """Yield the slowest of all second builds, then one beside `docker build`."""
    if os.geteuid() != 0:
        yield skipped("build", _WHAT, "the files are those of the tests beside Docker, for root")
        return
    with ExitStack() as stack:
        ours = stack.enter_context(cli())
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sandbox-bench-")))
        kit = _kit()
        try:
            box = kit.write_box(scratch / "box.tar")
            context = kit.make_context(scratch / "context")
        except BaseException as reason:
            if type(reason).__name__ != "Skipped":
                raise
            yield skipped("build", _WHAT, reason)
            return
        _do(ours, "load", "-q", str(box))
        yield _second_builds(ours, context, options)
        try:
            docker = stack.enter_context(_docker.daemon())
            yield from _beside_docker(ours, docker, box, context, options)
        except SkippedError as reason:
            yield skipped("build", f"{_STEP} beside `docker build`", reason)


def _kit() -> ModuleType:
    """Return what the tests make their base image and their context with."""
    path = _TESTS / "native/builds/conftest.py"
    spec = importlib.util.spec_from_file_location("build_kit", path)
    if spec is None or spec.loader is None:
        raise SkippedError(f"{path} is not there")
    module = importlib.util.module_from_spec(spec)
    sys.modules["build_kit"] = module
    spec.loader.exec_module(module)
    return module


def _image(ours: Cli, *words: str) -> list[str]:
    return [ours.run()[0], "image", *words]


def _do(ours: Cli, *words: str) -> None:
    subprocess.run(
        _image(ours, *words), env=ours.environment, check=True, capture_output=True, timeout=120
    )


def _second_builds(ours: Cli, context: Path, options: Options) -> Result:
    found: dict[str, float] = {}
    files = sorted((_TESTS / "fixtures/builds").glob("*.Dockerfile"))
    rounds = max(3, min(options.pairs, 5))
    for number, file in enumerate(files):
        progress(f"{number + 1} of {len(files)}: {file.stem}")
        if file.name.startswith("failing-"):
            continue
        first = file.read_text().partition("\n")[0]
        flags = shlex.split(first.removeprefix("# build:")) if first.startswith("# build:") else []
        (context / "Dockerfile").write_text(file.read_text())
        words = ("build", "-q", "--network", "none", "-t", "built", *flags, str(context))
        _do(ours, *words)
        side = timed(_image(ours, *words), ours.environment)
        found[file.stem] = statistics.median(side() for _ in range(rounds))
    progress("")
    slowest = max(found, key=lambda name: found[name])
    return Result(
        benchmark="build",
        what=f"{_WHAT}: the slowest of {len(found)} Dockerfiles, {slowest}",
        unit="ms",
        ours=found[slowest],
        bar=f"{BAR_MS:g} ms",
        ok=found[slowest] <= BAR_MS,
        note=f"median of all {statistics.median(found.values()):.0f} ms",
        details=found,
    )


def _beside_docker(
    ours: Cli, docker: _docker.Docker, box: Path, context: Path, options: Options
) -> Iterator[Result]:
    subprocess.run(docker.command("load", "-i", str(box)), check=True, capture_output=True)
    (context / "Dockerfile").write_text("FROM box\nCOPY dir /dir\nRUN true\n")
    words = ("build", "-q", "--network", "none", "-t", "built", str(context))
    theirs = {**os.environ, "DOCKER_BUILDKIT": "0"}
    for what, flags in ((_WHAT, ()), (_STEP, ("--no-cache",))):
        sides = {
            "ours": timed(_image(ours, *words[:1], *flags, *words[1:]), ours.environment),
            "theirs": timed(docker.command(*words[:1], *flags, *words[1:]), theirs),
        }
        for side in sides.values():
            side()
        measured = in_turns(sides, options.pairs)
        yield Pairs(measured["ours"], measured["theirs"]).result(
            benchmark="build",
            what=f"{what}, beside `docker build`",
            unit="ms",
            peer_name="theirs",
        )
