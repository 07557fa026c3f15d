"""The Dockerfiles that need no root, built by a plain user: the same words, the same behaviour."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[3]
# What these do, they do with the ids of others.
NEED_OTHERS = {"users", "user-writes", "kinds-of-files", "stages"}
DOCKERFILES = [
    path
    for path in sorted((PROJECT / "tests/fixtures/builds").glob("*.Dockerfile"))
    if path.name.partition(".")[0] not in NEED_OTHERS
]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(200),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
]


def names(path: Path) -> str:
    return path.name.partition(".")[0]


def said(inspected: str) -> dict[str, Any]:
    """Return what an image says of itself, without ids, times and places."""
    document = json.loads(inspected)[0]
    for name in ("id", "manifest", "added_utc_ns", "created", "trees", "userxattr", "layers"):
        del document[name]
    return dict(document)


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=names)
def test_a_plain_user_comes_to_the_same(
    cli: Callable[..., Any],
    plain_user: Callable[..., Any],
    plain_home: Path,
    box: Path,
    context: Path,
    dockerfile: Path,
) -> None:
    (context / "Dockerfile").write_text(dockerfile.read_text())
    first = dockerfile.read_text().partition("\n")[0]
    flags = shlex.split(first.removeprefix("# build:")) if first.startswith("# build:") else []
    theirs = plain_home / "context"
    shutil.copytree(context, theirs, symlinks=True)
    shutil.copy(box, plain_home / "box.tar")
    for path in (plain_home / "box.tar", theirs, *theirs.rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)

    def plain(*words: str | Path) -> Any:
        return plain_user("python", "-m", "sandbox", *words, timeout=100)

    assert cli("image", "load", "-q", box).status == 0
    assert plain("image", "load", "-q", plain_home / "box.tar").status == 0
    by_root = cli("image", "build", "-t", "built", *flags, context, timeout=100)
    by_plain = plain("image", "build", "-t", "built", *flags, theirs)

    if "user namespaces may be closed" in by_plain.stderr:
        pytest.skip("a plain user may make no user namespace here")
    assert by_plain.status == by_root.status, by_plain.stderr + by_root.stderr
    if by_root.status != 0:
        return
    inspected = [run("image", "inspect", "built").stdout for run in (cli, plain)]
    assert said(inspected[0]) == said(inspected[1])
    words = ("run", "-q", "--network", "none", "--image", "built")
    ran_by_root, ran_by_plain = cli(*words), plain(*words)
    assert (ran_by_plain.status, ran_by_plain.stdout) == (ran_by_root.status, ran_by_root.stdout)
