"""`sandbox image build` where something goes wrong: room, damage, kills, others at work."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Build = Callable[..., Any]

MIB = 1 << 20
PARTS = ("note", "tree", "step")
"""Of what the store has of a step, beside the blob."""


def wait_for(condition: Callable[[], object], seconds: float = 20) -> None:
    """Wait until something has become so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def start(context: Path, *flags: str) -> subprocess.Popen[str]:
    """Begin a build that goes on beside the test."""
    command = [sys.executable, "-m", "sandbox", "image", "build", *flags, str(context)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_daemons_end_with_their_step(build: Build) -> None:
    built = build(
        "FROM box\nRUN (sleep 1234 &) ; sleep 1234 & echo started >/x\n"
        "RUN cat /x; ! ps | grep 'sleep 123[4]'\n"
    )

    assert built.status == 0, built.stderr
    assert " started\n" in built.stderr
    assert "DONE" in built.stderr


@pytest.mark.slow
def test_networks_of_steps(build: Build) -> None:
    links = "RUN {} echo links $(($(wc -l </proc/net/dev) - 2))\n"
    built = build(
        f"FROM box\n{links.format('--network=none')}{links.format('')}", "--network", "none"
    )

    assert built.status == 0, built.stderr
    assert built.stderr.count(" links 1\n") == 2
    assert build("FROM box\nRUN --network=nosuch true\n").stderr.startswith(
        "sandbox: error: Dockerfile:2: "
    )


@pytest.mark.slow
def test_a_full_disk(box: Path, context: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    home = tmp_path / "small"
    home.mkdir()
    step = "FROM box\nRUN dd if=/dev/zero of=/big bs=1M count={}\n"
    for name, text in {
        "step": step.format(20),
        "archive": step.format(5),
        "copy": "FROM box\nCOPY large /\n",
        "fits": step.format(1),
    }.items():
        (context / f"{name}.Dockerfile").write_text(text)
    with (context / "large").open("wb") as file:
        file.truncate(20 * MIB)
    ours = f"{sys.executable} -m sandbox image"
    script = f"""
        mount -t tmpfs -o size=12m,mode=700 none {home} && {ours} load -q {box} || exit 9
        for name in step archive copy fits; do
            {ours} build -q -f {context}/$name.Dockerfile {context}
            echo $name $? $(ls {home}/images/work)
        done
    """
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "SANDBOX_HOME": str(home)},
    )

    # Nothing of the three that fail is left, so the last one has room.
    lines = [line for line in done.stdout.splitlines() if not line.startswith("sha256:")]
    assert lines == ["step 1", "archive 1", "copy 1", "fits 0"], done.stderr
    for name in ("step", "archive", "copy"):
        assert f"error: {context}/{name}.Dockerfile:2: " in done.stderr
    assert done.stderr.count("hint: free some space, or set SANDBOX_HOME to another disk") == 3
    assert "dd: error writing '/big': No space left on device" in done.stderr


def layer_of_step(home: Path) -> str:
    """Return the diff_id of the one layer that steps have made; its blob has the same digest."""
    steps = [json.loads(path.read_bytes()) for path in (home / "images/builds").iterdir()]
    (found,) = {step["layer"] for step in steps if step.get("layer")}
    return str(found).partition(":")[2]


