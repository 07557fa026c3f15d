"""The limits that no control file holds: the supervisor keeps them itself."""

from __future__ import annotations

from collections.abc import Iterator

from sandbox.records.limits import LimitReport, LimitState
from sandbox.spec import Limits
from sandbox.units import format_duration

_NS_PER_USEC = 1_000


def supervised_limits(limits: Limits) -> Iterator[LimitReport]:
    """Yield what becomes of the limits on wall-clock and CPU time."""
    if limits.timeout_ns is not None:
        yield LimitReport(
            name="timeout",
            asked=format_duration(limits.timeout_ns),
            state=LimitState.ENFORCED,
            file="a timer of the supervisor",
            value=str(limits.timeout_ns),
        )
    if limits.cpu_time_usec is not None:
        yield LimitReport(
            name="cpu_time",
            asked=format_duration(limits.cpu_time_usec * _NS_PER_USEC),
            state=LimitState.ENFORCED,
            file="the group's CPU counter, read when the limit can be reached",
            value=str(limits.cpu_time_usec),
        )
