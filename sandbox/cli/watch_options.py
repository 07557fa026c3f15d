"""The flags that `stats` and `top` share: whom to watch, and how often."""

from __future__ import annotations

from typing import Annotated

import typer

from sandbox.errors import SpecError
from sandbox.units import NS_PER_SEC, parse_duration

_MIN_INTERVAL_NS = NS_PER_SEC // 100
_MAX_INTERVAL_NS = 3_600 * NS_PER_SEC


def parse_interval(text: str) -> int:
    """Return nanoseconds between two readings."""
    interval_ns = parse_duration(text)
    if not _MIN_INTERVAL_NS <= interval_ns <= _MAX_INTERVAL_NS:
        raise SpecError(f"`{text}` is not an interval", hint="give one between 10ms and 1h")
    return interval_ns


Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME|ID]...", show_default=False, help="All that run unless given."),
]
Cgroups = Annotated[
    list[str] | None,
    typer.Option(
        "--cgroup",
        metavar="PATH",
        show_default=False,
        help="Any other cgroup: a service, a container, a pod. Can be given again.",
    ),
]
Interval = Annotated[
    int | None,
    typer.Option(
        "--interval",
        metavar="DURATION",
        parser=parse_interval,
        show_default=False,
        help="How often to read: 10ms to 1h; 1s unless given.",
    ),
]
