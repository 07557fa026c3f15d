"""Layers that want out, or to confuse: nothing outside is touched; what is legal comes out right.

Each case is unpacked beside a directory with a canary, as root and as a plain user.
"""

from __future__ import annotations

import io
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import ImageError
from sandbox.image.layer import unpack_layer
from sandbox.image.places import remove_tree
from sandbox.image.unpack import Bounds

PLAIN_UID = 65534
BOUNDS = Bounds(size_bytes=1 << 20, entries=200, depth=20)

Build = Callable[[Any, str], Any]
Check = Callable[[Path], bool]


def refused(build: Build) -> tuple[Build, Check | None]:
    return build, None


def legal(build: Build, check: Check) -> tuple[Build, Check | None]:
    return build, check


def is_file(name: str, content: bytes = b"x") -> Check:
    def check(tree: Path) -> bool:
        found = (tree / name).lstat()
        return stat.S_ISREG(found.st_mode) and (tree / name).read_bytes() == content

    return check


def mode_of(name: str, mode: int) -> Check:
    return lambda tree: stat.S_IMODE((tree / name).lstat().st_mode) == mode


def absent(name: str) -> Check:
    return lambda tree: not os.path.lexists(tree / name)


def links(name: str, count: int) -> Check:
    return lambda tree: (tree / name).lstat().st_nlink == count


def whiteout(name: str) -> Check:
    def check(tree: Path) -> bool:
        found = (tree / name).lstat()
        return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0

    return check


def opaque(name: str) -> Check:
    def check(tree: Path) -> bool:
        names = os.listxattr(tree / name)
        return bool({"trusted.overlay.opaque", "user.overlay.opaque"} & set(names))

    return check


def both(*checks: Check) -> Check:
    return lambda tree: all(check(tree) for check in checks)


