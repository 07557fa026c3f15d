"""Second builds that have nothing to do, of many Dockerfiles; builds beside Docker's."""

from __future__ import annotations

import importlib.util
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType

import _docker
from _cli import Cli, cli
from _measure import Options, Pairs, Result, Side, SkippedError, in_turns, progress, skipped
from launch import timed

BAR_MS = 500.0
_TESTS = Path(__file__).resolve().parents[2] / "tests"
_SECONDS = "second builds"
_ROUNDS = 3
"""Of each Dockerfile's second build; there are many."""
_STEPS = """\
FROM box AS made
WORKDIR /src
COPY dir .
RUN cat b.txt sub/c.txt >whole && mkdir -m 750 out
RUN for n in 1 2 3 4 5 6 7 8; do echo $n >out/$n; done
FROM box
ENV MODE=fast
COPY --from=made /src /app
COPY a.txt /app/
RUN chown -R alice:alice /app && rm /bin/true
CMD cat /app/whole
"""


def measure(options: Options) -> Iterator[Result]:
    """Yield the slowest of all second builds, then builds beside `docker build`."""
    if os.geteuid() != 0:
        yield skipped("build", _SECONDS, "the files are those of the tests beside Docker, for root")
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
            yield skipped("build", _SECONDS, reason)
            return
        _do(ours, "load", "-q", str(box))
        yield _second_builds(ours, context, options)
        try:
            docker = stack.enter_context(_docker.daemon())
            yield from _beside_docker(ours, docker, box, context, options)
        except SkippedError as reason:
            yield skipped("build", "builds beside `docker build`", reason)


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
    rounds = min(options.pairs, _ROUNDS)
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
        what=f"{_SECONDS} of {len(found)} Dockerfiles, all from the cache; the slowest, {slowest}",
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
    theirs = {**os.environ, "DOCKER_BUILDKIT": "0"}
    changed = f"{_STEPS}COPY changing /\nRUN cat /changing\n"
    for what, text, prepare, flags in (
        ("a first build: two stages, 4 `COPY`, 3 `RUN`", _STEPS, None, ("--no-cache",)),
        ("the same again, nothing changed", _STEPS, None, ()),
        ("a file changed: one `COPY` and one `RUN` anew", changed, _change, ()),
    ):
        (context / "Dockerfile").write_text(text)
        (context / "changing").write_text("")
        words = ("build", "-q", *flags, "--network", "none", "-t", "built", str(context))
        sides = {
            "ours": _after(prepare, context, timed(_image(ours, *words), ours.environment)),
            "docker build": _after(prepare, context, timed(docker.command(*words), theirs)),
        }
        for side in sides.values():
            side()
        measured = in_turns(sides, options.pairs)
        yield Pairs(measured["ours"], measured["docker build"]).result(
            benchmark="build", what=what, unit="ms", peer_name="docker build"
        )


def _change(context: Path) -> None:
    (context / "changing").write_text(str(time.monotonic_ns()))


def _after(prepare: Callable[[Path], None] | None, context: Path, side: Side) -> Side:
    """Return a side before whose clock starts something is prepared."""
    if prepare is None:
        return side

    def measured() -> float:
        prepare(context)
        return side()

    return measured
