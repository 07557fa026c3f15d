"""Build contexts: nothing outside of one is ever seen, whatever lies in it."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import ImageError, SpecError
from sandbox.image.dockerfile.tree import Context, ContextEntry, read_ignored


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a context beside which lies what no build may see."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "key").write_text("secret")
    root = tmp_path / "context"
    (root / "d" / "e").mkdir(parents=True)
    (root / "d" / "f").write_text("f")
    (root / "d" / "e" / "g").write_text("g")
    return root


@pytest.fixture
def context(root: Path) -> Iterator[Context]:
    with Context(root) as context:
        yield context


def read(context: Context, path: str) -> str | None:
    """Return what a file holds; None if it is not there."""
    entry = context.find(os.fsencode(path))
    if entry is None or not stat.S_ISREG(entry.found.st_mode):
        return None
    with os.fdopen(context.open(entry), "r") as file:
        return file.read()


@pytest.mark.parametrize("path", ["d/f", "/d/f", "./d//f", "d/e/../f", "../../d/f", "d/f/"])
def test_a_path_is_from_the_top(context: Context, path: str) -> None:
    assert read(context, path) == "f"


@pytest.mark.parametrize("path", ["no", "d/no", "d/f/x", "no/../d/f"])
def test_what_is_not_there(context: Context, path: str) -> None:
    assert context.find(os.fsencode(path)) is None


@pytest.mark.parametrize(
    ("target", "path", "found"),
    [
        ("d", "link/f", "f"),
        ("/d", "link/f", "f"),
        ("../../../d/e", "link/g", "g"),
        ("d/f", "link", "f"),
        ("d/e/../f", "link", "f"),
        ("../outside/key", "link", None),
        ("../outside", "link/key", None),
        ("/etc/passwd", "link", None),
        ("/proc/self/root/etc/passwd", "link", None),
        ("/", "link/d/f", "f"),
        ("nothing", "link", None),
    ],
)
def test_a_link_means_a_place_inside(
    root: Path, context: Context, target: str, path: str, found: str | None
) -> None:
    (root / "link").symlink_to(target)
    assert read(context, path) == found


def test_a_link_to_the_outside_by_its_full_path_finds_nothing(root: Path, context: Context) -> None:
    (root / "link").symlink_to(root.parent / "outside" / "key")
    assert (root / "link").read_text() == "secret"
    assert read(context, "link") is None


def test_a_link_can_be_looked_at_itself(root: Path, context: Context) -> None:
    (root / "link").symlink_to("../outside/key")
    entry = context.find(b"link", follow=False)
    assert entry is not None
    assert entry.is_link
    assert context.read_link(entry) == b"../outside/key"


def test_links_in_circles_are_an_error(root: Path, context: Context) -> None:
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    with pytest.raises(ImageError, match="go in circles"):
        context.find(b"a/x")


def test_a_directory_that_becomes_a_link_meanwhile_leads_nowhere(
    root: Path, context: Context
) -> None:
    directory, file = context.find(b"d"), context.find(b"d/f")
    assert directory is not None
    assert file is not None
    (root / "d").rename(root / "old")
    (root / "d").symlink_to(root.parent / "outside")
    (root.parent / "outside" / "f").write_text("secret")

    with pytest.raises(ImageError, match="cannot read"):
        list(context.children(directory))
    with pytest.raises(ImageError, match="cannot read"):
        context.open(file)


def test_a_file_that_becomes_a_pipe_meanwhile_is_not_waited_for(
    root: Path, context: Context
) -> None:
    file = context.find(b"d/f")
    assert file is not None
    (root / "d" / "f").unlink()
    os.mkfifo(root / "d" / "f")
    os.close(context.open(file))


def test_entries_come_in_order(root: Path, context: Context) -> None:
    for name in ("b", "A", "é", "a"):
        (root / "d" / "e" / name).touch()
    os.close(os.open(os.fsencode(root / "d" / "e") + b"/\xff", os.O_CREAT))
    directory = context.find(b"d/e")
    assert directory is not None
    names = [entry.path for entry in context.children(directory)]
    assert names == [b"d/e/A", b"d/e/a", b"d/e/b", b"d/e/g", "d/e/é".encode(), b"d/e/\xff"]


def test_a_context_that_is_none(tmp_path: Path) -> None:
    for name in ("no", "file"):
        (tmp_path / "file").touch()
        with pytest.raises(SpecError, match=r"cannot use .* as context"):
            Context(tmp_path / name)


@given(st.lists(st.sampled_from(["d", "e", "f", "g", "..", ".", "", "up", "abs"]), max_size=8))
def test_no_path_leaves(tmp_path_factory: pytest.TempPathFactory, parts: list[str]) -> None:
    root = tmp_path_factory.getbasetemp() / "same" / "context"
    if not root.exists():
        (root / "d" / "e").mkdir(parents=True)
        (root / "d" / "f").touch()
        (root / "d" / "up").symlink_to("../../..")
        (root / "abs").symlink_to(root.parent)
    with Context(root) as context:
        entry = context.find(os.fsencode("/".join(parts)))
    if entry is not None:
        real = (root / os.fsdecode(entry.path)).resolve()
        assert real == root or root in real.parents


# --- which .dockerignore --------------------------------------------------------------------------


def test_the_dockerfiles_own_patterns_win(root: Path, context: Context) -> None:
    assert not read_ignored(context, None)[0]

    (root / ".dockerignore").write_text("a\n")
    dockerfile = root.parent / "outside" / "Some.Dockerfile"
    patterns, name = read_ignored(context, dockerfile)
    assert patterns.matches("a")
    assert name == str(root / ".dockerignore")

    own = dockerfile.with_name("Some.Dockerfile.dockerignore")
    own.write_text("b\n")
    patterns, name = read_ignored(context, dockerfile)
    assert patterns.matches("b")
    assert not patterns.matches("a")
    assert name == str(own)


def test_patterns_are_not_read_from_outside(root: Path, context: Context) -> None:
    (root / ".dockerignore").symlink_to(root.parent / "outside" / "key")
    patterns, name = read_ignored(context, None)
    assert not patterns
    assert name is None


def test_patterns_that_are_no_file(root: Path, context: Context) -> None:
    (root / ".dockerignore").mkdir()
    with pytest.raises(ImageError, match="is no file of patterns"):
        read_ignored(context, None)


def test_a_socket_is_an_entry_like_others(
    root: Path, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
    found = context.find(b"s")
    assert isinstance(found, ContextEntry)
    assert stat.S_ISSOCK(found.found.st_mode)
