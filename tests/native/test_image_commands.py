"""`sandbox image` as a user types it."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox.cli.progress import ProgressBar


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree of files with one that is not for everybody."""
    root = tmp_path / "tree"
    (root / "etc").mkdir(parents=True)
    (root / "etc/secret").write_text("x" * 5000)
    (root / "etc/secret").chmod(0o600)
    return root


def test_an_image_lives_from_load_to_prune(cli: Any, tree: Path, tmp_path: Path) -> None:
    loaded = cli("image", "load", tree, "--tag", "tiny:1")
    assert (loaded.status, loaded.stderr) == (0, "tiny:1: 1 layer, 4.9 KiB\n")
    image_id = loaded.stdout.strip()

    listed = cli("image", "ls")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["IMAGE", "tiny:1"]
    assert cli("image", "ls", "-q").stdout.strip() == image_id
    (document,) = json.loads(cli("image", "inspect", "tiny:1").stdout)
    assert document["id"] == image_id
    assert document["references"] == ["docker.io/library/tiny:1"]
    assert (Path(document["trees"][0]) / "etc/secret").stat().st_mode & 0o777 == 0o600

    saved = cli("image", "save", image_id[7:15], "-o", tmp_path / "saved.tar")
    assert saved.status == 0
    assert cli("image", "rm", "tiny:1").stdout == f"untagged tiny:1\ndeleted {image_id}\n"
    assert cli("image", "load", "-q", tmp_path / "saved.tar").stdout.strip() == image_id
    assert f"deleted {image_id}" in cli("image", "prune", "--all").stdout
    assert "no images yet" in cli("image", "ls").stdout


def test_an_image_goes_through_pipes(cli: Any, tree: Path, tmp_path: Path) -> None:
    image_id = cli("image", "load", "-q", tree, "--tag", "tiny:1").stdout.strip()
    piped = (
        f"{sys.executable} -m sandbox image save tiny:1 -o - | "
        f"SANDBOX_HOME={tmp_path}/other {sys.executable} -m sandbox image load -q -"
    )

    done = subprocess.run(
        ["sh", "-c", piped], capture_output=True, text=True, timeout=50, check=False
    )

    assert (done.returncode, done.stdout.strip()) == (0, image_id), done.stderr
    assert list((tmp_path / "other/images/work").iterdir()) == []
    junk = cli("image", "load", "-", stdin="junk")
    assert junk.status == 1
    assert "what came through the pipe is no image" in junk.stderr


@pytest.mark.parametrize("words", ["load -", "save tiny:1 -o -"])
def test_an_archive_is_nothing_for_a_terminal(cli: Any, tree: Path, words: str) -> None:
    cli("image", "load", "-q", tree, "--tag", "tiny:1")
    controller, terminal = pty.openpty()

    with open(terminal, "r+b", buffering=0) as ends:  # noqa: PTH123 - a descriptor
        done = subprocess.run(
            [sys.executable, "-m", "sandbox", "image", *words.split()],
            stdin=ends,
            stdout=ends,
            stderr=subprocess.PIPE,
            timeout=50,
            check=False,
        )
    os.close(controller)

    assert done.returncode == 1
    assert b"nothing for a terminal" in done.stderr


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["rm", "absent"], 1, "there is no image `absent`"),
        (["inspect", "absent"], 1, "sandbox image pull absent"),
        (["load", "/etc/passwd"], 1, "is no image"),
        (["load", "/nowhere"], 1, "No such file"),
        (["pull", "Wrong"], 2, "small letters"),
        (["pull", "localhost:1/a", "--platform", "a/b/c/d"], 2, "is not a platform"),
        (["load"], 2, "Missing argument"),
    ],
)
def test_what_goes_wrong_is_one_clear_line(
    cli: Any, words: list[str], status: int, message: str
) -> None:
    done = cli("image", *words)

    assert done.status == status
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_home_of_somebody_else_is_refused(cli: Any, tmp_path: Path) -> None:
    home = tmp_path / "open"
    home.mkdir()
    home.chmod(0o777)

    done = cli("image", "ls", env={"SANDBOX_HOME": str(home)})

    assert done.status == 1
    assert "can be written by other users" in done.stderr


def test_progress_is_drawn_on_a_terminal_and_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = pty.openpty()
    with open(write_end, "w", encoding="utf-8") as terminal:  # noqa: PTH123 - a descriptor
        monkeypatch.setattr(sys, "stderr", terminal)
        with ProgressBar("debian:12") as progress:
            progress.expect(2 << 20)
            progress.advance(1 << 20)
        drawn = ""
        while not drawn.endswith("\r\033[K") and select.select([read_end], [], [], 5)[0]:
            drawn += os.read(read_end, 10_000).decode()  # a terminal hands on piece by piece
    os.close(read_end)

    assert "debian:12" in drawn
    assert "50%  1 MiB of 2 MiB" in drawn
    assert drawn.endswith("\r\033[K")


def test_nothing_is_drawn_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)

    with ProgressBar("debian:12") as progress:
        progress.expect(2)
        progress.advance(1)

    assert stream.getvalue() == ""
