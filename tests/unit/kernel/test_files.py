"""Control files, against ordinary files that stand in for them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sandbox.errors import KernelError
from sandbox.kernel.files import (
    KeptFile,
    find_text,
    list_tree,
    make_directory,
    read_text,
    remove_directory,
    remove_tree,
    write_and_read_back,
    write_text,
)


def test_a_write_never_creates_the_file(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match=r"write `8` to .*pids\.max: ENOENT") as caught:
        write_text(tmp_path / "pids.max", "8")

    assert caught.value.errno == errno.ENOENT
    assert caught.value.hint is not None
    assert not (tmp_path / "pids.max").exists()


def test_what_was_written_is_read_back_without_the_line_end(tmp_path: Path) -> None:
    path = tmp_path / "pids.max"
    path.write_text("max\n")

    assert write_and_read_back(path, "100\n") == "100"


def test_an_empty_text_is_written_as_a_line_feed(tmp_path: Path) -> None:
    path = tmp_path / "cpuset.cpus"
    path.touch()

    write_text(path, "")

    assert path.read_bytes() == b"\n"


def test_a_refusal_by_the_kernel_is_raised_and_names_the_errno() -> None:
    with pytest.raises(KernelError, match=r"oom_score_adj: EINVAL") as caught:
        write_text("/proc/self/oom_score_adj", "100000")

    assert caught.value.errno == errno.EINVAL


def test_a_device_that_takes_nothing_is_an_error() -> None:
    with pytest.raises(KernelError, match="ENOSPC"):
        write_text("/dev/full", "1")


def test_reading_what_is_missing_raises_or_finds_nothing(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match=r"cannot read .*memory\.peak: ENOENT"):
        read_text(tmp_path / "memory.peak")

    assert find_text(tmp_path / "memory.peak") is None
    assert find_text(tmp_path) is None  # a directory


def test_bytes_that_are_no_text_survive_reading_and_writing(tmp_path: Path) -> None:
    path = tmp_path / "cgroup"
    path.write_bytes(b"0::/caf\xe9\n")

    write_text(path, read_text(path))

    assert path.read_bytes() == b"0::/caf\xe9\n"


def test_a_kept_file_says_what_is_there_now(tmp_path: Path) -> None:
    path = tmp_path / "memory.current"
    path.write_text("4096\n")
    kept = KeptFile(path)
    assert kept.read() == b"4096\n"

    path.write_text("8192\n")

    assert kept.read() == b"8192\n"
    assert not os.get_inheritable(kept.fd)
    kept.close()
    kept.close()


@pytest.mark.parametrize("size", [0, 1, 2_047, 2_048, 16_383, 16_384, 16_385, 100_000])
def test_a_kept_file_is_read_whole_whatever_its_size(tmp_path: Path, size: int) -> None:
    path = tmp_path / "cgroup.procs"
    path.write_bytes(b"7" * size)
    kept = KeptFile(path)

    assert [len(kept.read()), len(kept.read())] == [size, size]
    kept.close()


def test_a_kernel_file_of_many_records_is_read_whole() -> None:
    kept = KeptFile("/proc/zoneinfo")
    data = kept.read()
    kept.close()

    assert data.count(b"\n") == read_text("/proc/zoneinfo").count("\n")
    assert data.endswith(b"\n")


def test_a_missing_kept_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match=r"open .*io\.stat: ENOENT"):
        KeptFile(tmp_path / "io.stat")


def test_making_a_group_twice_is_an_error(tmp_path: Path) -> None:
    make_directory(tmp_path / "run-1")

    with pytest.raises(KernelError, match="EEXIST"):
        make_directory(tmp_path / "run-1")


def test_removing_a_group_that_is_gone_is_fine(tmp_path: Path) -> None:
    remove_directory(tmp_path / "run-1")
    remove_tree(tmp_path / "run-1")


def test_a_group_that_cannot_be_removed_is_named(tmp_path: Path) -> None:
    (tmp_path / "run-1").mkdir()
    (tmp_path / "run-1" / "a file").touch()

    with pytest.raises(KernelError, match=r"remove the group .*run-1: ENOTEMPTY"):
        remove_directory(tmp_path / "run-1")


def test_a_tree_is_removed_deepest_first_though_its_groups_are_closed(tmp_path: Path) -> None:
    deepest = tmp_path / "run-1" / "main" / "own" / "deeper"
    deepest.mkdir(parents=True)
    (tmp_path / "run-1" / "main" / "another").mkdir()
    deepest.parent.chmod(0)
    (tmp_path / "run-1" / "main").chmod(0)

    remove_tree(tmp_path / "run-1")

    assert not (tmp_path / "run-1").exists()


def test_the_tree_is_listed_parents_first(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "a" / "d").mkdir()
    (tmp_path / "a" / "cgroup.procs").touch()

    listed = list_tree(tmp_path / "a")

    assert sorted(listed) == sorted(str(tmp_path / part) for part in ("a", "a/b", "a/b/c", "a/d"))
    assert listed.index(str(tmp_path / "a/b")) < listed.index(str(tmp_path / "a/b/c"))
    assert listed[0] == str(tmp_path / "a")
