"""What only BuildKit has, by us and by the BuildKit in a real Docker Engine."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[3]
LEFT_BY_RUNC = {"dev", "proc", "sys", "run/secrets"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="a Docker Engine needs root"),
]

FILES = {
    "mounts": """\
FROM box AS tools
RUN echo of-a-stage > /tool
FROM box
RUN mkdir /cache /scratch /shown /tools /out /run
WORKDIR /shown
RUN --mount=type=cache,target=/cache echo kept > /cache/x
RUN --mount=type=cache,target=/cache,ro cp /cache/x /out/kept; ! touch /cache/y
RUN --mount=type=cache,target=/cache,id=other ls /cache > /out/other
RUN --mount=type=tmpfs,target=/scratch touch /scratch/x; ls /scratch > /out/scratch
RUN --mount=target=/shown cat /shown/dir/b.txt > /out/context; ! touch /shown/new
RUN --mount=source=dir,target=/shown,rw touch /shown/new; ls -a > /out/below
RUN --mount=from=tools,source=/tool,target=/tools/t cp /tools/t /out/stage
RUN --mount=from=box,source=/etc,target=/tools cp /tools/passwd /out/image
RUN --mount=type=secret,id=key cat /run/secrets/key > /out/secret
RUN --mount=type=secret,id=key,target=/cache/k,mode=0404,uid=1000 \\
    stat -c '%a %u' /cache/k > /out/mode
