"""A unified group's readings and totals, from captured files of Linux 6.1."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import KernelError
from sandbox.kernel.place import Place
from sandbox.kernel.roots import Roots
from sandbox.kernel.unified import UnifiedGroup
from sandbox.kernel.unified_reader import MemoryStat, UnifiedReader
from sandbox.kernel.unified_snapshot import Disks, Snapshot, read_snapshot
from sandbox.kernel.unified_totals import totals_between
from sandbox.records.host import Mode
from sandbox.records.result import DeviceIo, Pressure
from sandbox.records.sample import ABSENT, COLUMNS

CAPTURED = Path(__file__).parents[2] / "fixtures" / "kernel" / "v2" / "cgroup" / "capture"
ONE_DISK = "254:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n"


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    """A machine with the disk 254:0 (vda) and a mapped device 253:0 on it."""
    sys = tmp_path / "sys"
    for number, name, slaves in (("254:0", "vda", ()), ("253:0", "dm-0", ("vda",))):
        device = sys / "devices" / name
        (device / "slaves").mkdir(parents=True)
        for slave in slaves:
            (device / "slaves" / slave).touch()
        (sys / "dev" / "block").mkdir(parents=True, exist_ok=True)
        (sys / "dev" / "block" / number).symlink_to(device)
    return Roots(sys=sys, proc=tmp_path / "proc", cgroup=tmp_path / "cgroup")


@pytest.fixture
def group(tmp_path: Path) -> Path:
    """The captured group, its one process in `main`."""
    directory = tmp_path / "cgroup" / "run-1"
    shutil.copytree(CAPTURED, directory)
    (directory / "main").mkdir()
    (directory / "main" / "cgroup.procs").write_text("17\n18\n")
    (directory / "io.stat").write_text(ONE_DISK)
    return directory


def open_reader(group: Path, roots: Roots, before: Snapshot | None = None) -> UnifiedReader:
    return UnifiedReader(group, group / "main", before or Snapshot(), roots)


def fast(reader: UnifiedReader) -> dict[str, int]:
    return dict(zip(reader.fast_columns, reader.read_fast(), strict=True))


def slow(reader: UnifiedReader) -> dict[str, int]:
    return dict(zip(reader.slow_columns, reader.read_slow(), strict=True))


def test_the_fast_reading_is_what_the_files_say(group: Path, roots: Roots) -> None:
    reader = open_reader(group, roots)

    assert fast(reader) == {
        "cpu_usage_usec": 2_564_745,
        "memory_current_bytes": 21_495_808,
        "pids": 1,
        "io_read_bytes": 4_096,
        "io_write_bytes": 8_192,
        "io_read_ops": 1,
        "io_write_ops": 2,
    }
    reader.close()


def test_the_slow_reading_is_what_the_files_say(group: Path, roots: Roots) -> None:
    reader = open_reader(group, roots)

    assert slow(reader) == {
        "cpu_user_usec": 778_068,
        "cpu_system_usec": 1_786_676,
        "cpu_periods": 131,
        "cpu_throttled_periods": 127,
        "cpu_throttled_usec": 10_074_963,
        "memory_anon_bytes": 102_400,
        "memory_file_bytes": 21_217_280,
        "memory_shmem_bytes": 20_971_520,
        "memory_kernel_bytes": 139_264,
        "memory_inactive_file_bytes": 147_456,
        "memory_swap_bytes": 0,
        "processes": 2,
        "cpu_pressure_some_usec": 9_042_294,
        "cpu_pressure_full_usec": 9_042_294,
        "memory_pressure_some_usec": 0,
        "memory_pressure_full_usec": 0,
        "io_pressure_some_usec": 0,
        "io_pressure_full_usec": 0,
    }
    reader.close()


def test_every_column_is_a_known_one(group: Path, roots: Roots) -> None:
    reader = open_reader(group, roots)

    assert {*reader.fast_columns, *reader.slow_columns} == {
        name for name in COLUMNS if name != "time_ns" and not name.startswith("net_")
    }
    reader.close()


def test_counters_start_at_the_baseline_and_gauges_do_not(group: Path, roots: Roots) -> None:
    reader = open_reader(group, roots, read_snapshot(group, roots))
    (group / "cpu.stat").write_text(
        (group / "cpu.stat").read_text().replace("usage_usec 2564745", "usage_usec 2564750")
    )
    (group / "io.stat").write_text(ONE_DISK.replace("rbytes=4096", "rbytes=5000"))

    assert fast(reader) == {
        "cpu_usage_usec": 5,
        "memory_current_bytes": 21_495_808,
        "pids": 1,
        "io_read_bytes": 904,
        "io_write_bytes": 0,
        "io_read_ops": 0,
        "io_write_ops": 0,
    }
    assert slow(reader)["cpu_throttled_usec"] == 0
    assert slow(reader)["cpu_pressure_some_usec"] == 0
    assert slow(reader)["memory_anon_bytes"] == 102_400
    reader.close()


def test_what_the_group_lacks_has_no_column(group: Path, roots: Roots) -> None:
    for name in ("io.stat", "memory.current", "memory.stat", "memory.swap.current", "io.pressure"):
        (group / name).unlink()
    (group / "cpu.pressure").write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n")
    (group / "cpu.stat").write_text("usage_usec 3\nuser_usec 2\nsystem_usec 1\n")
    reader = open_reader(group, roots)

    assert reader.fast_columns == ("cpu_usage_usec", "pids")
    assert reader.slow_columns == (
        "cpu_user_usec",
        "cpu_system_usec",
        "processes",
        "cpu_pressure_some_usec",
        "memory_pressure_some_usec",
        "memory_pressure_full_usec",
    )
    assert slow(reader)["cpu_pressure_some_usec"] == 7
    reader.close()


def test_one_reading_that_fails_is_absent_alone(group: Path, roots: Roots) -> None:
    reader = open_reader(group, roots)
    for name in ("cpu.stat", "memory.current", "memory.stat", "cpu.pressure", "cgroup.stat"):
        (group / name).write_text("nonsense\n")

    row = fast(reader)
    assert row["cpu_usage_usec"] == row["memory_current_bytes"] == ABSENT
    assert (row["pids"], row["io_read_bytes"]) == (1, 4_096)
    row = slow(reader)
    assert row["cpu_user_usec"] == row["memory_anon_bytes"] == row["processes"] == ABSENT
    assert row["cpu_pressure_some_usec"] == ABSENT
    assert row["memory_pressure_some_usec"] == 0
    (group / "io.stat").write_text("nonsense\n")
    assert fast(reader)["io_write_ops"] == ABSENT
    reader.close()


def test_processes_in_groups_of_the_program_are_counted(group: Path, roots: Roots) -> None:
    reader = open_reader(group, roots)
    (group / "cgroup.procs").write_text("")
    (group / "main" / "own").mkdir()
    (group / "main" / "own" / "cgroup.procs").write_text("19\n20\n21\n")
    (group / "cgroup.stat").write_text("nr_descendants 2\nnr_dying_descendants 0\n")

    assert slow(reader)["processes"] == 5
    reader.close()


def test_a_group_that_is_not_there_is_one_clear_error(tmp_path: Path, roots: Roots) -> None:
    with pytest.raises(KernelError, match=r"open .*cpu\.stat: ENOENT"):
        open_reader(tmp_path / "run-2", roots)


def test_before_linux_5_18_the_kernels_share_is_summed() -> None:
    old = b"anon 1\nfile 2\nkernel_stack 16\nslab 32\npercpu 64\nshmem 4\ninactive_file 8\n"
    stat = MemoryStat(old)

    assert dict(zip(stat.columns, stat.values(old), strict=True)) == {
        "memory_anon_bytes": 1,
        "memory_file_bytes": 2,
        "memory_shmem_bytes": 4,
        "memory_kernel_bytes": 112,
        "memory_inactive_file_bytes": 8,
    }


# --- devices


@given(
    st.dictionaries(
        st.sampled_from(["8:0", "254:0", "253:0", "7:1"]),
        st.lists(st.integers(0, 1 << 60), min_size=6, max_size=6) | st.none(),
    )
)
def test_the_quick_sum_is_that_of_the_whole_grammar(devices: dict[str, list[int] | None]) -> None:
    keys = ("rbytes", "wbytes", "rios", "wios", "dbytes", "dios")
    lines = [
        device + "".join(f" {key}={n}" for key, n in zip(keys, numbers or (), strict=False))
        for device, numbers in devices.items()
    ]
    rows = [numbers for numbers in devices.values() if numbers]

    sums = Disks(Roots(sys=Path("/nowhere"))).sums("".join(f"{x}\n" for x in lines).encode())

    assert sums == [sum(row[index] for row in rows) for index in range(4)]


def test_what_a_mapped_device_passes_on_is_counted_once(group: Path, roots: Roots) -> None:
    (group / "io.stat").write_text(ONE_DISK + ONE_DISK.replace("254:0", "253:0"))
    reader = open_reader(group, roots)

    assert fast(reader)["io_write_bytes"] == 8_192
    assert set(read_snapshot(group, roots).io or ()) == {"254:0"}
    reader.close()


def test_a_device_behind_bare_ones_is_not_lost(roots: Roots) -> None:
    assert Disks(roots).sums(b"7:7 7:6 " + ONE_DISK.encode()) == [4_096, 8_192, 1, 2]


# --- totals


def test_totals_are_what_was_added(group: Path, roots: Roots) -> None:
    before = read_snapshot(group, roots)
    (group / "io.stat").write_text(ONE_DISK.replace("wios=2", "wios=9"))
    (group / "memory.events").write_text("low 0\nhigh 0\nmax 3\noom 2\noom_kill 2\n")
    (group / "memory.events.local").write_text("low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\n")
    (group / "pids.events").write_text("max 4\n")
    (group / "cpu.pressure").write_text("some avg10=0 total=9042300\nfull avg10=0 total=9042295\n")

    totals = totals_between(before, read_snapshot(group, roots), roots=roots, peaks=(5, None, 3))

    assert totals.cpu_usage_usec == totals.cpu_throttled_usec == 0
    assert (totals.oom_kills, totals.oom_events, totals.limit_hits) == (2, 1, 3)
    assert totals.pids_refused == 4
    assert (totals.memory_peak_bytes, totals.memory_peak_source) == (5, "kernel")
    assert (totals.swap_peak_bytes, totals.pids_peak) == (None, 3)
    assert totals.io == (
        DeviceIo(device="254:0 vda", read_bytes=0, write_bytes=0, read_ops=0, write_ops=7),
    )
    assert totals.cpu_pressure == Pressure(some_usec=6, full_usec=1)


def test_what_was_not_counted_is_none_not_zero() -> None:
    empty = Snapshot()

    totals = totals_between(empty, empty, roots=Roots(), peaks=(None, None, None))

    assert totals == replace(totals, **dict.fromkeys(totals.__dataclass_fields__))


def test_a_disk_that_was_first_used_during_the_run_is_there(group: Path, roots: Roots) -> None:
    (group / "io.stat").write_text("")
    before = read_snapshot(group, roots)
    (group / "io.stat").write_text(ONE_DISK)

    totals = totals_between(
        before, read_snapshot(group, roots), roots=roots, peaks=(None, None, None)
    )

    assert totals.io is not None
    assert totals.io[0].read_bytes == 4_096


def test_a_place_without_the_unified_hierarchy_makes_no_group() -> None:
    place = Place(mode=Mode.NONE, reason="nothing is mounted")

    with pytest.raises(KernelError, match="no group can be made here: nothing is mounted"):
        UnifiedGroup(place, "1", Roots())
