"""Layers and stacks of them: what is seen, what is written, and that it is the same each time."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox.build.archive import ArchiveWriter, Member, write_changes
from sandbox.build.placing import Dressing, Placement
from sandbox.build.stack import Stack
from sandbox.build.stubs import changes_nothing, find_missing, remove_stubs
from sandbox.errors import ImageError
from sandbox.image.places import opaque_name


def make_layer(directory: Path, files: dict[str, str | None]) -> Path:
    """Text is a file, `-> x` a link, None a directory, `-` a whiteout, `name!` is opaque."""
    directory.mkdir()
    for name, text in files.items():
        path = directory / name.rstrip("!")
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            path.mkdir(exist_ok=True)
            if name.endswith("!"):
                os.setxattr(path, opaque_name(), b"y")
        elif text == "-":
            os.mknod(path, stat.S_IFCHR, 0)
        elif text.startswith("-> "):
            path.symlink_to(text[3:])
        else:
            path.write_text(text)
    return directory


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    lower = make_layer(
        tmp_path / "lower",
        {
            "etc/passwd": "lower",
            "etc/gone": "lower",
            "hidden/below": "lower",
            "lib": "-> usr/lib",
            "usr/lib/real": "x",
            "file": "lower",
            "loop": "-> loop",
            "up": "-> ../../etc",
            "absolute": "-> /usr/lib/../lib",
        },
    )
    upper = make_layer(
        tmp_path / "upper",
        {"etc/passwd": "upper", "etc/gone": "-", "hidden!": None, "hidden/new": "x", "file": "-"},
    )
    return Stack([lower, upper])


def test_a_stack_shows_what_overlayfs_would(stack: Stack) -> None:
    def names(path: bytes) -> list[bytes]:
        node = stack.find(path)
        assert node is not None
        return [child.path for child in stack.children(node)]

    assert names(b"etc") == [b"etc/passwd"]
    assert names(b"hidden") == [b"hidden/new"]
    assert stack.find(b"file") is None
    assert stack.find(b"hidden/below") is None
    assert stack.resolve(b"/lib/real")[0] == b"usr/lib/real"
    assert stack.resolve(b"/absolute/new/one")[0] == b"usr/lib/new/one"
    assert stack.resolve(b"/up/passwd")[0] == b"etc/passwd"
    assert stack.resolve(b"../../..")[0] == b""
    passwd = stack.find(b"/etc/passwd")
    assert passwd is not None
    with os.fdopen(stack.open(passwd)) as file:
        assert file.read() == "upper"


def test_links_in_circles_and_below_files(stack: Stack) -> None:
    with pytest.raises(ImageError, match="circles"):
        stack.find(b"/loop")
    with pytest.raises(ImageError, match="is no directory"):
        stack.resolve(b"/etc/passwd/below")
    assert stack.find(b"/etc/passwd/below") is None


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["..", ".", "etc", "up", "lib", "absolute", "x", ""]), max_size=8))
def test_no_path_leads_out(stack: Stack, parts: list[str]) -> None:
    real, node = stack.resolve("/".join(parts).encode())

    assert b".." not in real.split(b"/")
    if node is not None:
        assert Path(os.fsdecode(stack.place(node))).exists()


def archive(top: Path, *, strip: bool = False) -> tuple[bytes, str]:
    buffer = io.BytesIO()
    writer = ArchiveWriter(buffer)
    fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    try:
        write_changes(fd, writer, strip=strip)
    finally:
        os.close(fd)
    return buffer.getvalue(), writer.finish()


def test_what_a_run_has_written_becomes_a_layer(tmp_path: Path) -> None:
    top = make_layer(
        tmp_path / "top",
        {"a/file": "text", "a/link": "-> file", "gone": "-", "all!": None, "all/new": "x"},
    )
    os.link(top / "a/file", top / "a/twin")
    os.mkfifo(top / "fifo")
    (top / "a/file").chmod(0o4751)
    data, digest = archive(top)

    with tarfile.open(fileobj=io.BytesIO(data + bytes(1024))) as found:
        members = {member.name: member for member in found}

    assert list(members) == [
        ".", "a", "a/file", "a/link", "a/twin", "all", "all/.wh..wh..opq", "all/new", "fifo",
        ".wh.gone",
    ]  # fmt: skip
    assert members["a/twin"].linkname == "a/file"
    assert members["a/twin"].islnk()
    assert members["a/file"].mode == 0o4751
    assert members["fifo"].isfifo()
    assert archive(top)[1] == digest


def test_a_file_that_looks_like_a_whiteout_is_refused(tmp_path: Path) -> None:
    top = make_layer(tmp_path / "top", {".wh.passwd": "x"})

    with pytest.raises(ImageError, match="no layer can hold"):
        archive(top)


def test_a_file_that_changes_meanwhile_is_found() -> None:
    for data in (b"short", b"longer than it was"):
        writer = ArchiveWriter(io.BytesIO())
        with pytest.raises(ImageError, match="has changed while it was read"):
            writer.add(Member(path=b"x", size=10, xattrs={}), iter([data]))


@pytest.mark.parametrize("wanted", [None, 1000])
def test_no_file_is_younger_than_it_may_be(wanted: int | None) -> None:
    buffer = io.BytesIO()
    writer = ArchiveWriter(buffer, wanted)
    writer.add(Member(path=b"x", mtime_sec=5000, xattrs={}))
    writer.finish()

    with tarfile.open(fileobj=io.BytesIO(buffer.getvalue())) as found:
        assert found.getmember("x").mtime == (wanted or 5000)


def test_places_that_were_made_to_mount_on_are_not_in_the_layer(tmp_path: Path) -> None:
    lower = make_layer(tmp_path / "lower", {"etc/hosts": "", "run": None})
    missing = find_missing(Stack([lower]), ["/etc/hosts", "/proc", "/run/secrets/key", "/full"])
    assert missing == (b"run/secrets/key", b"run/secrets", b"full", b"proc")
    upper = make_layer(
        tmp_path / "upper",
        {"proc": None, "run/secrets/key": "", "full/file": "kept", "etc/hosts": ""},
    )

    remove_stubs(upper, missing, Stack([lower]))

    left = sorted(str(path.relative_to(upper)) for path in upper.rglob("*"))
    assert left == ["etc", "etc/hosts", "full", "full/file"]


def test_a_directory_that_was_changed_stays_in_the_layer(tmp_path: Path) -> None:
    lower = make_layer(tmp_path / "lower", {"run": None, "mode": None, "hidden": None, "in/x": ""})
    stack = Stack([lower])
    places = ("/run/a", "/mode/a", "/hidden/a", "/in/deep/a", "/kept/a")
    missing = find_missing(stack, places)
    made = {f"{place[1:]}": "" for place in places}
    upper = make_layer(tmp_path / "upper", made)
    (upper / "mode").chmod(0o700)
    os.setxattr(upper / "hidden", opaque_name(), b"y")
    (upper / "kept/other").touch()

    remove_stubs(upper, missing, stack)

    assert sorted(path.name for path in upper.iterdir()) == ["hidden", "kept", "mode"]


def test_a_link_leads_to_no_directory_of_the_host(tmp_path: Path) -> None:
    lower = make_layer(tmp_path / "lower", {"etc/inner": None})
    stack = Stack([lower])
    missing = find_missing(stack, ["/etc/inner/place"])
    outside = make_layer(tmp_path / "outside", {"inner": None})
    upper = make_layer(tmp_path / "upper", {})
    (upper / "etc").symlink_to(outside)

    remove_stubs(upper, missing, stack)

    assert (outside / "inner").is_dir()
    assert (upper / "etc").is_symlink()


def test_a_run_that_changes_nothing(tmp_path: Path) -> None:
    stack = Stack([make_layer(tmp_path / "lower", {"file": ""})])
    upper = make_layer(tmp_path / "upper", {})
    os.utime(upper, (1, 1))

    assert changes_nothing(upper, stack)
    upper.chmod(0o711)
    assert not changes_nothing(upper, stack)
    upper.chmod(0o755)
    os.setxattr(upper, "user.test", b"1")
    assert not changes_nothing(upper, stack)
    os.removexattr(upper, "user.test")
    (upper / "new").touch()
    assert not changes_nothing(upper, stack)
    assert not changes_nothing(make_layer(tmp_path / "of-nothing", {}), Stack([]))


@pytest.fixture
def placed(stack: Stack) -> Callable[..., list[str]]:
    def run(*members: Member) -> list[str]:
        buffer = io.BytesIO()
        writer = ArchiveWriter(buffer)
        placement = Placement(stack, writer, Dressing(owner=(7, 8), now_sec=3))
        placement.begin()
        for member in members:
            placement.put(member)
        writer.finish()
        with tarfile.open(fileobj=io.BytesIO(buffer.getvalue())) as found:
            return [f"{member.name} {member.uid}" for member in found]

    return run


def test_directories_come_as_they_are_below(placed: Callable[..., list[str]]) -> None:
    own = os.geteuid()
    found = placed(Member(path=b"usr/lib/x", xattrs={}), Member(path=b"new/er/y", xattrs={}))

    assert found == [f". {own}", f"usr {own}", f"usr/lib {own}", "usr/lib/x 7", "new 7", "new/er 7",
                     "new/er/y 7"]  # fmt: skip


def test_nothing_is_put_through_a_link(placed: Callable[..., list[str]]) -> None:
    with pytest.raises(ImageError, match="it is no directory"):
        placed(Member(path=b"lib/x", xattrs={}))
    with pytest.raises(ImageError, match="it is no directory"):
        placed(
            Member(path=b"new", kind=tarfile.SYMTYPE, link=b"/etc", xattrs={}),
            Member(path=b"new/passwd", xattrs={}),
        )
    with pytest.raises(ImageError, match="it is a directory already"):
        placed(Member(path=b"etc", xattrs={}))