RUN --mount=type=secret,id=none test ! -e /run/secrets/none && echo none > /out/none
RUN ls /cache /scratch /shown /tools > /out/left
CMD tail -n 100 /out/*
""",
    "only-needed-stages": """\
FROM box AS broken
RUN false
FROM box AS one
RUN echo one > /one
FROM broken AS also
RUN true
FROM box
COPY --from=1 /one /
COPY --from=box /etc/passwd /copied
CMD cat /one /copied
""",
    "arguments": """\
ARG BASE=box
FROM ${BASE} AS one
ARG HERE=one
ARG TARGETARCH
ARG TARGETPLATFORM BUILDPLATFORM
FROM one
RUN echo "$HERE $TARGETARCH $TARGETPLATFORM $BUILDPLATFORM [$TARGETOS]" > /said
ENV A=env
ARG B=$A
ARG C=${NO:-${HERE}}
RUN echo "$A $B $C" >> /said
LABEL b=$B c=$C
CMD cat /said
""",
    "modes": """\
FROM box
COPY --chmod=640 a.txt /x/a
COPY --chmod=755 dir /y
COPY --chmod=711 --chown=alice a.txt /z/
CMD ls -l /x /y /z
""",
    "places": """\
FROM box
WORKDIR /w
COPY a.txt b.go .
COPY no* a.txt ./new/
COPY dir/ ./d/.
COPY ./dir ../up
CMD find /w /up | sort
""",
    "links-on-the-way": """\
FROM box
RUN mkdir /real && ln -s /real /link && ln -s nowhere /dangling
COPY a.txt /link/
COPY b.go /link/deep/b.go
COPY dir /link
CMD find /real | sort
""",
    "over-links": """\
FROM box
RUN mkdir /pre /real && ln -s /real/x /pre/a.txt && ln -s /real /link && ln -s /real/y /exact
COPY a.txt /pre/
COPY b.go /exact
COPY link-to-a link-to-dir /link/
COPY dir/s* /pre/a.txt.d/
COPY --from=box /etc/* /etc-copy/
CMD find /pre /real | sort; cat /real/y
""",
    "triggers": """\
FROM box AS parent
ONBUILD COPY a.txt /trigger/
ONBUILD ARG T=value
ONBUILD RUN echo "$T" > /trigger/said
FROM parent
RUN cat /trigger/a.txt /trigger/said > /both
CMD cat /both
""",
    "owners": """\
FROM box
COPY --chown=alice:video a.txt /made/by/copy/
COPY --chown=alice dir /made/by/directory/deeper
USER alice
WORKDIR /made/by/workdir
USER 1000:44
WORKDIR /other/two
USER 7
WORKDIR /seven
USER nobody-knows
WORKDIR /made/unknown
USER alice:video
WORKDIR /made/video
COPY a.txt .
CMD find /made
""",
    "shells": """\
FROM box
SHELL ["/bin/sh", "-e", "-c"]
RUN echo "$-" > /flags
ENTRYPOINT echo entry
CMD cat /flags
HEALTHCHECK --interval=10s CMD true
""",
}

Docker = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def docker(box: Path) -> Iterator[Docker]:
    """Run a client that has BuildKit in it, of an engine of our own."""
    sys.path.insert(0, str(PROJECT / "scripts/benchmarks"))
    try:
        import _docker
        from _measure import SkippedError

        def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
            command = [client, *engine.command(*map(str, words))[1:]]
            return subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
                env={**os.environ, "DOCKER_BUILDKIT": "1"},
            )

        client = find_client()
        try:
            with _docker.daemon() as engine:
                loaded = run("load", "-i", box)
                assert loaded.returncode == 0, loaded.stderr
                yield run
        except SkippedError as exc:
            pytest.skip(str(exc))
    finally:
        sys.path.remove(str(PROJECT / "scripts/benchmarks"))


def find_client() -> str:
    """Return a client of before version 23: later ones leave builds to a plugin."""
    for path in ("/usr/bin/docker", shutil.which("docker")):
        if path is None or not Path(path).exists():
            continue
        said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
        version = said.stdout.partition("version ")[2].partition(".")[0]
        if version.isdecimal() and int(version) < 23:
            return path
    pytest.skip("no docker client that has BuildKit in it")


def tree_of(archive: Path) -> dict[str, Any]:
    """Return the files of an image, by their names."""
    found: dict[str, Any] = {}
    with tarfile.open(archive) as image:
        manifest = json.load(image.extractfile("manifest.json"))  # type: ignore[arg-type]
        for layer in manifest[0]["Layers"]:
            data = image.extractfile(layer).read()  # type: ignore[union-attr]
            with tarfile.open(fileobj=io.BytesIO(data)) as tree:
                for entry in tree:
                    name = os.path.normpath(entry.name)
                    assert "/.wh." not in f"/{name}"
                    content = tree.extractfile(entry).read() if entry.isreg() else None  # type: ignore[union-attr]
                    facts = (entry.type, oct(entry.mode & 0o7777), entry.uid, entry.gid)
                    found[name] = (*facts, entry.linkname, content)
    return {name: facts for name, facts in found.items() if name not in {".", *LEFT_BY_RUNC}}


def config_of(archive: Path) -> dict[str, Any]:
    with tarfile.open(archive) as image:
        manifest = json.load(image.extractfile("manifest.json"))  # type: ignore[arg-type]
        config = json.load(image.extractfile(manifest[0]["Config"]))  # type: ignore[arg-type]
    names = ("Cmd", "Entrypoint", "Env", "Healthcheck", "Labels", "OnBuild", "Shell", "WorkingDir")
    return {name: config["config"][name] for name in names if config["config"].get(name)}


@pytest.mark.parametrize("name", FILES)
def test_they_come_to_the_same(
    docker: Docker, box: Path, context: Path, tmp_path: Path, name: str
) -> None:
    def ours(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "sandbox", *map(str, words)],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={**os.environ, "SANDBOX_HOME": str(tmp_path / "home")},
        )

    (context / "Dockerfile").write_text(FILES[name])
    (tmp_path / "key").write_text("the secret\n")
    secret = f"id=key,src={tmp_path / 'key'}"
    words = ("build", "--network", "none", "--secret", secret, "-t", name, context)
    assert ours("image", "load", "-q", box).returncode == 0
    by_us, by_them = ours("image", *words), docker(*words)
    assert by_them.returncode == 0, by_them.stderr
    assert by_us.returncode == 0, by_us.stderr
    assert ours("image", "save", name, "-o", tmp_path / "ours.tar").returncode == 0
    assert docker("save", name, "-o", tmp_path / "theirs.tar").returncode == 0

    assert tree_of(tmp_path / "ours.tar") == tree_of(tmp_path / "theirs.tar")
    assert config_of(tmp_path / "ours.tar") == config_of(tmp_path / "theirs.tar")
    run_by_us = ours("run", "-q", "--network", "none", "--image", name)
    run_by_them = docker("run", "--rm", "--network", "none", name)
    assert run_by_us.stdout == run_by_them.stdout
