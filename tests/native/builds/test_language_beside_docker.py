"""Words of Dockerfiles and lines of .dockerignore, by us and by a real Docker Engine."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from sandbox.errors import SpecError
from sandbox.image.dockerfile import syntax
from sandbox.image.dockerfile.fields import expand_fields
from sandbox.image.dockerfile.parse import parse
from sandbox.image.dockerfile.placement import place
from sandbox.image.dockerfile.selection import View, select
from sandbox.image.dockerfile.tree import Context, read_ignored

PROJECT = Path(__file__).resolve().parents[3]
ENGINE_ONLY = {"PATH"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="a Docker Engine needs root"),
]

Docker = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture(scope="module")
def docker() -> Iterator[Docker]:
    """Run the client of an engine of our own, which builds as before BuildKit."""
    sys.path.insert(0, str(PROJECT / "scripts/benchmarks"))
    try:
        import _docker
        from _measure import SkippedError

        def run(*words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
            return subprocess.run(
                engine.command(*words),
                input=stdin,
                capture_output=True,
                check=False,
                timeout=120,
                env={**os.environ, "DOCKER_BUILDKIT": "0"},
            )

        try:
            with _docker.daemon() as engine:
                yield run
        except SkippedError as exc:
            pytest.skip(str(exc))
    finally:
        sys.path.remove(str(PROJECT / "scripts/benchmarks"))


# --- words ----------------------------------------------------------------------------------------

BEFORE = "ENV HOME=/root SH=bash EMPTY= TWO='a b'\n"
WORDS = [
    *("plain", "$HOME", "${HOME}x", "$HOMEx", "x$SH.y", "$NO", "${NO}", "$", "a$", "$.", "$1x"),
    *("'$HOME'", '"$HOME"', "\"'$HOME'\"", "'a b'", '"a  b"', "a\\ b", "\\$HOME", "\\${HOME}"),
    *('"\\$HOME"', "'\\$HOME'", "\\\\$HOME", '"a\\tb"', "a\\tb", "''", '""', "a'b'\"c\"", "\\'"),
    *("${NO:-word}", "${EMPTY:-word}", "${HOME:-word}", "${NO:-$SH}", "${NO:-${ALSO:-deep}}"),
    *("${HOME:+word}", "${EMPTY:+word}", "${NO:+word}", "${HOME:+$SH}", "${NO:-}", "${HOME}}"),
    *("${HOME:?}", "$TWO", '"$TWO"', "${NO:-\\$SH}", "é$SH", "a=b=$SH", "#$SH", "$SH#", "end\\\\"),
]
BAD_WORDS = ["${", "${}", "${HOME", "'", '"', "${HOME:=x}", "${NO:?}", "${NO:?why}", "${:-x}"]
ARGUMENTS = """\
ARG A=1
ARG B=${A}2
ARG A=3
FROM scratch
ARG B
ARG C=${B}c D=$NO
ENV C=env
ARG C=hidden
ARG E=${C}
LABEL a="$A" b="$B" c="$C" d="$D" e="$E"
"""


def inspect(docker: Docker, text: str, *flags: str) -> dict[str, object]:
    """Return the configuration of what the engine builds."""
    built = docker("build", "-q", *flags, "-", stdin=text.encode())
    assert built.returncode == 0, built.stderr
    found = docker("inspect", "--format", "{{json .Config}}", built.stdout.decode().strip())
    config: dict[str, object] = json.loads(found.stdout)
    return config


def ours(text: str, variables: dict[str, str]) -> list[syntax.Instruction]:
    """Return the instructions of the only stage, each expanded with what was before it."""
    dockerfile = parse(text, "Dockerfile")
    done = []
    for instruction in dockerfile.stages[-1].instructions:
        done.append(expand_fields(instruction, variables, dockerfile))
        if isinstance(done[-1], syntax.Env):
            variables |= dict(done[-1].pairs)
    return done


def test_words_are_expanded_as_docker_does(docker: Docker) -> None:
    lines = [f"FROM scratch\n{BEFORE}ENV", *(f"r{n}={word}" for n, word in enumerate(WORDS))]
    text = " \\\n".join(lines)

    env = inspect(docker, text)["Env"]

    assert isinstance(env, list)
    variables: dict[str, str] = {}
    ours(text, variables)
    theirs = dict(entry.split("=", 1) for entry in env)
    assert {name: variables[name] for name in theirs if name not in ENGINE_ONLY} == {
        name: value for name, value in theirs.items() if name not in ENGINE_ONLY
    }
    assert len(theirs) >= len(WORDS)


@pytest.mark.parametrize("word", BAD_WORDS)
def test_words_that_docker_refuses(docker: Docker, word: str) -> None:
    text = f"FROM scratch\n{BEFORE}ENV r={word}\n"
    assert docker("build", "-q", "-", stdin=text.encode()).returncode != 0
    with pytest.raises(SpecError, match=r"^Dockerfile:3: "):
        ours(text, {})


@pytest.mark.parametrize("given", [{}, {"A": "x"}, {"B": "y"}, {"C": "z", "D": "d"}])
def test_arguments_have_the_same_values(docker: Docker, given: dict[str, str]) -> None:
    from sandbox.image.dockerfile.scope import declare, global_variables

    flags = [f"--build-arg={name}={value}" for name, value in given.items()]
    labels = inspect(docker, ARGUMENTS, *flags)["Labels"]

    dockerfile = parse(ARGUMENTS, "Dockerfile")
    outside = global_variables(dockerfile, given, {})
    arguments: dict[str, str] = {}
    env: dict[str, str] = {}
    found: dict[str, str] = {}
    for instruction in dockerfile.stages[0].instructions:
        variables = {**arguments, **env}
        done = expand_fields(instruction, variables, dockerfile)
        if isinstance(done, syntax.Arg):
            arguments |= declare(
                done, dockerfile, given=given, outside=outside, variables=variables
            )
        elif isinstance(done, syntax.Env):
            env |= dict(done.pairs)
        elif isinstance(done, syntax.Label):
            found |= dict(done.pairs)
    assert found == labels


# --- .dockerignore --------------------------------------------------------------------------------

FILES = ["a", "b.md", "c.go", "d/a", "d/b.md", "d/e/a", "d/e/f.go", "d2/x", "README.md", "[x]", "é"]
IGNORED = [
    "a",
    "/a",
    "d",
    "d/",
    "d/*",
    "d/**",
    "*.md",
    "**/*.md",
    "**/a",
    "**",
    "*",
    "*\n!d2",
    "*\n!README.md",
    "d\n!d/e/f.go",
    "d/*\n!d/e",
    "*.md\n!README.md",
    "!a\na",
    "d?",
    "[a-c]*",
    "[^a-c]*",
    "d/../a",
    "./d/./e",
    "../a",
    ".",
    "# a\n\n  b.md  \n",
    "**/e",
    "d/**/a",
    "\\[x]",
    "[[]x]",
    "é",
    "Dockerfile\n.dockerignore",
    "*\n!*.go\n!d/e/*.go",
]


def make(root: Path, ignored: str) -> None:
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "Dockerfile").write_text("FROM scratch\nCOPY . /there/\n")
    (root / ".dockerignore").write_text(ignored)


def files_of(archive: bytes) -> Sequence[str]:
    """Return the files of the only layer of a saved image."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as image:
        manifest = json.load(image.extractfile("manifest.json"))  # type: ignore[arg-type]
        names = []
        for layer in manifest[0]["Layers"]:
            with tarfile.open(fileobj=image.extractfile(layer)) as tree:
                names += [entry.name for entry in tree if entry.isreg()]
    return sorted(name.removeprefix("there/") for name in names)


@pytest.mark.parametrize("ignored", IGNORED)
def test_the_same_files_are_ignored(docker: Docker, tmp_path: Path, ignored: str) -> None:
    make(tmp_path, ignored)
    built = docker("build", "-q", str(tmp_path))
    assert built.returncode == 0, built.stderr
    theirs = files_of(docker("save", built.stdout.decode().strip()).stdout)

    copy = parse((tmp_path / "Dockerfile").read_bytes(), "Dockerfile").stages[0].instructions[0]
    assert isinstance(copy, syntax.Copy)
    with Context(tmp_path) as context:
        patterns, name = read_ignored(context, tmp_path / "Dockerfile")
        view = View(tree=context, ignored=patterns, ignored_by=name)
        items = place(copy, view, select(copy, view), "/there/", lambda _: False)
        found = [os.fsdecode(item.entry.path) for item in items if not item.entry.is_directory]
    assert sorted(found) == theirs
