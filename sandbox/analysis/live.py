"""Two readings of a live group to what it does right now: shares and rates over the time between.

Docker's own formulas are in `docker`; these go by the wall clock.
"""

from __future__ import annotations

from sandbox.analysis.docker import wall_cpu_percent
from sandbox.records.light import dataclass
from sandbox.records.result import HOST_PORT, Pressure
from sandbox.records.stats import StatsReading, StatsRow
from sandbox.units import NS_PER_SEC

_NS_PER_USEC = 1_000


@dataclass(frozen=True, kw_only=True)
class LiveUsage:
    """What a group did between two readings; None is what cannot be told."""

    elapsed_ns: int
    cpu_percent: float | None
    """By the wall clock: 100 is one CPU."""
    cpu_of_limit_percent: float | None
    """Of the CPUs that it may use: 100 is all of them."""
    throttled_percent: float | None
    """Share of the enforcement periods in which the quota was used up."""
    cpu_pressure_percent: float | None
    """PSI: share of the time in which some task waited for a CPU; and so on."""
    memory_pressure_percent: float | None
    io_pressure_percent: float | None
    read_bytes_per_sec: float | None
    write_bytes_per_sec: float | None
    read_ops_per_sec: float | None
    write_ops_per_sec: float | None


def live_usage(row: StatsRow) -> LiveUsage | None:
    """Return the rates of a row, or None before its second reading.

    A counter that went down belongs to a group that was made anew: its rate is None.
    """
    now, before = row.now, row.before
    if now is None or before is None or now.time_ns <= before.time_ns:
        return None
    elapsed_ns = now.time_ns - before.time_ns
    busy_ns = growth(before.cpu_usage_ns, now.cpu_usage_ns)
    percent = None if busy_ns is None else wall_cpu_percent(busy_ns, elapsed_ns)
    base = cpus_in_force(row)
    rates = [_per_sec(grown, elapsed_ns) for grown in _io_growth(before, now)]
    return LiveUsage(
        elapsed_ns=elapsed_ns,
        cpu_percent=percent,
        cpu_of_limit_percent=None if percent is None or not base else percent / base,
        throttled_percent=_throttled_percent(before, now),
        cpu_pressure_percent=_stalled(before.cpu_pressure, now.cpu_pressure, elapsed_ns),
        memory_pressure_percent=_stalled(before.memory_pressure, now.memory_pressure, elapsed_ns),
        io_pressure_percent=_stalled(before.io_pressure, now.io_pressure, elapsed_ns),
        read_bytes_per_sec=rates[0],
        write_bytes_per_sec=rates[1],
        read_ops_per_sec=rates[2],
        write_ops_per_sec=rates[3],
    )


def cpus_in_force(row: StatsRow) -> float | None:
    """Return how many CPUs a group may use: its quota, its cpuset or the host's, the least."""
    bounds: list[float] = []
    if row.cpu_quota_usec is not None and row.cpu_period_usec:
        bounds.append(row.cpu_quota_usec / row.cpu_period_usec)
    if row.cpus_allowed is not None:
        bounds.append(row.cpus_allowed)
    if row.now is not None and row.now.cpus_online:
        bounds.append(row.now.cpus_online)
    return min(bounds, default=None)


def whose_network(row: StatsRow) -> str | None:
    """Return `own`, `host` for one that is shared with the host, or None where it is unknown."""
    if row.now is None or row.now.network is None:
        return None
    if any(port.name == HOST_PORT for port in row.now.network):
        return "host"
    # Without an interface it is the host's only if whoever has looked says so.
    return "host" if not row.now.network and "network" in row.unavailable else "own"


def growth(before: int | None, after: int | None) -> int | None:
    """Return how much a counter grew, or None if that cannot be told."""
    if before is None or after is None or after < before:
        return None
    return after - before


def _per_sec(grown: int | None, elapsed_ns: int) -> float | None:
    return None if grown is None else grown * NS_PER_SEC / elapsed_ns


def _throttled_percent(before: StatsReading, now: StatsReading) -> float | None:
    periods = growth(before.cpu_periods, now.cpu_periods)
    throttled = growth(before.cpu_throttled_periods, now.cpu_throttled_periods)
    if periods is None or throttled is None:
        return None
    return throttled / periods * 100.0 if periods else 0.0


def _stalled(before: Pressure | None, now: Pressure | None, elapsed_ns: int) -> float | None:
    if before is None or now is None:
        return None
    grown = growth(before.some_usec, now.some_usec)
    return None if grown is None else min(grown * _NS_PER_USEC / elapsed_ns * 100.0, 100.0)


def _io_growth(before: StatsReading, now: StatsReading) -> list[int | None]:
    """Return bytes and requests, read and written, over all devices.

    A device that was not there before has all of its counters new.
    """
    if before.io is None or now.io is None:
        return [None] * 4
    known = {device.device: device for device in before.io}
    sums = [0, 0, 0, 0]
    for device in now.io:
        first = known.get(device.device)
        for index, name in enumerate(("read_bytes", "write_bytes", "read_ops", "write_ops")):
            grown = growth(0 if first is None else getattr(first, name), getattr(device, name))
            if grown is None:
                return [None] * 4
            sums[index] += grown
    return [*sums]
