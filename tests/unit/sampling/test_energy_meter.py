"""The machine's energy while a run lasts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.kernel.energy import find_zones
from sandbox.kernel.roots import Roots
from sandbox.records.result import EnergyUse, Totals
from sandbox.sampling.energy import EnergyMeter
from sandbox.sampling.loop import Loop

RANGE_UJ = 65_532_610_987
SEC = 10**9


class Machine:
    """A package and the memory beside it."""

    def __init__(self, base: Path) -> None:
        self.roots = Roots(sys=base)
        self.now_ns = 0
        self.files = []
        for place, name in (("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "dram")):
            directory = base / "class/powercap" / place
            directory.mkdir(parents=True)
            (directory / "name").write_text(name)
            (directory / "max_energy_range_uj").write_text(str(RANGE_UJ))
            self.files.append(directory / "energy_uj")
        self.counts(1_000, 100)

    def counts(self, package: int, dram: int) -> None:
        for file, value in zip(self.files, (package, dram), strict=True):
            file.write_text(f"{value % RANGE_UJ}\n")

    def clock(self) -> int:
        return self.now_ns

    def meter(self) -> EnergyMeter:
        return EnergyMeter(find_zones(self.roots), self.clock)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_energy_is_counted_from_the_start_and_only_packages_are_summed(machine: Machine) -> None:
    meter = machine.meter()
    machine.counts(6_000, 400)
    meter.read()

    totals = meter.add_to(Totals(cpu_usage_usec=1))

    assert (totals.cpu_usage_usec, totals.energy_uj) == (1, 5_000)
    assert totals.energy == (
        EnergyUse(domain="package-0", energy_uj=5_000),
        EnergyUse(domain="package-0/dram", energy_uj=300),
    )
    assert meter.unavailable == {}
    meter.close()


def test_a_counter_that_starts_again_between_readings_is_followed(machine: Machine) -> None:
    meter = machine.meter()
    for step in range(1, 6):
        machine.now_ns = step * 30 * SEC
        machine.counts(1_000 + step * (RANGE_UJ // 2), 100)
        meter.read()

    assert meter.add_to(Totals()).energy_uj == 5 * (RANGE_UJ // 2)
    meter.close()


def test_a_pause_in_which_it_could_have_started_again_twice_is_not_guessed(
    machine: Machine,
) -> None:
    meter = machine.meter()
    machine.now_ns = 66 * SEC  # at a kilowatt, more than the range
    machine.counts(5_000, 500)
    meter.read()

    assert meter.add_to(Totals()) == Totals()
    assert "stopped for so long" in meter.unavailable["energy_uj"]
    meter.read()  # it stays so
    assert meter.add_to(Totals()) == Totals()


def test_a_counter_that_vanishes_makes_energy_unavailable(machine: Machine) -> None:
    meter = machine.meter()
    machine.files[1].write_text("broken")
    meter.read()

    assert meter.add_to(Totals()).energy_uj is None
    assert "a number" in meter.unavailable["energy_uj"]


def test_without_counters_it_says_why(tmp_path: Path) -> None:
    meter = EnergyMeter(find_zones(Roots(sys=tmp_path)))
    meter.read()

    assert "no powercap" in meter.unavailable["energy_uj"]
    assert meter.add_to(Totals()) == Totals()
    meter.close()


@pytest.fixture
def loop() -> Iterator[Loop]:
    one = Loop()
    yield one
    one.close()


def test_on_a_loop_it_is_read_as_often_as_the_smallest_range_wants(
    machine: Machine, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(loop, "every", lambda interval_ns, _call: asked.append(interval_ns))

    meter = EnergyMeter.start(machine.roots, loop)

    assert asked == [RANGE_UJ * SEC // 10**9 // 2]
    assert 30 * SEC < asked[0] < 33 * SEC
    meter.close()


def test_on_a_loop_without_counters_nothing_ticks(tmp_path: Path, loop: Loop) -> None:
    meter = EnergyMeter.start(Roots(sys=tmp_path), loop)

    assert loop._tickers == []
    assert meter.unavailable
