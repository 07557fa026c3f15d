"""v1's files: their grammar, and settings written through cgroupspy's controllers."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import KernelError
from sandbox.kernel import v1
from sandbox.units import UNLIMITED

RUN = Path(__file__).parents[2] / "fixtures" / "kernel" / "hybrid" / "run"
NUMBERS = st.integers(0, 2**63)


def render_blkio(devices: dict[str, tuple[int, int]], order: tuple[str, ...]) -> bytes:
    lines = []
    for device, (read, write) in devices.items():
        values = {"Read": read, "Write": write, "Sync": 0, "Async": 0, "Discard": 0}
        lines += [f"{device} {key} {values[key]}" for key in order]
    return "".join(f"{line}\n" for line in [*lines, "Total 0"]).encode()


DEVICES = st.dictionaries(
    st.tuples(st.integers(0, 4095), st.integers(0, 2**20)).map(lambda pair: f"{pair[0]}:{pair[1]}"),
    st.tuples(NUMBERS, NUMBERS),
    max_size=4,
)


@given(DEVICES, st.permutations(["Read", "Write", "Sync", "Async", "Discard"]))
def test_reads_and_writes_are_found_whatever_the_order_of_the_lines(
    devices: dict[str, tuple[int, int]], order: list[str]
) -> None:
    assert v1.parse_reads_and_writes(render_blkio(devices, tuple(order))) == devices


@given(st.binary(max_size=80))
def test_a_blkio_file_that_makes_no_sense_is_a_kernel_error(data: bytes) -> None:
    try:
        found = v1.parse_reads_and_writes(data)
    except KernelError:
        return
    assert all(read >= 0 and write >= 0 for read, write in found.values())


def test_a_captured_blkio_file_gives_its_bytes() -> None:
    data = (RUN / "blkio" / v1.IO_BYTES).read_bytes()

    assert v1.parse_reads_and_writes(data) == {"254:0": (1 << 20, 4 << 20)}


@given(NUMBERS, NUMBERS, NUMBERS)
def test_throttled_time_comes_in_microseconds(periods: int, throttled: int, time_ns: int) -> None:
    text = f"nr_periods {periods}\nnr_throttled {throttled}\nthrottled_time {time_ns}\nextra 1\n"

    assert v1.parse_throttling(text) == (periods, throttled, time_ns // 1000)


def test_a_cpu_stat_without_bandwidth_control_has_no_throttling() -> None:
    assert v1.parse_throttling(b"") is None
    with pytest.raises(KernelError, match="keys and numbers"):
        v1.parse_throttling("nr_periods many\nnr_throttled 1\nthrottled_time 2\n")


@pytest.mark.parametrize(
    ("setting", "value", "text"),
    [
        (v1.CPU_QUOTA, 50_000, "50000"),
        (v1.CPU_QUOTA, UNLIMITED, "-1"),
        (v1.MEMORY_LIMIT, 64 << 20, "67108864"),
        (v1.MEMORY_LIMIT, UNLIMITED, "-1"),
        (v1.MEMORY_SWAP_LIMIT, UNLIMITED, "-1"),
        (v1.PIDS_LIMIT, 4096, "4096"),
        (v1.PIDS_LIMIT, UNLIMITED, "max"),
        (v1.PIDS_LIMIT, 1 << 30, "max"),  # more than the kernel can count
    ],
)
def test_a_number_is_written_in_the_words_of_its_file(
    tmp_path: Path, setting: v1.Setting, value: int, text: str
) -> None:
    (tmp_path / setting.file).touch()

    found = v1.write_number(tmp_path, setting, value)

    assert (tmp_path / setting.file).read_text() == text
    assert found == (UNLIMITED if text in {"-1", "max"} else value)


@pytest.mark.parametrize("text", ["-1\n", "max\n", "9223372036854771712\n"])
def test_every_word_for_no_limit_is_understood(tmp_path: Path, text: str) -> None:
    setting = v1.PIDS_LIMIT if text == "max\n" else v1.MEMORY_LIMIT
    (tmp_path / setting.file).write_text(text)

    assert v1.read_number(tmp_path, setting) == UNLIMITED


def test_a_file_that_the_kernel_lacks_is_named_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match=r"memory\.memsw\.limit_in_bytes: ENOENT") as caught:
        v1.write_number(tmp_path, v1.MEMORY_SWAP_LIMIT, 1 << 20)

    assert caught.value.errno == errno.ENOENT
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("setting", [v1.CPU_SHARES, v1.CPUSET_CPUS, v1.PIDS_LIMIT])
def test_a_setting_that_makes_no_sense_is_a_kernel_error(
    tmp_path: Path, setting: v1.Setting
) -> None:
    (tmp_path / setting.file).write_text("a-b\n")
    read = v1.read_numbers if setting is v1.CPUSET_CPUS else v1.read_number

    with pytest.raises(KernelError):
        read(tmp_path, setting)


@given(st.sets(st.integers(0, 300), min_size=1, max_size=8))
def test_a_list_of_cpus_reads_as_it_was_written(cpus: set[int]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / v1.CPUSET_CPUS.file).touch()

        assert v1.write_numbers(Path(directory), v1.CPUSET_CPUS, cpus) == cpus
        assert v1.read_numbers(Path(directory), v1.CPUSET_CPUS) == cpus


def test_new_cpusets_are_filled_from_the_one_above(tmp_path: Path) -> None:
    top, inner = tmp_path / "run", tmp_path / "run" / "main"
    inner.mkdir(parents=True)
    for name, text in (("cpuset.cpus", "0-3,6\n"), ("cpuset.mems", "0-1\n")):
        (tmp_path / name).write_text(text)
        (top / name).touch()
        (inner / name).touch()

    v1.fill_cpuset(tmp_path, (top, inner))

    for directory in (top, inner):
        assert (directory / "cpuset.cpus").read_text() == "0-3,6"
        assert (directory / "cpuset.mems").read_text() == "0-1"


def test_counters_are_added_up_over_the_groups_below(tmp_path: Path) -> None:
    for group, text in (("", "max 0\n"), ("main", "max 3\n"), ("main/own", "max 4\n")):
        (tmp_path / group).mkdir(exist_ok=True)
        (tmp_path / group / "pids.events").write_text(text)

    assert v1.count_everywhere(tmp_path, "pids.events", "max") == 7
    assert v1.count_everywhere(tmp_path, "pids.events", "min") is None
    assert v1.count_everywhere(tmp_path / "gone", "pids.events", "max") is None


def test_a_disk_that_cannot_be_counted_is_passed_over(tmp_path: Path) -> None:
    v1.count_io(tmp_path, ("8:0", "8:16"))

    assert list(tmp_path.iterdir()) == []


def test_processes_of_several_hierarchies_are_listed_once(tmp_path: Path) -> None:
    for name, text in (("cpu", "12\n7\n"), ("memory", "7\n0\n3\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").write_text(text)

    assert v1.list_pids((tmp_path / "cpu", tmp_path / "memory")) == (3, 7, 12)


def test_cgroupspy_is_loaded_by_the_first_setting_only_and_without_logging() -> None:
    program = (
        "import sys\n"
        "import sandbox.kernel.hybrid\n"
        "from sandbox.kernel import v1\n"
        "print('cgroupspy' in sys.modules)\n"
        "v1._controllers()\n"
        "print('cgroupspy' in sys.modules, 'logging' in sys.modules)\n"
    )

    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=20
    ).stdout

    assert output.split() == ["False", "True", "False"]
