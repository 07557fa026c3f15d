"""What `/proc` says of a tree, from captured text and from a directory that stands in for it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.kernel.bare_reader import parse_memory, parse_needed
from sandbox.kernel.processes import (
    find_descendants,
    parse_process_stat,
    read_file,
    read_stat,
    signal_all,
)

STAT = (
    b"4242 (tricky) (name) S 4241 4241 4200 34816 4242 4194304 1480 991 0 2 152 31 7 3 "
    b"20 0 5 0 880410 231297024 6210 18446744073709551615 1 1 0 0 0 0 0 16781312 134235650 0\n"
)

STATUS = b"""Name:\tpython3
Umask:\t0022
State:\tS (sleeping)
VmHWM:\t   13196 kB
VmRSS:\t   12940 kB
RssAnon:\t    7212 kB
RssFile:\t    5632 kB
RssShmem:\t      96 kB
VmSwap:\t       8 kB
Threads:\t1
"""

ROLLUP = b"""55c4a0a6f000-7ffd4b9f4000 ---p 00000000 00:00 0                          [rollup]
Rss:               12940 kB
Pss:                8731 kB
Pss_Dirty:          7300 kB
Pss_Anon:           7208 kB
Pss_File:           1475 kB
Pss_Shmem:            48 kB
Swap:                  0 kB
"""


def test_a_name_may_hold_anything() -> None:
    stat = parse_process_stat(STAT)

    assert stat.is_alive
    assert (stat.user_ticks, stat.system_ticks) == (152 + 7, 31 + 3)
    assert (stat.threads, stat.start_ticks, stat.resident_pages) == (5, 880_410, 6210)


def test_a_zombie_is_not_alive() -> None:
    assert not parse_process_stat(STAT.replace(b" S ", b" Z ")).is_alive


@given(
    name=st.binary(max_size=15).filter(lambda name: b"\0" not in name),
    numbers=st.lists(st.integers(0, 2**63), min_size=8, max_size=8),
)
def test_every_name_and_number_is_read_back(name: bytes, numbers: list[int]) -> None:
    user, system, waited_user, waited_system, threads, start, size, pages = numbers
    text = f"R 1 1 1 0 -1 0 0 0 0 0 {user} {system} {waited_user} {waited_system} 20 0 {threads} 0 "
    data = b"7 (" + name + b") " + f"{text}{start} {size} {pages} 0 0\n".encode()

    stat = parse_process_stat(data)

    assert stat.user_ticks == user + waited_user
    assert stat.system_ticks == system + waited_system
    assert (stat.threads, stat.start_ticks, stat.resident_pages) == (threads, start, pages)


@given(st.binary(max_size=300))
def test_no_other_text_is_taken_for_a_process(data: bytes) -> None:
    try:
        parse_process_stat(data)
    except (ValueError, IndexError):
        return
    assert data.count(b")")
    assert len(data.split()) > 21


def test_memory_is_told_apart() -> None:
    assert parse_memory(STATUS) == [7212 << 10, 5632 << 10, 96 << 10, 8 << 10]


def test_what_has_no_memory_any_more_is_none() -> None:
    zombie = b"".join(line for line in STATUS.splitlines(keepends=True) if line[:3] != b"Rss")

    assert parse_memory(zombie) is None
    assert parse_memory(b"") is None


@given(st.binary(max_size=200))
def test_memory_of_any_text_is_four_numbers_or_none(data: bytes) -> None:
    values = parse_memory(data + STATUS if data.endswith(b"\n") else data)

    assert values is None or len(values) == 4


def test_needed_memory_is_what_cannot_be_dropped() -> None:
    assert parse_needed(ROLLUP) == (7208 + 48) << 10


def test_a_kernel_that_does_not_tell_shares_apart_gives_none() -> None:
    old = b"".join(line for line in ROLLUP.splitlines(keepends=True) if b"_" not in line)

    assert parse_needed(old) is None


def _process(proc: Path, pid: int, children: dict[int, list[int]]) -> None:
    """Make a process with threads, each of which has forked children of its own."""
    for thread, pids in children.items():
        directory = proc / str(pid) / "task" / str(thread)
        directory.mkdir(parents=True)
        (directory / "children").write_text("".join(f"{pid} " for pid in pids))


def test_the_walk_finds_the_children_of_every_thread_parents_first(tmp_path: Path) -> None:
    _process(tmp_path, 10, {10: [11], 15: [12]})
    _process(tmp_path, 11, {11: [13]})
    _process(tmp_path, 12, {12: []})
    _process(tmp_path, 13, {13: [14]})  # 14 has gone meanwhile

    found = find_descendants(10, tmp_path)

    assert sorted(found) == [11, 12, 13, 14]
    assert found.index(11) < found.index(13) < found.index(14)


def test_thousands_of_children_are_read_whole(tmp_path: Path) -> None:
    pids = list(range(100_000, 103_000))
    _process(tmp_path, 10, {10: pids})

    assert find_descendants(10, tmp_path) == pids


def test_a_kernel_without_lists_of_children_is_walked_by_parents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sandbox.kernel.processes._has_children_files", lambda *_: False)
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(write_fd)
        os.read(read_fd, 1)
        os._exit(0)
    try:
        found = find_descendants(os.getpid())
        nobody = find_descendants(2**22 + 1)
    finally:
        os.close(write_fd)
        os.close(read_fd)
        os.waitpid(pid, 0)

    assert pid in found
    assert nobody == []


def test_the_gone_and_the_foreign_are_passed_over(tmp_path: Path) -> None:
    assert read_stat(1, tmp_path) is None
    assert read_file(str(tmp_path)) == b""
    assert signal_all([2**22 + 1], signal.SIGTERM) == 0
    assert signal_all([os.getpid()], 0) == 1


def test_our_own_process_can_be_read() -> None:
    stat = read_stat(os.getpid())

    assert stat is not None
    assert stat.is_alive
    assert stat.resident_pages > 100
    assert sys.getsizeof(stat) < 1000
