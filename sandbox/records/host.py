"""What is known of the machine that a run happened on."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Mode(StrEnum):
    """How limits are set and counters read on this host."""

    UNIFIED = "v2"
    HYBRID = "hybrid"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine and the mode in which it is used; part of every result."""

    mode: Mode
    mode_reason: str
    """One line: why this mode, such as `cgroup v2 at /sys/fs/cgroup, root`."""
    controllers: tuple[str, ...] = ()
    """Controllers that a run's group gets here (`cpu`, `memory`, `pids`, `io`, `cpuset`)."""
    cpus_online: tuple[int, ...]
    cpus_allowed: tuple[int, ...]
    """CPUs that this process may use; a run cannot have more."""
    memory_total_bytes: int
    swap_total_bytes: int
    kernel: str
    machine: str
    cpu_model: str | None = None
    hostname: str | None = None
    unavailable: dict[str, str] = field(default_factory=dict)
    """Metrics that this host cannot give, each with its reason."""
