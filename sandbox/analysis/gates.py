"""Gates: what a run may need at most, judged when it has ended; it is not held to it meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

from sandbox.records.light import dataclass
from sandbox.units import format_duration, format_size

_NS_PER_USEC = 1_000


@dataclass(frozen=True, kw_only=True)
class Gates:
    """The most that is accepted; None where everything is."""

    peak_bytes: int | None = None
    time_ns: int | None = None
    cpu_time_ns: int | None = None


def failed_gates(
    gates: Gates,
    *,
    peak_bytes: int | None,
    wall_ns: int | None,
    cpu_time_usec: int | None = None,
) -> tuple[str, ...]:
    """Return a sentence for each gate that is not passed.

    What was not measured does not pass: nobody knows that it was small enough.
    """
    return tuple(_failed(gates, peak_bytes, wall_ns, cpu_time_usec))


def _failed(
    gates: Gates, peak_bytes: int | None, wall_ns: int | None, cpu_time_usec: int | None
) -> Iterator[str]:
    cpu_ns = None if cpu_time_usec is None else cpu_time_usec * _NS_PER_USEC
    for flag, what, value, bound, write in (
        ("--max-peak", "memory peak", peak_bytes, gates.peak_bytes, format_size),
        ("--max-time", "wall time", wall_ns, gates.time_ns, format_duration),
        ("--max-cpu-time", "CPU time", cpu_ns, gates.cpu_time_ns, format_duration),
    ):
        if bound is None:
            continue
        if value is None:
            yield f"the {what} was not measured, so {flag} {write(bound)} is not passed"
        elif value > bound:
            yield f"the {what} of {write(value)} is above {flag} {write(bound)}"
