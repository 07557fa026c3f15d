"""Which ids a plain user has inside, what is told of failures, what is taken away at the end."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from sandbox.kernel.birth import Failure, Step
from sandbox.kernel.files import find_file_system
from sandbox.kernel.launch_error import to_error
from sandbox.kernel.namespaces import clone_error, find_ids, flags_of
from sandbox.kernel.roots import Roots
from sandbox.kernel.scratch import remove_scratch
from sandbox.records.enclosure import Enclosure, IdMap, Network, OwnNetwork
from sandbox.records.program import Program

NEW_USER, NEW_NETWORK = 0x1000_0000, 0x4000_0000
SINGLE = IdMap(uids=((0, 1000, 1),), gids=((0, 1000, 1),))
LENT = "# ranges\n4000000:100000:65536\nothers:9:9\n4000000:300000:10\n"


def _roots(top: Path, *, subuid: str = LENT, subgid: str = LENT, tools: bool = True) -> Roots:
    (top / "etc").mkdir()
    (top / "etc/subuid").write_text(subuid)
    (top / "etc/subgid").write_text(subgid)
    if tools:
        (top / "usr/bin").mkdir(parents=True)
        for name in ("newuidmap", "newgidmap"):
            (top / "usr/bin" / name).touch()
    return Roots(top=top)


def test_lent_ids_follow_the_users_own(tmp_path: Path) -> None:
    ids = find_ids(4000000, 77, roots=_roots(tmp_path))

    assert ids.uids == ((0, 4000000, 1), (1, 100000, 65536), (65537, 300000, 10))
    assert ids.gids[0] == (0, 77, 1)
    assert not ids.is_single
    assert ids.holds(65546, 0)
    assert not ids.holds(65547, 0)


def test_what_is_lent_twice_is_mapped_once(tmp_path: Path) -> None:
    twice = "4000000:100000:65536\n4000000:100000:65536\n4000000:165530:10\n4000000:300000:10\n"

    ids = find_ids(4000000, 77, roots=_roots(tmp_path, subuid=twice))

    assert ids.uids == ((0, 4000000, 1), (1, 100000, 65536), (65537, 300000, 10))


@pytest.mark.parametrize("lacking", ["subuid", "subgid", "tools"])
def test_without_all_that_it_takes_there_is_one_user(tmp_path: Path, lacking: str) -> None:
    settings = {"tools": False} if lacking == "tools" else {lacking: "others:1:1\n"}

    ids = find_ids(4000000, 77, as_user=(5, 6), roots=_roots(tmp_path, **settings))  # type: ignore[arg-type]

    assert ids == IdMap(uids=((5, 4000000, 1),), gids=((6, 77, 1),))
    assert ids.is_single
    assert ids.holds(5, 6)


def test_only_what_is_asked_for_gets_a_namespace() -> None:
    plain = Enclosure(layers=("/r",), hostname="h")
    mapped = Enclosure(layers=("/r",), hostname="h", ids=SINGLE)
    own = OwnNetwork(kind=Network.NONE)
    alone = OwnNetwork(kind=Network.PRIVATE, ids=SINGLE)

    rooted = _flags(enclosure=plain)
    assert _flags(enclosure=mapped, own_network=own) ^ rooted == NEW_NETWORK | NEW_USER
    assert _flags(enclosure=plain, own_network=own) ^ rooted == NEW_NETWORK
    assert _flags(own_network=own) == NEW_NETWORK
    assert _flags(own_network=alone) == NEW_NETWORK | NEW_USER
    assert _flags() == 0


def _flags(**parts: Any) -> int:
    return flags_of(Program(argv=("true",), environment={}, **parts))


@pytest.mark.parametrize("ids", [None, SINGLE])
@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSPC, errno.ENOSYS])
def test_a_refused_namespace_says_what_to_do(ids: IdMap | None, number: int) -> None:
    error = clone_error(OSError(number, ""), ids)

    assert errno.errorcode[number] in str(error)
    assert error.hint


@pytest.mark.parametrize("ids", [None, SINGLE])
@pytest.mark.parametrize(
    "number", [errno.EPERM, errno.EINVAL, errno.ELOOP, errno.ENOTDIR, errno.EROFS, errno.ENODEV]
)
def test_a_mount_that_fails_is_named_with_a_hint(ids: IdMap | None, number: int) -> None:
    enclosure = Enclosure(layers=("/r",), hostname="h", ids=ids)
    program = Program(argv=("x",), environment={}, enclosure=enclosure)

    error = to_error(Failure(Step.ROOT, number, "/etc/hosts"), program, (b"x",))

    assert error.exit_code == 125
    assert f"(/etc/hosts): {errno.errorcode[number]}" in str(error)
    assert error.hint


@pytest.mark.parametrize(
    ("number", "status"),
    [(errno.ENOENT, 127), (errno.ELIBACC, 126), (errno.EACCES, 126), (errno.ENOEXEC, 126)],
)
def test_what_cannot_be_executed_inside_is_not_looked_for_on_the_host(
    number: int, status: int
) -> None:
    enclosure = Enclosure(layers=("/r",), hostname="h")
    program = Program(argv=("sh",), environment={}, enclosure=enclosure)

    error = to_error(Failure(Step.EXEC, number, "/bin/sh"), program, (b"/bin/sh",))

    assert error.exit_code == status
    assert error.hint


def test_a_closed_tree_is_taken_away_and_links_are_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("kept")
    deep = tmp_path / "scratch/upper/a/b"
    deep.mkdir(parents=True)
    (deep / "link").symlink_to(kept)
    (deep / "file").write_text("x")
    os.chmod(deep, 0)  # noqa: PTH101 - as the program does

    assert remove_scratch(tmp_path / "scratch", None)
    assert remove_scratch(tmp_path / "scratch", SINGLE)

    assert (kept / "file").read_text() == "kept"
    assert not (tmp_path / "scratch").exists()


def test_a_very_deep_tree_is_taken_away(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    fd = os.open(tmp_path / "scratch", os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(450):
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)

    assert remove_scratch(tmp_path / "scratch", None)


def test_the_kind_of_a_file_system_is_that_of_its_device(tmp_path: Path) -> None:
    number = tmp_path.stat().st_dev
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "1 0 250:250 / / rw - ext4 /dev/a rw\n"
        f"2 1 {os.major(number)}:{os.minor(number)} / /x rw shared:1 - fuse.sshfs host rw\n"
    )

    assert find_file_system(tmp_path, str(mounts)) == "fuse.sshfs"
    mounts.write_text("")
    assert find_file_system(tmp_path, str(mounts)) == ""
