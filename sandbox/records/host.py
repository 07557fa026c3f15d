"""What is known of the machine that a run happened on."""

from __future__ import annotations

from enum import StrEnum

from sandbox.records.light import dataclass, field


class Mode(StrEnum):
    """How limits are set and counters read on this host."""

    UNIFIED = "v2"
    HYBRID = "hybrid"
    NONE = "none"


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
class HostLoad:
    """What the whole machine has done since its start; two of them tell what it did meanwhile.

    A value is None where the kernel does not tell it.
    """

    time_ns: int
    """CLOCK_MONOTONIC at the reading."""
    total_usec: int | None = None
    """CPU time of every kind, idle and stolen too, summed over all CPUs."""
    idle_usec: int | None = None
    """Of that: idle, waiting for I/O included."""
    steal_usec: int | None = None
    """Of that: taken by the hypervisor for others."""
    swap_in_pages: int | None = None
    swap_out_pages: int | None = None
    oom_kills: int | None = None
    """OOM kills on the whole machine, those inside groups included."""
    thermal_throttles: int | None = None
    """Times that a CPU was slowed for its temperature, summed over CPUs."""
    load_average: float | None = None
    """Runnable and uninterruptible tasks, averaged over the last minute."""
