"""What a phase of a run used, from the run's totals at its two ends.

A kernel that can start peaks anew tells each phase's own. Others keep the largest so far: if it
has risen during a phase, it was reached in that phase and is exact; if not, samples stand in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sandbox.records.light import replace
from sandbox.records.result import DeviceIo, EnergyUse, NetworkIo, Pressure, Totals

_COUNTERS = (
    "cpu_usage_usec",
    "cpu_user_usec",
    "cpu_system_usec",
    "cpu_periods",
    "cpu_throttled_periods",
    "cpu_throttled_usec",
    "oom_events",
    "oom_kills",
    "limit_hits",
    "pids_refused",
    "energy_uj",
)
_TRAFFIC = (
    "rx_bytes",
    "tx_bytes",
    "rx_packets",
    "tx_packets",
    "rx_errors",
    "tx_errors",
    "rx_dropped",
    "tx_dropped",
)
_KERNEL, _SAMPLED = "kernel", "sampled"


def phase_totals(
    before: Totals | None,
    after: Totals,
    *,
    peaks: tuple[int | None, int | None],
    sampled: Mapping[str, int],
) -> Totals:
    """Return what was used between two readings of a run's totals.

    Args:
        before: At the phase's beginning; None where that is the run's own.
        after: At its end.
        peaks: Of memory and swap in this phase alone, where the kernel tells them.
        sampled: The largest sample in this phase, by column.
    """
    then = before or Totals()
    is_first = before is None
    counters = {name: _grown(then, after, name, is_first=is_first) for name in _COUNTERS}
    memory, source = _memory_peak(then, after, peaks[0], sampled)
    return replace(
        Totals(),
        **counters,
        memory_peak_bytes=memory,
        memory_peak_source=source,
        swap_peak_bytes=_peak(then.swap_peak_bytes, after.swap_peak_bytes, peaks[1]),
        pids_peak=_peak(then.pids_peak, after.pids_peak, None, sampled.get("pids")),
        io=_io(then.io, after.io, is_first=is_first),
        network=_network(then.network, after.network, is_first=is_first),
        cpu_pressure=_pressure(then.cpu_pressure, after.cpu_pressure, is_first=is_first),
        memory_pressure=_pressure(then.memory_pressure, after.memory_pressure, is_first=is_first),
        io_pressure=_pressure(then.io_pressure, after.io_pressure, is_first=is_first),
        energy=_energy(then.energy, after.energy, is_first=is_first),
    )


def _grown(before: Totals, after: Totals, name: str, *, is_first: bool) -> int | None:
    return _difference(getattr(before, name), getattr(after, name), is_first=is_first)


def _difference(before: int | None, now: int | None, *, is_first: bool) -> int | None:
    """Return how much a counter has grown; sums over processes may lag, but no use is negative."""
    if now is None or (before is None and not is_first):
        return None
    return max(0, now - (before or 0))


def _memory_peak(
    before: Totals, after: Totals, own: int | None, sampled: Mapping[str, int]
) -> tuple[int | None, str | None]:
    is_exact = after.memory_peak_source == _KERNEL
    exact = _peak(before.memory_peak_bytes, after.memory_peak_bytes, own) if is_exact else own
    if exact is not None:
        return exact, _KERNEL
    value = sampled.get("memory_current_bytes", after.memory_peak_bytes)
    return value, None if value is None else _SAMPLED


def _peak(
    before: int | None, now: int | None, own: int | None, sampled: int | None = None
) -> int | None:
    """Return a phase's own peak, or the run's if it has risen in this phase, or the samples'."""
    if own is not None:
        return own
    if now is not None and now > (before or 0):
        return now
    return sampled


def _io(
    before: Iterable[DeviceIo] | None, now: Iterable[DeviceIo] | None, *, is_first: bool
) -> tuple[DeviceIo, ...] | None:
    if now is None or (before is None and not is_first):
        return None
    then = {device.device: device for device in before or ()}
    devices = (_device_io(then.get(device.device), device) for device in now)
    return tuple(device for device in devices if device is not None)


def _device_io(before: DeviceIo | None, now: DeviceIo) -> DeviceIo | None:
    """Return what was moved since, or None if nothing was."""
    if before is None:
        return now
    moved = DeviceIo(
        device=now.device,
        read_bytes=max(0, now.read_bytes - before.read_bytes),
        write_bytes=max(0, now.write_bytes - before.write_bytes),
        read_ops=max(0, now.read_ops - before.read_ops),
        write_ops=max(0, now.write_ops - before.write_ops),
    )
    is_moved = moved.read_ops or moved.write_ops or moved.read_bytes or moved.write_bytes
    return moved if is_moved else None


def _network(
    before: Iterable[NetworkIo] | None, now: Iterable[NetworkIo] | None, *, is_first: bool
) -> tuple[NetworkIo, ...] | None:
    if now is None or (before is None and not is_first):
        return None
    return traffic_between(before or (), now)


def traffic_between(before: Iterable[NetworkIo], now: Iterable[NetworkIo]) -> tuple[NetworkIo, ...]:
    """Return what passed each interface meanwhile; one that is new counts from its making."""
    then = {port.name: port for port in before}
    return tuple(_passed(then[port.name], port) if port.name in then else port for port in now)


def _passed(before: NetworkIo, now: NetworkIo) -> NetworkIo:
    grown: dict[str, Any] = {}
    for name in _TRAFFIC:
        first, last = getattr(before, name), getattr(now, name)
        grown[name] = None if first is None or last is None else max(0, last - first)
    return replace(now, **grown)


def _pressure(before: Pressure | None, now: Pressure | None, *, is_first: bool) -> Pressure | None:
    if now is None or (before is None and not is_first):
        return None
    some = _difference(before.some_usec if before else None, now.some_usec, is_first=is_first)
    full = _difference(before.full_usec if before else None, now.full_usec, is_first=is_first)
    return None if some is None else Pressure(some_usec=some, full_usec=full)


def _energy(
    before: Iterable[EnergyUse] | None, now: Iterable[EnergyUse] | None, *, is_first: bool
) -> tuple[EnergyUse, ...] | None:
    if now is None or (before is None and not is_first):
        return None
    then = {use.domain: use.energy_uj for use in before or ()}
    return tuple(
        EnergyUse(domain=use.domain, energy_uj=max(0, use.energy_uj - then.get(use.domain, 0)))
        for use in now
    )