# `t` makes an archive, `out` is the absolute path of the directory with the canary.
CASES: dict[str, tuple[Build, Check | None]] = {
    # --- names that go up
    "name goes up": refused(lambda t, out: t.add("../outside/canary", data="x")),
    "name goes up in the middle": refused(lambda t, out: t.add("a/../../outside/new", data="x")),
    "name goes up after a dot": refused(lambda t, out: t.add("./../outside/new", data="x")),
    "pax name goes up": refused(lambda t, out: t.add("a", data="x", pax={"path": "../outside/n"})),
    "gnu long name goes up": refused(
        lambda t, out: t.add("@", "L", b"../outside/new\0").add("a", data="x")
    ),
    "directory name goes up": refused(lambda t, out: t.add("../outside/", "5", mode=0o777)),
    "whiteout goes up": refused(lambda t, out: t.add("../outside/.wh.canary")),
    "whiteout of the parent": refused(lambda t, out: t.add(".wh...")),
    "whiteout of the place itself": refused(lambda t, out: t.add(".wh..")),
    "whiteout of no name": refused(lambda t, out: t.add("a/.wh.")),
    "opaque goes up": refused(lambda t, out: t.add("../outside/.wh..wh..opq")),
    "sparse name goes up": refused(
        lambda t, out: t.add(
            "a",
            pax={"GNU.sparse.name": "../outside/n", "GNU.sparse.map": "", "GNU.sparse.size": "0"},
        )
    ),
    # --- links, then through them
    "absolute link then file in it": legal(
        lambda t, out: t.add("l", "2", link=out).add("l/canary", data="x"),
        lambda tree: (tree / "l").is_symlink(),
    ),
    "relative link then file in it": legal(
        lambda t, out: t.add("l", "2", link="../outside").add("l/canary", data="x"),
        is_file("outside/canary"),
    ),
    "link to many parents": legal(
        lambda t, out: t.add("l", "2", link="../" * 30 + "outside").add("l/new", data="x"),
        is_file("outside/new"),
    ),
    "link of a link": legal(
        lambda t, out: (
            t.add("a", "2", link="..").add("b", "2", link="a/outside").add("b/n", data="x")
        ),
        is_file("outside/n"),
    ),
    "link to the top": legal(
        lambda t, out: t.add("l", "2", link="/").add("l/l/l/f", data="x"), is_file("f")
    ),
    "links in a circle": refused(
        lambda t, out: t.add("a", "2", link="b").add("b", "2", link="a").add("a/f", data="x")
    ),
    "link to itself": refused(lambda t, out: t.add("a", "2", link="a").add("a/f", data="x")),
    "file over a link": legal(
        lambda t, out: t.add("l", "2", link=f"{out}/canary").add("l", data="x"), is_file("l")
    ),
    "directory over a link": legal(
        lambda t, out: (
            t.add("l", "2", link=out).add("l/", "5", mode=0o700).add("l/canary", data="x")
        ),
        both(is_file("l/canary"), mode_of("l", 0o700)),
    ),
    "link over a directory, then into it": legal(
        lambda t, out: (
            t.add("d/", "5").add("d/f", data="x").add("d", "2", link=out).add("d/canary", data="x")
        ),
        lambda tree: (tree / "d").is_symlink(),
    ),
    "link over a directory that was used": legal(
        lambda t, out: t.add("d/e/f", data="x").add("d/e", "2", link="/").add("d/e/g", data="x"),
        is_file("g"),
    ),
    "whiteout through a link": legal(
        lambda t, out: t.add("l", "2", link=out).add("l/.wh.canary"),
        lambda tree: (tree / "l").is_symlink(),
    ),
    "opaque through a link": legal(
        lambda t, out: t.add("l", "2", link=out).add("l/.wh..wh..opq"),
        lambda tree: (tree / "l").is_symlink(),
    ),
    "mode through a link": legal(
        lambda t, out: t.add("l", "2", link=f"{out}/canary", mode=0o777), lambda tree: True
    ),
    "magic link of a process": legal(
        lambda t, out: t.add("l", "2", link="/proc/self/cwd").add("l/new", data="x"),
        is_file("proc/self/cwd/new"),
    ),
    "link to nothing": refused(lambda t, out: t.add("l", "2", link="")),
    # --- hard links
    "hard link goes up": refused(lambda t, out: t.add("h", "1", link="../outside/canary")),
    "hard link through a link": legal(
        lambda t, out: t.add("l", "2", link=out).add("h", "1", link="l/canary"), absent("h")
    ),
    "hard link to a link, then written": legal(
        lambda t, out: (
            t.add("l", "2", link=f"{out}/canary").add("h", "1", link="l").add("h", data="x")
        ),
        both(is_file("h"), lambda tree: (tree / "l").is_symlink()),
    ),
    "hard link to a link": legal(
        lambda t, out: t.add("l", "2", link=f"{out}/canary").add("h", "1", link="l"),
        lambda tree: (tree / "h").is_symlink() and (tree / "h").lstat().st_nlink == 2,
    ),
    "hard link, absolute": legal(
        lambda t, out: t.add("f", data="x").add("h", "1", link="/f"),
        both(is_file("h"), links("f", 2)),
    ),
    "hard link to a directory": refused(lambda t, out: t.add("d/", "5").add("h", "1", link="d")),
    "hard link to the top": refused(lambda t, out: t.add("h", "1", link="./")),
    "hard link to itself": refused(lambda t, out: t.add("f", data="x").add("f", "1", link="f")),
    "hard link with data": refused(
        lambda t, out: t.add("f", data="x").add("h", "1", link="f", data="hidden")
    ),
    "file replaces one of two hard links": legal(
        lambda t, out: t.add("f", data="x").add("h", "1", link="f").add("h", data="y"),
        both(is_file("f"), is_file("h", b"y"), links("f", 1)),
    ),
    # --- what overlayfs reads
    "device 0:0 is no whiteout": refused(lambda t, out: t.add("f", "3", device=(0, 0))),
    "attribute of overlayfs, trusted": refused(
        lambda t, out: t.add("d/", "5", pax={"SCHILY.xattr.trusted.overlay.redirect": "/etc"})
    ),
    "attribute of overlayfs, user": refused(
        lambda t, out: t.add("d/", "5", pax={"SCHILY.xattr.user.overlay.opaque": "y"})
    ),
    "attribute of overlayfs, base 64": refused(
        lambda t, out: t.add("f", data="x", pax={"LIBARCHIVE.xattr.trusted.overlay.metacopy": ""})
    ),
    "attribute of overlayfs on a file": refused(
        lambda t, out: t.add("f", data="x", pax={"SCHILY.xattr.trusted.overlay.metacopy": ""})
    ),
    "device is left out": legal(
        lambda t, out: t.add("sda", "4", device=(8, 0)).add("f", data="x"),
        both(absent("sda"), is_file("f")),
    ),
    # --- whiteouts
    "whiteout": legal(lambda t, out: t.add("d/.wh.f"), whiteout("d/f")),
    "whiteout then file": legal(lambda t, out: t.add(".wh.f").add("f", data="x"), is_file("f")),
    "file then whiteout": legal(lambda t, out: t.add("f", data="x").add(".wh.f"), is_file("f")),
    "whiteout then directory": legal(
        lambda t, out: t.add(".wh.d").add("d/", "5").add("d/f", data="x"),
        both(opaque("d"), is_file("d/f")),
    ),
    "whiteout then something below it": legal(
        lambda t, out: t.add(".wh.d").add("d/f", data="x"), both(opaque("d"), is_file("d/f"))
    ),
    "directory then whiteout": legal(
        lambda t, out: t.add("d/", "5").add("d/f", data="x").add(".wh.d"),
        both(opaque("d"), is_file("d/f")),
    ),
    "opaque directory": legal(
        lambda t, out: t.add("d/.wh..wh..opq").add("d/f", data="x").add("d/.wh.g"),
        both(opaque("d"), is_file("d/f"), absent("d/g")),
    ),
    "notes of AUFS": legal(
        lambda t, out: t.add(".wh..wh.plnk/", "5").add(".wh..wh.aufs"), absent(".wh..wh.aufs")
    ),
    "file, then directory of its name": legal(
        lambda t, out: t.add("d", data="x").add("d/", "5").add("d/f", data="x"),
        both(opaque("d"), is_file("d/f")),
    ),
    # --- the top, names, modes
    "top is a link": refused(lambda t, out: t.add("./", "2", link=out)),
    "top is a file": refused(lambda t, out: t.add(".", data="x")),
    "mode of the top": legal(lambda t, out: t.add("./", "5", mode=0o750), mode_of(".", 0o750)),
    "absolute name": legal(lambda t, out: t.add(f"{out}/canary", data="x"), lambda tree: True),
    "file used as a directory": refused(
        lambda t, out: t.add("f", data="x").add("f/canary", data="x")
    ),
    "name of no bytes": refused(lambda t, out: t.add("", data="x")),
    "name with a NUL": refused(lambda t, out: t.add("a", data="x", pax={"path": b"a\0b"})),
    "name of 300 bytes": refused(lambda t, out: t.add("a", data="x", pax={"path": "n" * 300})),
    "path of 5000 bytes": refused(lambda t, out: t.add("a", data="x", pax={"path": "n/" * 2500})),
    "name with a newline": legal(lambda t, out: t.add("a\nb", data="x"), is_file("a\nb")),
    "name that is no UTF-8": legal(
        lambda t, out: t.add(b"\xff\xfe", data="x"), is_file(os.fsdecode(b"\xff\xfe"))
    ),
    "doubled slashes and dots": legal(
        lambda t, out: t.add(".//a/././/b", data="x"), is_file("a/b")
    ),
    "directory that forbids writing": legal(
        lambda t, out: t.add("d/", "5", mode=0o555).add("d/f", data="x"),
        both(mode_of("d", 0o555), is_file("d/f")),
    ),
    "set-user-id": legal(
        lambda t, out: t.add("f", data="x", mode=0o4755), both(is_file("f"), mode_of("f", 0o4755))
    ),
    "fifo": legal(
        lambda t, out: t.add("p", "6", mode=0o622),
        lambda tree: stat.S_ISFIFO((tree / "p").lstat().st_mode) and mode_of("p", 0o622)(tree),
    ),
    "fifo over a link": legal(
        lambda t, out: t.add("p", "2", link=f"{out}/canary").add("p", "6"),
        lambda tree: stat.S_ISFIFO((tree / "p").lstat().st_mode),
    ),
    # --- too much
    "too deep": refused(lambda t, out: t.add("d/" * 30 + "f", data="x")),
    "too deep through links": refused(
        lambda t, out: (
            t.add("d/" * 15 + "f", data="x")
            .add("l", "2", link="d/" * 15)
            .add("l/" + "e/" * 10 + "f", data="x")
        )
    ),
    "too many": refused(lambda t, out: [t.add(f"f{n}") for n in range(201)][-1]),
    "too large": refused(lambda t, out: t.add("f", data=bytes(1_100_000))),
    "holes too large": refused(
        lambda t, out: t.add(
            "f", data="x", pax={"GNU.sparse.map": "0,1", "GNU.sparse.size": str(1 << 40)}
        )
    ),
    # --- where readers disagree
    "size of a directory": refused(lambda t, out: t.add("d/", "5", size=512).raw(bytes(512))),
    "size below zero": refused(lambda t, out: t.add("f", size=-1)),
    "size of a long name from pax": legal(
        # The size is that of the file, not that of the header in between.
        lambda t, out: t.pax({"size": "1"}).add("@", "L", b"long\0").add("a", data="x", size=0),
        is_file("long"),
    ),
    "owner that means none": refused(lambda t, out: t.add("f", data="x", uid=(1 << 32) - 1)),
    "unknown type": refused(lambda t, out: t.add("f", "Z", data="x")),
    "volume of several": refused(lambda t, out: t.add("f", "M", data="x")),
}


