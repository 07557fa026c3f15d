"""The hybrid group's names and reasons, in directories that stand in for the hierarchies."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.errors import KernelError
from sandbox.kernel.hybrid import HybridGroup
from sandbox.kernel.hybrid_kill import signal_pids, thaw
from sandbox.kernel.place import Place
from sandbox.kernel.roots import Roots
from sandbox.records.host import Mode


def place_below(root: Path, *controllers: str, missing: dict[str, str] | None = None) -> Place:
    for name in (*controllers, "unified"):
        (root / name).mkdir(exist_ok=True)
    return Place(
        mode=Mode.HYBRID,
        reason="a test",
        v2=root / "unified",
        v2_top=root / "unified",
        v1={name: root / name for name in controllers},
        missing=missing or {},
    )


def test_every_hierarchy_has_a_group_for_the_limits_and_one_for_the_program(
    tmp_path: Path,
) -> None:
    group = HybridGroup(place_below(tmp_path, "cpu", "cpuacct", "memory", "freezer"), "x", Roots())

    names = [str(directory.relative_to(tmp_path)) for directory in group.directories]

    assert names == [
        "cpu/run-x",
        "cpu/run-x/main",
        "memory/run-x",
        "memory/run-x/main",
        "unified/run-x",
        "unified/run-x/main",
    ]
    assert group.kill_directory == tmp_path / "unified" / "run-x"


def test_controllers_that_are_mounted_together_share_their_groups(tmp_path: Path) -> None:
    place = place_below(tmp_path, "cpu,cpuacct")
    shared = tmp_path / "cpu,cpuacct"
    together = Place(
        mode=Mode.HYBRID, reason="a test", v2=place.v2, v1={"cpu": shared, "pids": shared}
    )

    group = HybridGroup(together, "x", Roots())

    assert len(group.directories) == len(set(group.directories)) == 4
    assert group.entrances() == (
        shared / "run-x" / "main" / "tasks",
        tmp_path / "unified" / "run-x" / "main" / "cgroup.procs",
    )
    assert group.birth_directory() == group.entrances()[-1].parent


def test_a_place_without_v2_is_refused() -> None:
    with pytest.raises(KernelError, match="no v2 here"):
        HybridGroup(Place(mode=Mode.NONE, reason="no v2 here"), "x", Roots())


def test_groups_are_made_once_and_removed_whole(tmp_path: Path) -> None:
    place = place_below(tmp_path, "cpu", "memory")
    group = HybridGroup(place, "x", Roots(sys=tmp_path / "no-sys"))

    group.create()
    made = [directory.is_dir() for directory in group.directories]
    with pytest.raises(KernelError, match="EEXIST"):
        group.create()
    still_there = [directory.is_dir() for directory in group.directories]
    group.remove()
    group.close()

    assert all(made)
    assert all(still_there)
    assert not any(directory.exists() for directory in group.directories)


def test_what_a_missing_controller_takes_away_is_named_with_its_reason(tmp_path: Path) -> None:
    why = "the v1 memory controller is not mounted"
    place = place_below(tmp_path, "cpu", missing={"memory": why, "freezer": "not of interest"})
    group = HybridGroup(place, "x", Roots(sys=tmp_path / "no-sys"))
    group.create()
    (tmp_path / "unified" / "run-x" / "cpu.stat").write_text("usage_usec 5\n")

    group.start()

    for name in ("memory_current_bytes", "memory_anon_bytes", "memory_kernel_bytes", "oom_kills"):
        assert group.unavailable[name] == why
    assert "bandwidth" in group.unavailable["cpu_throttled_usec"]
    assert "PSI" in group.unavailable["cpu_pressure_some_usec"]
    assert "io_read_bytes" in group.unavailable
    assert group.oom_kills() is group.oom_events() is group.oom_alarm() is None
    totals = group.totals()
    assert (totals.cpu_usage_usec, totals.memory_peak_bytes, totals.io) == (0, None, None)
    group.close()


def test_only_freezer_groups_below_our_own_are_let_go(tmp_path: Path) -> None:
    proc, freezer = tmp_path / "proc", tmp_path / "freezer"
    for pid, name in (("self", "/ours"), ("1", "/ours/a/b"), ("2", "/theirs"), ("3", "/ours")):
        (proc / pid).mkdir(parents=True)
        (proc / pid / "cgroup").write_text(f"6:freezer:{name}\n0::/\n")
    for name in ("ours", "ours/a", "ours/a/b", "theirs"):
        (freezer / name).mkdir(parents=True, exist_ok=True)
        (freezer / name / "freezer.state").write_text("FROZEN")

    thaw((1, 2, 3, 4), freezer / "ours", Roots(proc=proc))

    states = {
        name: (freezer / name / "freezer.state").read_text()
        for name in ("ours", "ours/a", "ours/a/b", "theirs")
    }
    assert states == {
        "ours": "FROZEN",
        "ours/a": "THAWED",
        "ours/a/b": "THAWED",
        "theirs": "FROZEN",
    }
    thaw((1,), None, Roots(proc=proc))  # without a freezer there is nothing to do


def test_a_process_that_has_ended_is_not_reached() -> None:
    import subprocess

    with subprocess.Popen(["/bin/true"]) as process:
        process.wait(10)

    assert signal_pids((process.pid,), 0) == 0
