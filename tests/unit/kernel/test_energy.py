"""The machine's energy counters, in directories like powercap's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import KernelError
from sandbox.kernel.energy import NOT_READABLE, ZoneReader, find_zones
from sandbox.kernel.host import NO_ENERGY, has_energy_counters
from sandbox.kernel.roots import Roots

RANGE = "262143328850"


def zone(roots: Roots, place: str, name: str, energy: int, range_uj: str = RANGE) -> Path:
    directory = roots.sys / "class/powercap" / place
    directory.mkdir(parents=True)
    for file, text in (
        ("name", name),
        ("max_energy_range_uj", range_uj),
        ("energy_uj", str(energy)),
    ):
        (directory / file).write_text(f"{text}\n")
    return directory / "energy_uj"


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    return Roots(sys=tmp_path)


def test_a_machine_without_powercap_says_so(roots: Roots) -> None:
    found = find_zones(roots)

    assert (found.zones, found.reason, found.is_refused) == ((), NO_ENERGY, False)
    assert not has_energy_counters(roots)


def test_a_server_with_two_packages_and_their_parts(roots: Roots) -> None:
    (roots.sys / "class/powercap/intel-rapl").mkdir(parents=True)
    zone(roots, "intel-rapl:0", "package-0", 5)
    zone(roots, "intel-rapl:0:0", "dram", 1, "65712999613")
    zone(roots, "intel-rapl:1", "package-1", 7)
    zone(roots, "intel-rapl:1:0", "dram", 2)

    found = find_zones(roots)

    assert [(one.name, one.is_package) for one in found.zones] == [
        ("package-0", True),
        ("package-0/dram", False),
        ("package-1", True),
        ("package-1/dram", False),
    ]
    assert found.zones[1].range_uj == 65_712_999_613
    assert found.reason is None
    assert has_energy_counters(roots)


def test_a_laptop_whose_package_shows_twice_and_whose_platform_counts_it_too(roots: Roots) -> None:
    zone(roots, "intel-rapl-mmio:0", "package-0", 5)
    zone(roots, "intel-rapl:0", "package-0", 5)
    zone(roots, "intel-rapl:0:0", "core", 3)
    zone(roots, "intel-rapl:1", "psys", 9)

    zones = find_zones(roots).zones

    assert [one.name for one in zones if one.is_package] == ["package-0"]
    assert [one.name for one in zones] == ["package-0", "package-0/core", "psys"]


def test_a_package_of_several_dies(roots: Roots) -> None:
    zone(roots, "intel-rapl:0", "package-0-die-0", 5)
    zone(roots, "intel-rapl:1", "package-0-die-1", 5)

    assert [one.is_package for one in find_zones(roots).zones] == [True, True]


def test_counters_of_root_alone_are_told_apart_from_none(roots: Roots, monkeypatch: Any) -> None:
    counter = zone(roots, "intel-rapl:0", "package-0", 5)
    really = os.open

    def refuse(path: Any, *arguments: Any, **more: Any) -> int:
        if os.fspath(path) == os.fspath(counter):
            raise PermissionError(13, "Permission denied", str(path))
        return really(path, *arguments, **more)

    monkeypatch.setattr(os, "open", refuse)

    found = find_zones(roots)

    assert (found.zones, found.reason, found.is_refused) == ((), NOT_READABLE, True)
    assert "doctor energy" in NOT_READABLE


def test_an_empty_powercap_as_containers_have_it_is_none(roots: Roots) -> None:
    (roots.sys / "class/powercap/intel-rapl:0").mkdir(parents=True)

    assert find_zones(roots).reason == NO_ENERGY


@pytest.mark.parametrize("text", ["", "many", "-5", "1.5"])
def test_a_counter_that_is_no_number_is_left_out(roots: Roots, text: str) -> None:
    zone(roots, "intel-rapl:0", "package-0", 5).write_text(text)

    assert find_zones(roots).zones == ()


def test_zones_are_read_through_kept_descriptors(roots: Roots) -> None:
    files = [zone(roots, f"intel-rapl:{i}", f"package-{i}", 10 * i) for i in range(2)]
    reader = ZoneReader(find_zones(roots).zones)
    assert reader.read() == [0, 10]

    files[0].write_text("77\n")
    assert reader.read() == [77, 10]

    reader.close()
    reader.close()
    with pytest.raises(KernelError):
        reader.read()


def test_a_zone_that_vanished_leaves_no_descriptor_open(roots: Roots) -> None:
    zone(roots, "intel-rapl:0", "package-0", 5)
    gone = zone(roots, "intel-rapl:1", "package-1", 5)
    zones = find_zones(roots).zones
    gone.unlink()
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are all that is needed

    with pytest.raises(KernelError, match="energy_uj"):
        ZoneReader(zones)

    assert set(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - likewise
