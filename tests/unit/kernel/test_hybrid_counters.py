"""A hybrid run's counters and reader, on files captured from a real run."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from sandbox.kernel.hybrid_counters import (
    RunGroups,
    count_inner_ooms,
    count_limit_hits,
    count_oom_kills,
    has_kernel_memory,
    read_snapshot,
)
from sandbox.kernel.hybrid_reader import HybridReader
from sandbox.kernel.roots import Roots
from sandbox.kernel.unified_snapshot import Disks, Snapshot
from sandbox.records.result import Pressure
from sandbox.records.sample import ABSENT

CAPTURED = Path(__file__).parents[2] / "fixtures" / "kernel" / "hybrid" / "run"
LIMIT = 64 << 20


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A copy of the captured groups, with the program's processes beside them."""
    shutil.copytree(CAPTURED, tmp_path / "run")
    (tmp_path / "run" / "unified" / "main" / "cgroup.procs").write_text("41\n42\n43\n44\n")
    return tmp_path / "run"


@pytest.fixture
def groups(run: Path) -> RunGroups:
    controllers = ("cpu", "memory", "pids", "cpuset", "blkio")
    return RunGroups(v2=run / "unified", v1={name: run / name for name in controllers})


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    return Roots(sys=tmp_path / "no-sys")


def open_reader(groups: RunGroups, roots: Roots, before: Snapshot | None = None) -> HybridReader:
    before = read_snapshot(groups, Disks(roots)) if before is None else before
    return HybridReader(groups, groups.v2 / "main", before, Disks(roots), roots)


def test_a_snapshot_joins_both_sides(groups: RunGroups, roots: Roots) -> None:
    snapshot = read_snapshot(groups, Disks(roots))

    assert snapshot.cpu["usage_usec"] == 522_976
    assert snapshot.cpu["nr_periods"] == 12
    assert snapshot.cpu["throttled_usec"] == 128_733
    assert snapshot.io == {"254:0": {"rbytes": 1 << 20, "wbytes": 4 << 20, "rios": 2, "wios": 8}}
    assert snapshot.pressures["cpu"] == Pressure(some_usec=367_230, full_usec=366_755)
    assert snapshot.memory_events == {"oom_kill": 0}
    assert snapshot.memory_events_local == {"max": 0}
    assert snapshot.pids_events == {"max": 3}


def test_without_v1_controllers_a_snapshot_is_the_v2_side_alone(run: Path, roots: Roots) -> None:
    snapshot = read_snapshot(RunGroups(v2=run / "unified", v1={}), Disks(roots))

    assert "nr_periods" not in snapshot.cpu
    assert snapshot.io is None
    assert snapshot.memory_events == snapshot.memory_events_local == snapshot.pids_events == {}


def test_io_that_no_disk_is_counted_for_is_absent_and_not_zero(
    groups: RunGroups, roots: Roots
) -> None:
    for name in ("io_service_bytes", "io_serviced"):
        path = groups.v1["blkio"] / f"blkio.throttle.{name}_recursive"
        path.write_text("Total 0\n")

    assert read_snapshot(groups, Disks(roots)).io is None
    reader = open_reader(groups, roots)
    reader.close()
    assert reader.fast_columns == ("cpu_usage_usec", "memory_current_bytes", "pids")


def test_a_reading_counts_from_the_baseline(groups: RunGroups, roots: Roots, run: Path) -> None:
    reader = open_reader(groups, roots)
    try:
        first = dict(zip(reader.fast_columns, reader.read_fast(), strict=True))
        (run / "unified" / "cpu.stat").write_text("usage_usec 523000\nuser_usec 91900\n")
        moved = run / "blkio" / "blkio.throttle.io_service_bytes_recursive"
        moved.write_text(moved.read_text().replace("Write 4194304", "Write 4198400"))
        second = dict(zip(reader.fast_columns, reader.read_fast(), strict=True))
    finally:
        reader.close()

    assert first == {
        "cpu_usage_usec": 0,
        "memory_current_bytes": int((run / "memory" / "memory.usage_in_bytes").read_text()),
        "pids": 4,
        "io_read_bytes": 0,
        "io_write_bytes": 0,
        "io_read_ops": 0,
        "io_write_ops": 0,
    }
    assert second["cpu_usage_usec"] == 24
    assert second["io_write_bytes"] == 4096


def test_the_slow_reading_has_what_memory_is_made_of(groups: RunGroups, roots: Roots) -> None:
    reader = open_reader(
        groups, roots, Snapshot(cpu={"nr_periods": 2, "nr_throttled": 1, "throttled_usec": 733})
    )
    try:
        slow = dict(zip(reader.slow_columns, reader.read_slow(), strict=True))
    finally:
        reader.close()

    assert slow == {
        "cpu_user_usec": 91_820,
        "cpu_system_usec": 431_156,
        "processes": 4,
        "cpu_pressure_some_usec": 367_230,
        "cpu_pressure_full_usec": 366_755,
        "memory_pressure_some_usec": 0,
        "memory_pressure_full_usec": 0,
        "io_pressure_some_usec": 530,
        "io_pressure_full_usec": 530,
        "cpu_periods": 10,
        "cpu_throttled_periods": 7,
        "cpu_throttled_usec": 128_000,
        "memory_anon_bytes": 24_469_504,
        "memory_file_bytes": 9_437_184,
        "memory_shmem_bytes": 9_437_184,
        "memory_inactive_file_bytes": 0,
        "memory_swap_bytes": 0,
        "memory_kernel_bytes": 671_744,
    }


