"""The run's clock: a callable, so that tests can pass their own."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Returns nanoseconds that only grow, whatever happens to the wall clock."""

monotonic: Clock = time.monotonic_ns


def utc_ns() -> int:
    """Return the wall clock, for labels only; never for durations."""
    return time.time_ns()
