"""The energy counters of the machine: powercap's RAPL zones, which Intel and AMD both have.

A zone counts microjoules and starts again at 0 above its range. Packages are zones of their own;
what is part of one (cores, graphics) or beside it (memory) are zones below. `psys` counts the
whole platform, packages included.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from sandbox.errors import KernelError
from sandbox.kernel.files import KeptFile, read_text
from sandbox.kernel.host import NO_ENERGY
from sandbox.kernel.parse import parse_number
from sandbox.kernel.roots import Roots
from sandbox.records.light import dataclass

# The same packages may show twice: by model-specific registers and, on laptops, by MMIO.
_ZONE_PREFIX = "intel-rapl:"
_PACKAGE = "package"

NOT_READABLE = "only root may read the energy counters: see `sandbox doctor energy`"


@dataclass(frozen=True, kw_only=True)
class Zone:
    """One counter."""

    name: str
    """`package-0`; what is below a package has its name before: `package-0/dram`."""
    file: Path
    range_uj: int
    """The counter starts again at 0 after this."""
    is_package: bool


@dataclass(frozen=True, kw_only=True)
class Zones:
    """The counters that can be read, or why there are none."""

    zones: tuple[Zone, ...] = ()
    reason: str | None = None
    is_refused: bool = False
    """Whether there are some that this user may not read."""


def find_zones(roots: Roots) -> Zones:
    """Return the machine's energy counters."""
    directory = roots.sys / "class" / "powercap"
    try:
        names = sorted(name for name in os.listdir(directory) if name.startswith(_ZONE_PREFIX))  # noqa: PTH208 - names are all that is needed
    except OSError:
        return Zones(reason=NO_ENERGY)
    zones: list[Zone] = []
    refused = False
    for name in names:
        try:
            zones.append(_look(directory / name, zones))
        except KernelError as error:
            refused = refused or error.errno in {errno.EACCES, errno.EPERM}
    if any(zone.is_package for zone in zones):
        return Zones(zones=tuple(zones))
    return Zones(reason=NOT_READABLE if refused else NO_ENERGY, is_refused=refused)


def _look(zone: Path, found: list[Zone]) -> Zone:
    """Return one zone; raise KernelError where it cannot be read."""
    name = read_text(zone / "name").strip()
    range_uj = parse_number(read_text(zone / "max_energy_range_uj"))
    parse_number(read_text(zone / "energy_uj"))
    above = next(
        (one for one in found if one.file.parent.name == zone.name.rpartition(":")[0]), None
    )
    return Zone(
        name=name if above is None else f"{above.name}/{name}",
        file=zone / "energy_uj",
        range_uj=range_uj,
        is_package=above is None and name.startswith(_PACKAGE),
    )


class ZoneReader:
    """Reads zones through descriptors that stay open; about 5 µs each."""

    def __init__(self, zones: tuple[Zone, ...]) -> None:
        """Open every zone.

        Raises:
            KernelError: one cannot be opened.
        """
        self._files: list[KeptFile] = []
        try:
            for zone in zones:
                self._files.append(KeptFile(zone.file))
        except KernelError:
            self.close()
            raise

    def read(self) -> list[int]:
        """Return the counters in the order of the zones.

        Raises:
            KernelError: one cannot be read any more.
        """
        return [parse_number(file.read()) for file in self._files]

    def close(self) -> None:
        """Close the descriptors; again is harmless."""
        for file in self._files:
            file.close()
