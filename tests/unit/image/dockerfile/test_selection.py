"""What COPY and ADD take and where it goes, by docker's rules."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.errors import SpecError
from sandbox.image.dockerfile import syntax
from sandbox.image.dockerfile.ignore import parse_ignore
from sandbox.image.dockerfile.parse import parse
from sandbox.image.dockerfile.placement import Item, content_digest, place
from sandbox.image.dockerfile.selection import View, select
from sandbox.image.dockerfile.tree import Context, ContextEntry

TREE = ["a", "b.txt", "c.txt", "d/a", "d/x.txt", "d/e/y.txt", "d/e/z", "d2/w", "n[1]"]

Copied = Callable[..., dict[str, str]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in TREE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.fixture
def view(root: Path) -> Iterator[View[ContextEntry]]:
    with Context(root) as context:
        yield View(tree=context)


def items(
    view: View[ContextEntry], text: str, directories: tuple[str, ...] = ()
) -> list[Item[ContextEntry]]:
    """Return what `COPY text` puts, into an image with some directories, from `/w`."""
    (stage,) = parse(f"FROM scratch\n{text}\n", "Dockerfile").stages
    (instruction,) = stage.instructions
    assert isinstance(instruction, syntax.Copy | syntax.Add)
    destination = os.path.join("/w", instruction.destination)  # noqa: PTH118 - its end counts
    sources = select(instruction, view)
    known = [os.fsencode(directory) for directory in directories]
    return list(place(instruction, view, sources, destination, known.__contains__))


def copied(view: View[ContextEntry], text: str, *directories: str) -> dict[str, str]:
    """Return where each file comes from, by where it goes."""
    return {
        os.fsdecode(item.destination): os.fsdecode(item.entry.path)
        for item in items(view, f"COPY {text}", directories)
        if not item.entry.is_directory
    }


def hiding(view: View[ContextEntry], text: str) -> View[ContextEntry]:
    patterns = parse_ignore(text.encode(), ".dockerignore")
    return View(tree=view.tree, ignored=patterns, ignored_by=".dockerignore")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # A file: to a name, into a directory.
        ("a /x", {"/x": "a"}),
        ("a /x/", {"/x/a": "a"}),
        ("a /there", {"/there/a": "a"}),
        ("a x", {"/w/x": "a"}),
        ("a .", {"/w/a": "a"}),
        ("a ./", {"/w/a": "a"}),
        ("a ..", {"/a": "a"}),
        ("a /", {"/a": "a"}),
        ("a /x/../y/", {"/y/a": "a"}),
        ("/a /x", {"/x": "a"}),
        ("../../a /x", {"/x": "a"}),
        ("d/../a /x", {"/x": "a"}),
        ("d/a /x/", {"/x/a": "d/a"}),
        # A directory: what is in it.
        ("d2 /x", {"/x/w": "d2/w"}),
        ("d2/ /x/", {"/x/w": "d2/w"}),
        ("d2/. /x", {"/x/w": "d2/w"}),
        ("d2 /there", {"/there/w": "d2/w"}),
        ("d/e d2 /x/", {"/x/y.txt": "d/e/y.txt", "/x/z": "d/e/z", "/x/w": "d2/w"}),
        # Patterns.
        ("*.txt /x/", {"/x/b.txt": "b.txt", "/x/c.txt": "c.txt"}),
        ("b* /x", {"/x": "b.txt"}),
        ("d*/x* /x/", {"/x/x.txt": "d/x.txt"}),
        ("d? /x", {"/x/w": "d2/w"}),
        ("d/*/z /x", {"/x": "d/e/z"}),
        ("a no* /x/", {"/x/a": "a"}),
        ("n[[]1] /x", {"/x": "n[1]"}),
        ("*.txt .", {"/w/b.txt": "b.txt", "/w/c.txt": "c.txt"}),
        # Later files win over earlier ones of the same name.
        ("a d/a /x/", {"/x/a": "d/a"}),
        # --exclude: from the source.
        ("--exclude=*.txt d /x", {"/x/a": "d/a", "/x/e/y.txt": "d/e/y.txt", "/x/e/z": "d/e/z"}),
        ("--exclude=**/*.txt d /x", {"/x/a": "d/a", "/x/e/z": "d/e/z"}),
        ("--exclude=e d /x", {"/x/a": "d/a", "/x/x.txt": "d/x.txt"}),
        ("--exclude=b* *.txt /x/", {"/x/c.txt": "c.txt"}),
        ("--exclude=* d /x", {}),
        ("--exclude=* --exclude=!x.txt d /x", {"/x/x.txt": "d/x.txt"}),
        # --parents.
        ("--parents d/e/z d/a /x", {"/x/d/e/z": "d/e/z", "/x/d/a": "d/a"}),
        ("--parents d/e /x/", {"/x/d/e/y.txt": "d/e/y.txt", "/x/d/e/z": "d/e/z"}),
        ("--parents ./d/./e/z /x", {"/x/e/z": "d/e/z"}),
        ("--parents /d/e/. /x/", {"/x/d/e/y.txt": "d/e/y.txt", "/x/d/e/z": "d/e/z"}),
        ("--parents **/*.txt /x", {f"/x/{n}": n for n in TREE if n.endswith(".txt")}),
        ("--parents d*/./w /x", {"/x/w": "d2/w"}),
        ("--parents --exclude=**/z d/e /x", {"/x/d/e/y.txt": "d/e/y.txt"}),
        ("--parents no* /x", {}),
        ("--parents d/./. /x", {f"/x/{n[2:]}": n for n in TREE if n.startswith("d/")}),
    ],
)
def test_what_goes_where(view: View[ContextEntry], text: str, expected: dict[str, str]) -> None:
    assert copied(view, text, "/there") == expected


def test_everything(view: View[ContextEntry]) -> None:
    assert copied(view, ". /x") == {f"/x/{name}": name for name in TREE}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("no /x", "`no` is not in the build context"),
        ("a no /x/", "`no` is not in the build context"),
        ("d/no/x /x", "`d/no/x` is not in the build context"),
        ("a/x /x", "`a/x` is not in the build context"),
        ("no* /x", "no source files were specified: `no*` matches nothing in the build context"),
        ("no* n?? /x/", "no source files were specified: `no*`, `n??` matches nothing"),
        ("a d /x", "COPY of more than one source to `/x`"),
        ("*.txt /there", "COPY of more than one source to `/there`"),
        ("--parents no /x", "`no` is not in the build context"),
        ("--parents d/./no /x", "`d/./no` is not in the build context"),
        ("[ /x", "`[` is no pattern"),
        ("--exclude=[ a /x", "`[` is no pattern"),
        ("../outside /x", "`../outside` is not in the build context"),
    ],
)
def test_sources_that_mean_nothing(view: View[ContextEntry], text: str, what: str) -> None:
    (view.tree.root.parent / "outside").touch()  # type: ignore[attr-defined]
    with pytest.raises(SpecError, match=r".") as error:
        copied(view, text, "/there")
    assert str(error.value).startswith(what)


def test_heredocs_count_as_sources(view: View[ContextEntry]) -> None:
    assert copied(view, "<<e a /x/\n1\ne") == {"/x/a": "a"}
    with pytest.raises(SpecError, match="more than one source"):
        copied(view, "<<e a /x\n1\ne")
    assert copied(view, "<<e /x\n1\ne") == {}


def test_directories_come_before_what_is_in_them(view: View[ContextEntry]) -> None:
    found = items(view, "COPY d /x")
    assert [(item.destination, item.is_named) for item in found] == [
        (b"/x", True),
        (b"/x/a", False),
        (b"/x/e", False),
        (b"/x/e/y.txt", False),
        (b"/x/e/z", False),
        (b"/x/x.txt", False),
    ]
    found = items(view, "COPY --parents d/e/z /x")
    assert [item.destination for item in found] == [b"/x/d", b"/x/d/e", b"/x/d/e/z"]


def test_what_is_named_can_be_unpacked(view: View[ContextEntry]) -> None:
    assert [item.is_named for item in items(view, "ADD *.txt /x/")] == [True, True]


def test_addresses_are_for_others(view: View[ContextEntry]) -> None:
    assert items(view, "ADD https://h/a /x") == []
    with pytest.raises(SpecError, match="ADD of more than one source"):
        items(view, "ADD https://h/a a /x")


# --- links ----------------------------------------------------------------------------------------


def test_a_link_that_is_named_is_followed(root: Path, view: View[ContextEntry]) -> None:
    (root / "to-file").symlink_to("d/a")
    (root / "to-directory").symlink_to("/d2")
    assert copied(view, "to-file /x/") == {"/x/to-file": "d/a"}
    assert copied(view, "to-f* /x/") == {"/x/to-file": "d/a"}
    assert copied(view, "to-directory /x/") == {"/x/w": "d2/w"}
    assert copied(view, "to-directory/w /x/") == {"/x/w": "d2/w"}


def test_a_link_that_is_found_stays_one(root: Path, view: View[ContextEntry]) -> None:
    (root / "d2" / "link").symlink_to("/etc/passwd")
    (found,) = (item for item in items(view, "COPY d2 /x") if item.entry.is_link)
    assert found.destination == b"/x/link"
    assert view.tree.read_link(found.entry) == b"/etc/passwd"


def test_a_link_to_nothing_inside(root: Path, view: View[ContextEntry]) -> None:
    (root / "link").symlink_to("/etc/passwd")
    with pytest.raises(SpecError, match="`link` is not in the build context"):
        copied(view, "link /x")
    with pytest.raises(SpecError, match="`link` is a link that leads to nothing"):
        copied(view, "lin* /x")


def test_sockets_are_left_out(
    root: Path, view: View[ContextEntry], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root / "d2")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
    assert copied(view, "d2 /x") == {"/x/w": "d2/w"}


# --- .dockerignore --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ignored", "text", "expected"),
    [
        ("*.txt", ". /x", [name for name in TREE if name not in {"b.txt", "c.txt"}]),
        ("**/*.txt", "d /x", ["d/a", "d/e/z"]),
        ("d", ". /x", [name for name in TREE if not name.startswith("d/")]),
        ("d\n!d/e/z", "d /x", ["d/e/z"]),
        ("*\n!d2", ". /x", ["d2/w"]),
        ("b*", "*.txt /x/", ["c.txt"]),
        ("d/e", "d/* /x/", ["d/a", "d/x.txt"]),
    ],
)
def test_what_is_ignored_is_not_there(
    view: View[ContextEntry], ignored: str, text: str, expected: list[str]
) -> None:
    assert sorted(copied(hiding(view, ignored), text).values()) == sorted(expected)


@pytest.mark.parametrize(
    ("ignored", "text"),
    [("a", "a /x"), ("d", "d/e/z /x"), ("d", "d /x"), ("d", "--parents d/a /x")],
)
def test_an_error_says_what_hides_a_file(view: View[ContextEntry], ignored: str, text: str) -> None:
    with pytest.raises(SpecError, match="is not in the build context") as error:
        copied(hiding(view, ignored), text)
    assert error.value.hint == ".dockerignore excludes it"


def test_a_link_does_not_lead_to_what_is_ignored(root: Path, view: View[ContextEntry]) -> None:
    (root / "link").symlink_to("d/a")
    with pytest.raises(SpecError, match="`link` is not in"):
        copied(hiding(view, "d"), "link /x")


def test_a_directory_with_nothing_left_is_not_there(view: View[ContextEntry]) -> None:
    found = items(hiding(view, "d/e/*\nd2\n!d2/no"), "COPY . /x")
    names = [item.destination for item in found if item.entry.is_directory]
    assert names == [b"/x", b"/x/d", b"/x/d/e"]


# --- the key of the cache -------------------------------------------------------------------------


def digest(view: View[ContextEntry], text: str = ". /x") -> str:
    return content_digest(view, items(view, f"COPY {text}"))


def test_times_and_what_is_ignored_do_not_count(root: Path, view: View[ContextEntry]) -> None:
    before = digest(view)
    hidden = digest(hiding(view, "ignored"))
    os.utime(root / "a", (1, 1))
    (root / "a").write_text("a")
    assert digest(view) == before
    (root / "ignored").touch()
    assert digest(hiding(view, "ignored")) == hidden
    assert digest(view) != before


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "a").write_text("A"),
        lambda root: (root / "a").chmod(0o755),
        lambda root: (root / "d").chmod(0o700),
        lambda root: (root / "a").rename(root / "a1"),
        lambda root: (root / "new").mkdir(),
        lambda root: ((root / "a").unlink(), (root / "a").symlink_to("d")),
        lambda root: ((root / "a").unlink(), os.mkfifo(root / "a")),
    ],
)
def test_what_counts(
    root: Path, view: View[ContextEntry], change: Callable[[Path], object]
) -> None:
    before = digest(view)
    change(root)
    assert digest(view) != before


def test_where_a_link_leads_counts(root: Path, view: View[ContextEntry]) -> None:
    (root / "d2" / "link").symlink_to("a")
    before = digest(view)
    (root / "d2" / "link").unlink()
    (root / "d2" / "link").symlink_to("b")
    assert digest(view) != before


def test_places_count_and_owners_only_if_they_are_kept(view: View[ContextEntry]) -> None:
    assert digest(view, "a /x") != digest(view, "a /y")
    found = items(view, "COPY a /x")
    assert content_digest(view, found) != content_digest(view, found, owners=True)


def test_a_link_to_what_is_ignored_is_no_match(root: Path, view: View[ContextEntry]) -> None:
    (root / "link").symlink_to("d/a")
    with pytest.raises(SpecError, match="leads to nothing") as error:
        copied(hiding(view, "d"), "lin* /x")
    assert error.value.hint == ".dockerignore excludes that"
    assert copied(hiding(view, "d\nlink"), "lin* a /x/") == {"/x/a": "a"}


def test_a_file_in_a_directory_is_told_from_one_of_that_name(view: View[ContextEntry]) -> None:
    for text, inside in (("a /x", False), ("a /x/", True), ("a /there", True)):
        (item,) = items(view, f"COPY {text}", ("/there",))
        assert item.is_inside is inside


def test_a_link_that_is_ignored_is_not_there(root: Path, view: View[ContextEntry]) -> None:
    (root / "link").symlink_to("d")
    hidden = hiding(view, "*\n!d")
    assert copied(hidden, "d/a /x/") == {"/x/a": "d/a"}
    for text in ("link /x", "link/a /x"):
        with pytest.raises(SpecError, match="is not in the build context"):
            copied(hidden, text)
    with pytest.raises(SpecError, match="no source files"):
        copied(hidden, "lin* /x")