@pytest.mark.parametrize(
    "what", ["blob", *(pytest.param(each, marks=pytest.mark.slow) for each in PARTS)]
)
def test_what_is_damaged_is_built_anew(
    build: Build, cli: Build, sandbox_home: Path, what: str, tmp_path: Path
) -> None:
    text = "FROM box\nRUN echo content >/made\n"
    assert build(text).status == 0
    images = sandbox_home / "images"
    layer = images / "layers" / layer_of_step(sandbox_home)
    if what == "blob":
        os.truncate(images / "blobs/sha256" / layer.name, 700)
        refused = cli("image", "save", "built", "-o", tmp_path / "damaged.tar")
        assert refused.status == 1
        assert f"the blob sha256:{layer.name} is damaged on this disk" in refused.stderr
        assert not (tmp_path / "damaged.tar").exists()
    elif what == "note":
        (layer / "layer.json").write_text('{"diff_id": ')
    elif what == "tree":
        shutil.rmtree(layer)
    else:
        for path in (images / "builds").iterdir():
            path.write_text("{")

    again = build(text)

    assert again.status == 0, again.stderr
    assert again.stderr.endswith("built: 2 steps, 0 from the cache\n")
    assert cli("image", "save", "built", "-o", tmp_path / "saved.tar").status == 0
    ran = cli("run", "-q", "--network", "none", "--image", "built", "--", "cat", "/made")
    assert ran.stdout == "content\n", ran.stderr
    assert build(text).stderr.endswith("1 from the cache\n")


@pytest.mark.slow
def test_removing_and_pruning_wait_for_a_build(
    build: Build, cli: Build, context: Path, tmp_path: Path, sandbox_home: Path
) -> None:
    assert build("FROM box\nRUN true\n").status == 0
    (context / ".dockerignore").unlink()  # so that the step sees the context itself
    (context / "Dockerfile").write_text(
        "FROM box\nRUN echo first >/first\nRUN --mount=target=/c until test -e /c/go; do sleep 0.1;"
        " done\nRUN cat /first /bin/busybox >/dev/null\n"
    )
    with start(context, "-t", "other") as process:
        wait_for(lambda: len(list((sandbox_home / "images/builds").iterdir())) > 1)
        removed = cli("image", "rm", "box")
        pruned = cli("image", "prune", "--all")
        (context / "go").touch()
        output, errors = process.communicate(timeout=30)

    assert process.returncode == 0, errors
    assert output.startswith("sha256:")
    assert "is in use" in removed.stderr
    assert pruned.status == 0, pruned.stderr
    ran = cli("run", "-q", "--network", "none", "--image", "other", "--", "cat", "/first")
    assert ran.stdout == "first\n", ran.stderr


@pytest.mark.slow
def test_a_killed_build_of_a_plain_user_leaves_nothing(
    many_users: Build, plain_home: Path, plain_python: str, box: Path, tmp_path: Path
) -> None:
    context = plain_home / "context"
    context.mkdir()
    (context / "Dockerfile").write_text(
        "FROM box\nRUN mkdir -m 700 /d && echo x >/d/x && chown -R 33:33 /d\n"
        "RUN mkdir -m 700 /e && touch /e/x && chown -R 33:33 /e && touch /begun && sleep 1000\n"
    )
    shutil.copy(box, plain_home / "box.tar")
    for path in (plain_home / "box.tar", context, context / "Dockerfile"):
        os.chown(path, 65534, 65534)
    sandbox = ("-m", "sandbox")
    assert many_users(*sandbox, "image", "load", "-q", plain_home / "box.tar").returncode == 0
    work = plain_home / "sandbox-home/images/work"
    # It kills the build by itself, as nobody else could know its process.
    script = (
        "import os, signal, subprocess, sys, time, pathlib\n"
        f"words = [sys.executable, '-m', 'sandbox', 'image', 'build', '{context}']\n"
        "build = subprocess.Popen(words)\n"
        f"work = pathlib.Path('{work}')\n"
        "while not list(work.glob('build-*/writes/upper/begun')): time.sleep(0.05)\n"
        f"os.kill(build.pid, {int(signal.SIGKILL)}); build.wait()\n"
    )
    killed = many_users("-c", script)
    assert killed.returncode == 0, killed.stderr
    assert any(work.iterdir())

    time.sleep(0.5)  # the guard is at work; what is left is found by the check after each test
    (context / "Dockerfile").write_text("FROM box\nRUN true\n")
    again = many_users(*sandbox, "image", "build", context)

    assert again.returncode == 0, again.stderr
    assert not any(work.iterdir())
    assert many_users(*sandbox, "image", "prune", "--all").returncode == 0
