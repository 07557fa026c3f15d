"""Builds by a plain user: the owners that steps set, with and without ids that are lent to them."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Build = Callable[..., Any]
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures/builds"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

OWNED = """\
FROM box AS first
RUN echo x >/f && chown 33:44 /f && chmod 600 /f && mkdir -p /home/alice && \
    chown alice:alice /home/alice && ln -s f /l && chown -h 7:8 /l && \
    mkdir /d && echo y >/d/s && chown 5:6 /d/s && chmod 6755 /d/s && ln /d/s /d/t && chown 9:9 /d
RUN test "$(stat -c %u:%g /f)" = 33:44
COPY --chown=alice a.txt /home/alice/a
RUN touch /home/alice/of-root
FROM first AS second
USER alice
WORKDIR /home/alice
RUN touch of-alice && ! cat /f
RUN --mount=type=bind,from=first,target=/m test "$(stat -c %u:%g:%a /m/d/t)" = 5:6:6755
RUN --mount=type=cache,target=/c,uid=1000,gid=44,mode=0750 touch /c/x && stat -c %u:%g:%a /c >kept
FROM second
USER root
COPY --from=first /d /copied
CMD stat -c '%n %u:%g %a' / /f /l /d /d/* /copied /copied/* /home/* /home/alice/*; cat kept
"""
"""What each step sees and writes depends on what those before it have given to whom."""


@pytest.fixture
def prepared(box: Path, context: Path, plain_home: Path) -> Callable[[str], Path]:
    """`prepared(dockerfile)` returns a context of the plain user's, with the base beside it."""
    theirs = plain_home / "context"
    shutil.copy(box, plain_home / "box.tar")

    def prepare(text: str) -> Path:
        (context / "Dockerfile").write_text(text)
        shutil.copytree(context, theirs, symlinks=True, dirs_exist_ok=True)
        for path in (plain_home / "box.tar", theirs, *theirs.rglob("*")):
            os.chown(path, 65534, 65534, follow_symlinks=False)
        return theirs

    return prepare


@pytest.fixture
def lent(many_users: Build, plain_home: Path) -> Build:
    """`lent("image", "ls")` is `sandbox` of a plain user with lent ids, who has the base."""

    def run(*words: str | Path) -> Any:
        return many_users("-m", "sandbox", *words, timeout=100)

    def load(*words: str | Path) -> Any:
        if not (plain_home / "sandbox-home/images").exists():
            assert run("image", "load", "-q", plain_home / "box.tar").returncode == 0
        return run(*words)

    return load


def config_in(archive: Path) -> dict[str, Any]:
    """Return what an image says of itself."""
    with tarfile.open(archive) as outer:
        manifest = json.load(outer.extractfile("manifest.json"))[0]  # type: ignore[arg-type]
        config: dict[str, Any] = json.load(outer.extractfile(manifest["Config"]))  # type: ignore[arg-type]
    return config


def owners_in(archive: Path) -> dict[str, tuple[int, int]]:
    """Return whose the files of an image are in its topmost layers, as another machine reads it."""
    found: dict[str, tuple[int, int]] = {}
    with tarfile.open(archive) as outer:
        manifest = json.load(outer.extractfile("manifest.json"))[0]  # type: ignore[arg-type]
        for layer in manifest["Layers"]:
            with tarfile.open(fileobj=io.BytesIO(outer.extractfile(layer).read())) as inner:  # type: ignore[union-attr]
                found |= {os.path.normpath(m.name): (m.uid, m.gid) for m in inner}
    return found


@pytest.mark.slow
def test_with_lent_ids_it_is_as_for_root(
    build: Build, cli: Build, lent: Build, prepared: Callable[[str], Path], plain_home: Path
) -> None:
    theirs = prepared(OWNED)
    by_root = build(OWNED)
    by_plain = lent("image", "build", "-t", "built", theirs)

    assert by_root.status == 0, by_root.stderr
    assert by_plain.returncode == 0, by_plain.stderr
    words = ("run", "-q", "--network", "none", "--image", "built")
    ran_by_root, ran_by_plain = cli(*words), lent(*words)
    assert ran_by_plain.stdout == ran_by_root.stdout, ran_by_plain.stderr
    assert "/home/alice/of-root 0:0 644\n" in ran_by_plain.stdout
    assert "/d/s 5:6 6755\n" in ran_by_plain.stdout
    assert ran_by_plain.stdout.endswith("1000:44:750\n")
    saved = [plain_home / "ours.tar", plain_home / "theirs.tar"]
    assert cli("image", "save", "built", "-o", saved[0]).status == 0
    assert lent("image", "save", "built", "-o", saved[1]).returncode == 0
    assert owners_in(saved[0]) == owners_in(saved[1])
    again = lent("image", "build", "-t", "built", theirs)
    assert again.stderr.endswith("from the cache\n")
    assert "DONE" not in [line.split()[1] for line in again.stderr.splitlines() if "RUN" in line]
    assert lent("image", "prune", "--all").returncode == 0
    left = [path for path in (plain_home / "sandbox-home/images").rglob("*") if path.is_file()]
    assert {path.parent.name for path in left} <= {"locks", "images"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["users", "user-writes", "kinds-of-files", "stages"])
def test_what_needs_other_ids_comes_to_the_same(
    build: Build,
    cli: Build,
    lent: Build,
    prepared: Callable[[str], Path],
    plain_home: Path,
    name: str,
) -> None:
    text = (FIXTURES / f"{name}.Dockerfile").read_text()
    theirs = prepared(text)
    by_root = build(text, "--network", "none")
    by_plain = lent("image", "build", "--network", "none", "-t", "built", theirs)

    assert by_root.status == by_plain.returncode == 0, by_root.stderr + by_plain.stderr
    words = ("run", "-q", "--network", "none", "--image", "built")
    assert lent(*words).stdout == cli(*words).stdout
    saved = [plain_home / "ours.tar", plain_home / "theirs.tar"]
    assert cli("image", "save", "built", "-o", saved[0]).status == 0
    assert lent("image", "save", "built", "-o", saved[1]).returncode == 0
    assert owners_in(saved[0]) == owners_in(saved[1])
    assert lent("image", "prune", "--all").returncode == 0


@pytest.mark.slow
def test_an_id_beyond_the_range_is_an_error_with_a_hint(
    lent: Build, prepared: Callable[[str], Path]
) -> None:
    failed = lent("image", "build", prepared("FROM box\nRUN touch /x; chown 70000 /x\n"))

    assert failed.returncode == 1
    assert "Dockerfile:2: RUN touch /x; chown 70000 /x exited 1" in failed.stderr
    assert "hint: there are no such ids inside: larger ranges in /etc/subuid" in failed.stderr


@pytest.mark.slow
def test_an_owner_beyond_the_range_stays_and_is_told(
    lent: Build, prepared: Callable[[str], Path], plain_home: Path
) -> None:
    theirs = prepared(
        "FROM box\nCOPY --chown=70000:7 dir /dir\nRUN stat -c %u:%g /dir && touch /dir/new\n"
    )
    built = lent("image", "build", "-t", "built", theirs)

    assert built.returncode == 0, built.stderr
    assert "files are root's while the steps run, such as /dir, which is 70000:7's" in built.stderr
    assert " 0:0\n" in built.stderr
    archive = plain_home / "saved.tar"
    assert lent("image", "save", "built", "-o", archive).returncode == 0
    owners = owners_in(archive)
    assert (owners["dir"], owners["dir/b.txt"], owners["dir/new"]) == ((70000, 7),) * 2 + ((0, 0),)
    ran = lent("run", "--image", "built", "--", "stat", "-c", "%u", "/dir")
    assert ran.stdout == "0\n"
    assert "files of the image are root's inside, such as /dir" in ran.stderr


def test_without_lent_ids_what_is_given_keeps_its_owner_in_the_image(
    plain_user: Build, prepared: Callable[[str], Path], plain_home: Path
) -> None:
    theirs = prepared(
        "FROM box\nCOPY --chown=alice dir /dir\nRUN touch /dir/new && echo more >>/dir/b.txt\n"
        "USER alice\nWORKDIR /home/alice\nRUN echo x >of-alice\n"
    )

    def sandbox(*words: str | Path) -> Any:
        return plain_user("python", "-m", "sandbox", *words)

    assert sandbox("image", "load", "-q", plain_home / "box.tar").status == 0
    built = sandbox("image", "build", "-t", "built", theirs)
    if "user namespaces may be closed" in built.stderr:
        pytest.skip("a plain user may make no user namespace here")

    assert built.status == 0, built.stderr
    archive = plain_home / "saved.tar"
    assert sandbox("image", "save", "built", "-o", archive).status == 0
    owners = owners_in(archive)
    alice = (1000, 1000)
    assert (owners["dir"], owners["dir/new"], owners["dir/b.txt"]) == (alice, (0, 0), alice)
    assert (owners["home/alice"], owners["home/alice/of-alice"]) == (alice, alice)
    comments = [entry.get("comment", "") for entry in config_in(archive)["history"]]
    assert ["one user only" in comment for comment in comments].count(True) == 2


def test_what_one_user_has_built_is_built_anew_with_lent_ids(
    plain_user: Build, lent: Build, prepared: Callable[[str], Path]
) -> None:
    theirs = prepared("FROM box\nRUN touch /x && chown alice /x && stat -c %U /x\n")
    assert lent("image", "ls").returncode == 0
    alone = plain_user("python", "-m", "sandbox", "image", "build", "-t", "built", theirs)

    many = lent("image", "build", "-t", "built", theirs)

    assert " root\n" in alone.stderr
    assert "seems to succeed" in alone.stderr
    assert " alice\n" in many.stderr
    assert many.stderr.endswith("0 from the cache\n")


@pytest.mark.slow
def test_a_user_that_is_no_id_of_ours_is_an_error(
    lent: Build, prepared: Callable[[str], Path]
) -> None:
    failed = lent("image", "build", prepared("FROM box\nUSER 70000\nRUN true\n"))

    assert failed.returncode == 1
    assert (
        "Dockerfile:3: RUN true: user 70000:0 is beyond the ids that you may use" in failed.stderr
    )
    assert "hint: a larger range in /etc/subuid" in failed.stderr


def test_nothing_stays_of_what_could_not_be_given(
    lent: Build, prepared: Callable[[str], Path], plain_home: Path
) -> None:
    theirs = prepared("FROM box\nCOPY --chown=33 dir /dir\nRUN exit 3\n")
    assert lent("image", "build", theirs).returncode == 1

    assert not any((plain_home / "sandbox-home/images/work").iterdir())
    given = list((plain_home / "sandbox-home/images/lent").glob("*/*/tree/dir/b.txt"))
    assert [path.stat().st_uid for path in given] == [600032]
    pruned: subprocess.CompletedProcess[str] = lent("image", "prune", "--all")
    assert pruned.returncode == 0, pruned.stderr
    assert not any((plain_home / "sandbox-home/images/lent").iterdir())
