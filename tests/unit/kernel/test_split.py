"""Starting peaks anew between phases, in directories that stand in for groups."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sandbox.kernel import unified
from sandbox.kernel.hybrid import HybridGroup
from sandbox.kernel.place import Place
from sandbox.kernel.roots import Roots
from sandbox.kernel.unified import UnifiedGroup
from sandbox.kernel.unified_totals import PeakFile
from sandbox.records.host import Mode

FIXTURES = Path(__file__).parents[2] / "fixtures" / "kernel"


class KernelPeak:
    """A peak file as Linux 6.12 has it: each descriptor has a peak of its own."""

    now: dict[str, int]
    can_restart = True
    opened: list[KernelPeak]

    def __init__(self, path: Path | str) -> None:
        self.name = Path(path).name
        self.base: int | None = None
        self.is_open = True
        self.largest = 0
        KernelPeak.opened.append(self)

    def restart(self) -> bool:
        if not (self.is_open and KernelPeak.can_restart):
            return False
        KernelPeak.now[self.name] = 0  # what is reached from here on
        self.base = 0
        return True

    def read(self) -> int | None:
        if not self.is_open:
            return None
        self.largest = max(self.largest, KernelPeak.now[self.name])
        return KernelPeak.now[self.name]

    def close(self) -> None:
        self.is_open = False


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UnifiedGroup:
    run = tmp_path / "run-x"
    shutil.copytree(FIXTURES / "v2/cgroup/capture", run)
    place = Place(mode=Mode.UNIFIED, reason="a test", v2=tmp_path, v2_top=tmp_path)
    KernelPeak.now = {"memory.peak": 0, "memory.swap.peak": 0}
    KernelPeak.can_restart, KernelPeak.opened = True, []
    monkeypatch.setattr(unified, "PeakFile", KernelPeak)
    one = UnifiedGroup(place, "x", Roots(cgroup=tmp_path, sys=tmp_path / "sys"))
    one.start()
    return one


def reach(memory: int, swap: int = 0) -> None:
    KernelPeak.now.update({"memory.peak": memory, "memory.swap.peak": swap})


def test_the_first_phases_peak_is_the_runs(group: UnifiedGroup) -> None:
    reach(500, 50)

    split = group.split()

    assert (split.memory_peak_bytes, split.swap_peak_bytes) == (500, 50)
    assert split.totals.memory_peak_bytes == 500


def test_later_phases_have_descriptors_of_their_own(group: UnifiedGroup) -> None:
    reach(500)
    group.split()
    reach(40, 4)

    split = group.split()

    assert (split.memory_peak_bytes, split.swap_peak_bytes) == (40, 4)
    assert len(KernelPeak.opened) == 4  # the run's two and the phases' two
    group.close()
    assert not any(peak.is_open for peak in KernelPeak.opened)


def test_the_runs_peak_is_at_least_that_of_any_phase(
    group: UnifiedGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two CPUs may race for the kernel's peaks, and each descriptor's is another one."""
    reach(500)
    group.split()
    run, _, _, _ = KernelPeak.opened
    monkeypatch.setattr(run, "read", lambda: 500)
    reach(504)

    second = group.split()
    reach(40)

    assert second.memory_peak_bytes == second.totals.memory_peak_bytes == 504
    assert group.totals().memory_peak_bytes == 504
    group.close()


def test_a_kernel_that_cannot_start_anew_tells_no_phases_peak(group: UnifiedGroup) -> None:
    KernelPeak.can_restart = False
    reach(500)
    first = group.split()
    reach(600)
    second = group.split()

    assert first.memory_peak_bytes == 500  # from the run's start on
    assert second.memory_peak_bytes is second.swap_peak_bytes is None
    assert second.totals.memory_peak_bytes == 600
    group.close()


def test_the_real_file_says_whether_it_was_started_anew(tmp_path: Path) -> None:
    file = tmp_path / "memory.peak"
    file.write_text("77\n")
    peak = PeakFile(file)
    assert peak.read() == 77
    assert peak.restart()
    assert peak.read() == 0
    assert peak.largest == 77
    peak.close()

    assert not peak.restart()
    assert peak.read() is None
    assert not PeakFile(tmp_path / "lacking").restart()


# --- v1


@pytest.fixture
def hybrid(tmp_path: Path) -> HybridGroup:
    for name, captured in (("memory", "memory"), ("unified", "unified")):
        (tmp_path / name).mkdir()
        shutil.copytree(FIXTURES / "hybrid/run" / captured, tmp_path / name / "run-x")
    place = Place(
        mode=Mode.HYBRID,
        reason="a test",
        v2=tmp_path / "unified",
        v2_top=tmp_path / "unified",
        v1={"memory": tmp_path / "memory"},
    )
    group = HybridGroup(place, "x", Roots(sys=tmp_path / "sys"))
    group.start()
    return group


def test_v1_starts_its_one_peak_anew_and_the_runs_stays_the_largest(
    hybrid: HybridGroup, tmp_path: Path
) -> None:
    peak = tmp_path / "memory/run-x/memory.max_usage_in_bytes"
    seen = []
    for reached in (300, 900, 100):
        peak.write_text(f"{reached}\n")
        split = hybrid.split()
        seen.append((split.memory_peak_bytes, split.totals.memory_peak_bytes))
        assert int(peak.read_text()) == 0

    assert seen == [(300, 300), (900, 900), (100, 900)]
    peak.write_text("5\n")
    assert hybrid.totals().memory_peak_bytes == 900


def test_v1_without_a_memory_controller_has_no_peak(tmp_path: Path) -> None:
    (tmp_path / "unified").mkdir()
    shutil.copytree(FIXTURES / "hybrid/run/unified", tmp_path / "unified/run-x")
    place = Place(mode=Mode.HYBRID, reason="a test", v2=tmp_path / "unified")
    group = HybridGroup(place, "x", Roots(sys=tmp_path / "sys"))
    group.start()

    split = group.split()

    assert split.memory_peak_bytes is split.totals.memory_peak_bytes is None
