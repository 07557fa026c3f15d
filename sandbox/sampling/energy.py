"""The machine's energy while a run lasts: the counters are read seldom, but before they wrap twice.

They count the whole machine, whatever else runs on it: no counter tells one program from another.
"""

from __future__ import annotations

from typing import Self

from sandbox.analysis.energy import energy_between, longest_gap_ns, reading_interval_ns
from sandbox.errors import KernelError
from sandbox.kernel.energy import ZoneReader, Zones, find_zones
from sandbox.kernel.roots import Roots
from sandbox.records.light import replace
from sandbox.records.result import EnergyUse, Totals
from sandbox.sampling.clock import Clock, monotonic
from sandbox.sampling.loop import Loop

METRIC = "energy_uj"

_STOPPED = "the supervisor was stopped for so long that the energy counters may have wrapped twice"


class EnergyMeter:
    """Sums what each counter has counted since the start."""

    def __init__(self, found: Zones, clock: Clock = monotonic) -> None:
        """Count from now on; without counters `unavailable` says why there are none."""
        self.unavailable: dict[str, str] = {}
        self._zones = found.zones
        self._clock = clock
        self._reader: ZoneReader | None = None
        self._sums_uj = [0] * len(found.zones)
        self._last_uj: list[int] = []
        self._last_ns = 0
        if found.reason is not None:
            self._give_up(found.reason)
            return
        try:
            self._reader = ZoneReader(found.zones)
            self._last_ns = clock()
            self._last_uj = self._reader.read()
        except KernelError as error:
            self._give_up(str(error))

    @classmethod
    def start(cls, roots: Roots, loop: Loop) -> Self:
        """Count from now on, and read on the loop as often as the smallest range wants."""
        meter = cls(find_zones(roots))
        if meter._zones and not meter.unavailable:
            interval_ns = min(reading_interval_ns(zone.range_uj) for zone in meter._zones)
            loop.every(interval_ns, lambda _expirations: meter.read())
        return meter

    def read(self) -> None:
        """Take another reading into the sums."""
        if self._reader is None:
            return
        now_ns = self._clock()
        try:
            now_uj = self._reader.read()
        except KernelError as error:
            self._give_up(str(error))
            return
        gap_ns = now_ns - self._last_ns
        if any(gap_ns > longest_gap_ns(zone.range_uj) for zone in self._zones):
            self._give_up(_STOPPED)
            return
        for place, zone in enumerate(self._zones):
            self._sums_uj[place] += energy_between(
                self._last_uj[place], now_uj[place], zone.range_uj
            )
        self._last_uj, self._last_ns = now_uj, now_ns

    def _give_up(self, why: str) -> None:
        self.unavailable = {METRIC: why}
        self.close()

    def sums_uj(self) -> tuple[int, ...] | None:
        """Return what each zone has counted by the last reading; None if that is not known."""
        return None if self.unavailable else tuple(self._sums_uj)

    def add_to(self, totals: Totals, since_uj: tuple[int, ...] | None = None) -> Totals:
        """Return totals with the energy up to the last reading, from the start or `since_uj`."""
        if self.unavailable:
            return totals
        base = since_uj or (0,) * len(self._zones)
        used = [now - then for now, then in zip(self._sums_uj, base, strict=True)]
        packages = [uj for zone, uj in zip(self._zones, used, strict=True) if zone.is_package]
        return replace(
            totals,
            energy_uj=sum(packages),
            energy=tuple(
                EnergyUse(domain=zone.name, energy_uj=uj)
                for zone, uj in zip(self._zones, used, strict=True)
            ),
        )

    def close(self) -> None:
        """Close the descriptors; again is harmless."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