@pytest.fixture(params=["root", "plain"])
def place(request: pytest.FixtureRequest) -> Iterator[tuple[Path, bool]]:
    """A directory with the canary beside the tree's place."""
    is_plain = request.param == "plain"
    if os.geteuid() != 0 and not is_plain:
        pytest.skip("not root")
    with tempfile.TemporaryDirectory(prefix="sandbox-hostile-") as directory:
        base = Path(directory)
        (base / "outside").mkdir(mode=0o755)
        (base / "outside/canary").write_bytes(b"alive")
        (base / "outside/canary").chmod(0o644)
        if os.geteuid() == 0 and is_plain:
            for path in (base, base / "outside", base / "outside/canary"):
                os.chown(path, PLAIN_UID, PLAIN_UID)
        yield base, os.geteuid() == 0 and is_plain
        if (base / "tree").exists():
            remove_tree(base / "tree")


def as_user(action: Callable[[], None], *, is_other: bool) -> str:
    """Do something, as the plain user if need be; return what went wrong."""
    if not is_other:
        try:
            action()
        except ImageError as error:
            return str(error)
        return ""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        message = "the child has failed"
        try:
            os.setgroups([])
            os.setresgid(PLAIN_UID, PLAIN_UID, PLAIN_UID)
            os.setresuid(PLAIN_UID, PLAIN_UID, PLAIN_UID)
            message = as_user(action, is_other=False)
        except BaseException as error:  # noqa: BLE001 - a child of a test must not go on as one
            message = f"CRASH {error!r}"
        finally:
            os.write(write_end, message.encode()[:4000])
            os._exit(0)
    os.close(write_end)
    with open(read_end, encoding="utf-8") as file:  # noqa: PTH123 - a descriptor
        message = file.read()
    os.waitpid(pid, 0)
    return message


@pytest.mark.parametrize("name", CASES)
def test_a_layer_stays_in_its_directory(
    name: str,
    place: tuple[Path, bool],
    make_tar: Any,
    seen: Callable[[Path], dict[str, tuple[Any, ...]]],
) -> None:
    base, is_other = place
    build, check = CASES[name]
    data = build(make_tar(), str(base / "outside")).end()
    before = (seen(base / "outside"), (base / "outside/canary").lstat().st_nlink)

    problem = as_user(
        lambda: unpack_layer(io.BytesIO(data), base / "tree", None, BOUNDS) and None,
        is_other=is_other,
    )

    assert (seen(base / "outside"), (base / "outside/canary").lstat().st_nlink) == before
    assert sorted(path.name for path in base.iterdir()) == ["outside", "tree"]
    if check is None:
        assert problem
        assert not problem.startswith("CRASH")
    else:
        assert problem == ""
        assert check(base / "tree")


def test_there_are_many_cases() -> None:
    assert len(CASES) >= 40
