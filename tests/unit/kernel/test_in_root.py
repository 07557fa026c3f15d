"""Places inside a root that is not to be trusted: found or made there, never outside."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.kernel.in_root import find_place, read_file_in


@pytest.fixture
def root(tmp_path: Path) -> Iterator[tuple[int, Path, Path]]:
    """A descriptor of a root, its path, and a directory beside it that must stay empty."""
    inside, outside = tmp_path / "root", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    fd = os.open(inside, os.O_PATH | os.O_DIRECTORY)
    try:
        yield fd, inside, outside
    finally:
        os.close(fd)


def _real(fd: int) -> Path:
    try:
        return Path(f"/proc/self/fd/{fd}").readlink()
    finally:
        os.close(fd)


def test_what_is_missing_is_made(root: tuple[int, Path, Path]) -> None:
    fd, inside, _ = root

    assert _real(find_place(fd, b"/a/./b//c", directory=True)) == inside / "a/b/c"
    assert _real(find_place(fd, b"/a/b/file", directory=False)) == inside / "a/b/file"
    assert (inside / "a/b/c").is_dir()
    assert (inside / "a/b/file").is_file()


@pytest.mark.parametrize("link", ["{outside}", "{outside}/new", "../outside", "../../outside/new"])
def test_links_mean_a_place_inside(root: tuple[int, Path, Path], link: str) -> None:
    fd, inside, outside = root
    (inside / "link").symlink_to(link.format(outside=outside))

    real = _real(find_place(fd, b"/link/deeper", directory=True))

    assert real.is_relative_to(inside)
    assert list(outside.iterdir()) == []


def test_a_link_that_leads_to_nothing_has_its_target_made(root: tuple[int, Path, Path]) -> None:
    fd, inside, _ = root
    (inside / "etc").mkdir()
    (inside / "etc/resolv.conf").symlink_to("../run/stub.conf")

    assert _real(find_place(fd, b"/etc/resolv.conf", directory=False)) == inside / "run/stub.conf"


@pytest.mark.parametrize("target", ["loop", "a/../loop"])
def test_links_in_a_circle_are_an_error(root: tuple[int, Path, Path], target: str) -> None:
    fd, inside, _ = root
    (inside / "a").mkdir()
    (inside / "loop").symlink_to(target)

    with pytest.raises(OSError, match="symbolic links"):
        find_place(fd, b"/loop", directory=True)


def test_the_kernels_links_to_open_files_are_not_followed(root: tuple[int, Path, Path]) -> None:
    _, _, outside = root
    proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
    other = os.open(outside, os.O_PATH | os.O_DIRECTORY)
    try:
        with pytest.raises(OSError, match="symbolic links"):
            find_place(proc, b"/self/fd/%d/new" % other, directory=True)
    finally:
        os.close(proc)
        os.close(other)
    assert list(outside.iterdir()) == []


def test_a_file_is_read_inside_and_only_a_regular_one(root: tuple[int, Path, Path]) -> None:
    fd, inside, outside = root
    (outside / "secret").write_text("secret")
    (inside / "file").write_text("content")
    (inside / "link").symlink_to(outside / "secret")
    (inside / "inner").symlink_to("/file")
    os.mkfifo(inside / "pipe")

    assert read_file_in(fd, b"/file", 4) == b"cont"
    assert read_file_in(fd, b"/inner", 100) == b"content"
    assert read_file_in(fd, b"/link", 100) is None
    assert read_file_in(fd, b"/pipe", 100) is None
    assert read_file_in(fd, b"/file/below", 100) is None
    assert read_file_in(fd, b"/nosuch", 100) is None
