"""Two samples to rates: counters become speeds, gauges are passed on."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.records.light import dataclass
from sandbox.records.sample import ABSENT, COLUMNS, TIME, Kind
from sandbox.units import NS_PER_SEC, USEC_PER_SEC


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What one group used between two samples; None is a column that the host does not give."""

    end_ns: int
    elapsed_ns: int
    cpus: float | None
    """CPUs: 1.0 is one full CPU for the whole interval."""
    memory_bytes: int | None
    """At the end of the interval."""
    pids: int | None
    """At the end of the interval."""
    io_read_bytes_per_sec: float | None
    io_write_bytes_per_sec: float | None
    io_read_ops_per_sec: float | None
    io_write_ops_per_sec: float | None


def rate_per_sec(before: int, after: int, elapsed_ns: int) -> float | None:
    """Return how fast a counter grew, in its unit per second, or None if it cannot be told.

    A counter that went down belongs to a group that was made anew: there is no rate to give.
    """
    if elapsed_ns <= 0 or ABSENT in {before, after} or after < before:
        return None
    return (after - before) * NS_PER_SEC / elapsed_ns


def usage_between(
    columns: Sequence[str], before: Sequence[int], after: Sequence[int]
) -> Usage | None:
    """Return the rates between two rows of one table, `columns` being their names.

    None if no time passed between them, or if any counter went down.
    """
    first, last = dict(zip(columns, before, strict=True)), dict(zip(columns, after, strict=True))
    elapsed_ns = last[TIME] - first[TIME]
    if elapsed_ns <= 0 or any(_went_down(name, first[name], last[name]) for name in columns):
        return None

    def rate(name: str) -> float | None:
        return rate_per_sec(first.get(name, ABSENT), last.get(name, ABSENT), elapsed_ns)

    busy_usec_per_sec = rate("cpu_usage_usec")
    return Usage(
        end_ns=last[TIME],
        elapsed_ns=elapsed_ns,
        cpus=None if busy_usec_per_sec is None else busy_usec_per_sec / USEC_PER_SEC,
        memory_bytes=_present(last.get("memory_current_bytes")),
        pids=_present(last.get("pids")),
        io_read_bytes_per_sec=rate("io_read_bytes"),
        io_write_bytes_per_sec=rate("io_write_bytes"),
        io_read_ops_per_sec=rate("io_read_ops"),
        io_write_ops_per_sec=rate("io_write_ops"),
    )


def _went_down(name: str, before: int, after: int) -> bool:
    return COLUMNS[name].kind is Kind.COUNTER and ABSENT != after < before


def _present(value: int | None) -> int | None:
    return None if value == ABSENT else value
