"""The fast reading, on files that stand in for the kernel's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.errors import KernelError
from sandbox.kernel.fast_files import FastFiles
from sandbox.kernel.files import KeptFile
from sandbox.records.sample import ABSENT

CPU_STAT = "usage_usec 5000\nuser_usec 3000\nsystem_usec 2000\nnr_periods 0\nnr_throttled 0\n"


class Rig:
    """Files in a directory, and a reading of them that counts how often I/O was parsed."""

    def __init__(self, directory: Path, *, has_io: bool = True) -> None:
        self.directory = directory
        self.parsed: list[bytes] = []
        self.io_error: KernelError | None = None
        self.write("cpu.stat", CPU_STAT)
        self.write("memory", "4096\n")
        self.write("pids", "3\n")
        self.write("io", "8:0 rbytes=1\n")
        self.files = {name: KeptFile(directory / name) for name in ("cpu.stat", "memory", "pids")}
        io = KeptFile(directory / "io") if has_io else None
        if io is not None:
            self.files["io"] = io
        gauges = (self.files["memory"], self.files["pids"])
        self.fast = FastFiles(self.files["cpu.stat"], 1000, gauges, io, self.parse_io)

    def write(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text)

    def parse_io(self, data: bytes) -> list[int]:
        if self.io_error is not None:
            raise self.io_error
        self.parsed.append(data)
        return [len(self.parsed), 2, 3, 4]

    def close(self) -> None:
        for file in self.files.values():
            file.close()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.close()


def test_a_reading_is_time_since_the_baseline_then_gauges_then_io(rig: Rig) -> None:
    assert rig.fast.read() == [4000, 4096, 3, 1, 2, 3, 4]


def test_io_is_parsed_only_when_it_has_changed(rig: Rig) -> None:
    assert [rig.fast.read()[3] for _ in range(3)] == [1, 1, 1]
    rig.write("io", "8:0 rbytes=2\n")
    assert [rig.fast.read()[3] for _ in range(3)] == [2, 2, 2]


def test_a_long_io_file_is_read_whole(rig: Rig) -> None:
    long = "".join(f"8:{minor} rbytes=1 wbytes=2 rios=3 wios=4\n" for minor in range(500))
    rig.write("io", long)
    rig.fast.read()

    assert rig.parsed == [long.encode()]


def test_each_reading_is_a_list_of_its_own(rig: Rig) -> None:
    first = rig.fast.read()
    first.clear()

    assert rig.fast.read() == [4000, 4096, 3, 1, 2, 3, 4]


def test_without_an_io_file_there_are_no_io_columns(tmp_path: Path) -> None:
    rig = Rig(tmp_path, has_io=False)
    try:
        assert rig.fast.read() == [4000, 4096, 3]
        rig.write("memory", "")
        assert rig.fast.read() == [4000, ABSENT, 3]
    finally:
        rig.close()


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("cpu.stat", [ABSENT, 4096, 3, 1, 2, 3, 4]),
        ("memory", [4000, ABSENT, 3, 1, 2, 3, 4]),
        ("pids", [4000, 4096, ABSENT, 1, 2, 3, 4]),
    ],
)
@pytest.mark.parametrize("text", ["", "max\n", "usage_usec \n"])
def test_what_cannot_be_understood_takes_nothing_else_with_it(
    rig: Rig, name: str, row: list[int], text: str
) -> None:
    rig.write(name, text)

    assert rig.fast.read() == row


def test_io_that_cannot_be_read_takes_nothing_else_with_it(rig: Rig) -> None:
    rig.io_error = KernelError("cannot read")

    assert rig.fast.read() == [4000, 4096, 3, *[ABSENT] * 4]


def test_a_group_that_is_gone_leaves_no_value(rig: Rig) -> None:
    nothing = os.open("/", os.O_RDONLY)  # a pread of it fails, as that of a dead group's file
    try:
        for file in rig.files.values():
            os.dup2(nothing, file.fd)

        assert set(rig.fast.read()) == {ABSENT}
    finally:
        os.close(nothing)


@settings(max_examples=60)
@given(
    st.integers(min_value=0, max_value=2**64 - 1),
    st.integers(min_value=0, max_value=2**64 - 1),
    st.integers(min_value=0, max_value=2**31),
)
def test_any_number_that_the_kernel_can_say_is_read(
    tmp_path_factory: pytest.TempPathFactory, usage: int, memory: int, pids: int
) -> None:
    rig = Rig(tmp_path_factory.mktemp("group"))
    try:
        rig.write("cpu.stat", f"usage_usec {usage}\nuser_usec 1\nsystem_usec 2\n")
        rig.write("memory", f"{memory}\n")
        rig.write("pids", f"{pids}\n")

        assert rig.fast.read()[:3] == [usage - 1000, memory, pids]
    finally:
        rig.close()
