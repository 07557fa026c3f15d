"""What the search for the smallest sufficient limit has tried and found."""

from __future__ import annotations

from enum import StrEnum

from sandbox.records.light import dataclass


class Quantity(StrEnum):
    """What is being limited."""

    MEMORY = "memory"
    """Its limits are bytes."""
    CPUS = "cpus"
    """Its limits are thousandths of a CPU."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One run of the command under one limit."""

    limit: int | None
    """In the unit of the quantity; None without that limit."""
    is_enough: bool
    why: str
    """`exited 0`, or why it was not enough."""
    wall_ns: int | None
    memory_peak_bytes: int | None
    run_id: str


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The smallest limit in which a command ends well, and the way to it."""

    quantity: Quantity
    command: tuple[str, ...]
    step: int
    """How fine the search was."""
    max_wall_ns: int
    """A trial that took longer was not enough."""
    unlimited: tuple[Trial, ...]
    """The runs without the limit in question; the first may have had cold files."""
    trials: tuple[Trial, ...]
    """In the order in which they were made."""
    smallest: int | None
    """The smallest limit that was enough each time; None if none was."""
    largest_failing: int | None
    """The largest limit below it that was not enough; None if the floor itself was."""
    is_sharp: bool
    """Whether all repeats on both sides of the border agreed with the first try."""
    recommended: int | None
    """With headroom, and at a speed close to that without a limit."""