def test_what_is_not_there_has_no_column(run: Path, roots: Roots) -> None:
    groups = RunGroups(v2=run / "unified", v1={"pids": run / "pids"})
    reader = open_reader(groups, roots)
    reader.close()

    assert reader.fast_columns == ("cpu_usage_usec", "pids")
    assert not [name for name in reader.slow_columns if name.startswith(("memory_a", "cpu_p_"))]
    assert "cpu_periods" not in reader.slow_columns


def test_single_values_that_cannot_be_read_are_absent(
    groups: RunGroups, roots: Roots, run: Path
) -> None:
    reader = open_reader(groups, roots)
    try:
        for path in (
            run / "unified" / "cpu.stat",
            run / "memory" / "memory.usage_in_bytes",
            run / "memory" / "memory.stat",
            run / "memory" / "memory.kmem.usage_in_bytes",
            run / "cpu" / "cpu.stat",
            run / "blkio" / "blkio.throttle.io_service_bytes_recursive",
        ):
            path.write_text("nonsense\n")
        fast = dict(zip(reader.fast_columns, reader.read_fast(), strict=True))
        slow = dict(zip(reader.slow_columns, reader.read_slow(), strict=True))
    finally:
        reader.close()

    assert {name for name, value in fast.items() if value != ABSENT} == {"pids"}
    assert {name for name, value in slow.items() if value != ABSENT} == {
        "processes",
        *(
            f"{r}_pressure_{kind}_usec"
            for r in ("cpu", "memory", "io")
            for kind in ("some", "full")
        ),
    }


def test_a_kernel_that_does_not_count_itself_is_told_by_its_zero(
    groups: RunGroups, run: Path, roots: Roots
) -> None:
    assert has_kernel_memory(groups)
    (run / "memory" / "memory.kmem.usage_in_bytes").write_text("0\n")

    assert not has_kernel_memory(groups)
    reader = open_reader(groups, roots)
    reader.close()
    assert "memory_kernel_bytes" not in reader.slow_columns


def test_oom_kills_are_those_of_every_group(groups: RunGroups, run: Path) -> None:
    control = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"
    (run / "memory" / "main" / "memory.oom_control").write_text(control.format(2))
    (run / "memory" / "main" / "own").mkdir()
    (run / "memory" / "main" / "own" / "memory.oom_control").write_text(control.format(1))

    assert count_oom_kills(groups) == 3
    assert count_oom_kills(RunGroups(v2=groups.v2, v1={})) is None


def test_only_groups_with_a_limit_of_their_own_count_as_short_of_memory(
    groups: RunGroups, run: Path
) -> None:
    for name, limit in (("own", "33554432\n"), ("free", "9223372036854771712\n")):
        group = run / "memory" / "main" / name
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(limit)
        (group / "memory.oom_control").write_text("oom_kill 1\n")

    assert count_inner_ooms(groups) == 1
    assert count_inner_ooms(RunGroups(v2=groups.v2, v1={})) == 0


@pytest.mark.parametrize(
    ("failcnt", "total_limit", "total_peak", "hits"),
    [
        (7, LIMIT, LIMIT, 7),
        (0, LIMIT, 20 << 20, 0),  # far from it
        (0, LIMIT, LIMIT - (1 << 20), None),  # perhaps hit, and nobody counted
        (0, 2 * LIMIT, LIMIT, 0),  # the memory limit comes first and is counted
    ],
)
def test_a_count_of_zero_is_only_believed_away_from_the_limit(
    groups: RunGroups,
    run: Path,
    failcnt: int,
    total_limit: int,
    total_peak: int,
    hits: int | None,
) -> None:
    memory = run / "memory"
    (memory / "memory.failcnt").write_text(f"{failcnt}\n")
    (memory / "memory.memsw.limit_in_bytes").write_text(f"{total_limit}\n")
    (memory / "memory.memsw.max_usage_in_bytes").write_text(f"{total_peak}\n")

    assert count_limit_hits(groups) == hits


def test_without_swap_accounting_the_memory_limit_is_the_only_one(
    groups: RunGroups, run: Path
) -> None:
    for path in (run / "memory").glob("memory.memsw.*"):
        path.unlink()

    assert count_limit_hits(groups) == 0
    assert count_limit_hits(RunGroups(v2=groups.v2, v1={})) is None


def test_what_memory_is_made_of_is_read_where_the_program_is(
    groups: RunGroups, roots: Roots, run: Path
) -> None:
    memory = run / "memory"
    if memory.stat().st_nlink != 3:
        pytest.skip("this file system does not count the links of directories as the kernel's does")
    stale = (memory / "memory.stat").read_text()
    fresh = re.sub(r"^total_rss \d+$", "total_rss 424242", stale, flags=re.MULTILINE)
    (memory / "main" / "memory.stat").write_text(fresh)
    reader = open_reader(groups, roots)
    place = reader.slow_columns.index("memory_anon_bytes")
    try:
        alone = reader.read_slow()[place]
        (memory / "run-nested").mkdir()
        with_nested_run = reader.read_slow()[place]
    finally:
        reader.close()

    assert alone == 424_242
    assert f"\ntotal_rss {with_nested_run}\n" in stale
    assert with_nested_run != alone
