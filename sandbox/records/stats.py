"""What `sandbox stats` shows of one group: raw counters at one or two instants, and its limits."""

from __future__ import annotations

from enum import StrEnum

from sandbox.records.light import dataclass, field
from sandbox.records.result import DeviceIo, NetworkIo, Pressure


class State(StrEnum):
    """What a sandbox is doing, in docker's words."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    EXITED = "exited"
    DEAD = "dead"
    """Its supervisor has gone without recording the end."""


@dataclass(frozen=True, kw_only=True)
class StatsReading:
    """Every counter of one group at one instant; None is what this host cannot tell.

    Counters count from the making of the group.
    """

    time_ns: int
    """CLOCK_MONOTONIC."""
    utc_ns: int
    cpu_usage_ns: int | None = None
    cpu_user_ns: int | None = None
    cpu_system_ns: int | None = None
    cpu_percpu_ns: tuple[int, ...] | None = None
    """By CPU; only cgroup v1 tells it."""
    cpu_periods: int | None = None
    cpu_throttled_periods: int | None = None
    cpu_throttled_ns: int | None = None
    host_cpu_ns: int | None = None
    """The whole host's CPU time as docker counts it: the first seven fields of /proc/stat."""
    cpus_online: int | None = None
    """CPUs of the host, whatever the group may use."""
    memory_usage_bytes: int | None = None
    """With the page cache."""
    memory_stat: dict[str, int] | None = None
    """memory.stat as the kernel writes it."""
    memory_peak_bytes: int | None = None
    memory_failures: int | None = None
    """v1: times that the limit was hit; v2: times that it was hit without relief."""
    swap_bytes: int | None = None
    pids: int | None = None
    """Tasks: processes and threads."""
    processes: int | None = None
    io: tuple[DeviceIo, ...] | None = None
    network: tuple[NetworkIo, ...] | None = None
    """Its own interfaces without `lo`; of the host's network one called `host`, or empty."""
    cpu_pressure: Pressure | None = None
    memory_pressure: Pressure | None = None
    io_pressure: Pressure | None = None


@dataclass(frozen=True, kw_only=True)
class StatsRow:
    """One sandbox, or any other group, and what was read of it."""

    asked: str
    """How the user named it, or its short id: docker's `.Container`."""
    id: str
    name: str
    state: State = State.RUNNING
    cgroup: str | None = None
    cgroup_version: int
    """1 or 2: where memory is counted."""
    now: StatsReading | None = None
    """None while nothing was read yet, or after the end."""
    before: StatsReading | None = None
    """The reading that rates are taken from; None before the second one."""
    host_memory_bytes: int
    memory_limit_bytes: int | None = None
    """None is no limit of its own; so are the limits below."""
    swap_limit_bytes: int | None = None
    pids_limit: int | None = None
    cpu_quota_usec: int | None = None
    cpu_period_usec: int | None = None
    cpus_allowed: int | None = None
    """How many CPUs its cpuset leaves it; None where that is unknown."""
    unavailable: dict[str, str] = field(default_factory=dict)
    """Fields of the readings that this host cannot give, each with its reason."""
