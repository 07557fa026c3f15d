"""What a run was, how it ended and what it used: the content of `run.json`."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from sandbox.records.host import Host
from sandbox.records.light import dataclass, field
from sandbox.records.limits import LimitReport
from sandbox.records.ports import PublishedPort
from sandbox.records.security import Protection

SCHEMA = 1


class Outcome(StrEnum):
    """How a run ended."""

    RUNNING = "running"
    EXITED = "exited"
    SIGNALED = "signaled"
    OOM_KILLED = "oom_killed"
    TIMED_OUT = "timed_out"
    CPU_TIME_EXCEEDED = "cpu_time_exceeded"
    KILLED = "killed"
    NOT_STARTED = "not_started"
    SUPERVISOR_LOST = "supervisor_lost"

    def is_success(self, exit_code: int | None) -> bool:
        """Return whether a run with this outcome ended by itself, with status 0."""
        return self is Outcome.EXITED and exit_code == 0


@dataclass(frozen=True, kw_only=True)
class DeviceIo:
    """Block I/O of one device, from the start of the run."""

    device: str
    """`8:0`, with the kernel's name when it is known: `8:0 sda`."""
    read_bytes: int
    write_bytes: int
    read_ops: int
    write_ops: int


HOST_PORT = "host"
"""The name that stands for the interfaces of the host that a run on its network has used."""


@dataclass(frozen=True, kw_only=True)
class NetworkIo:
    """What passed one network interface of a run.

    In a result from the start of the program, in a live reading since the interface was made. The
    interface `host` stands for all of the host's that a run on its network has used.
    """

    name: str
    rx_bytes: int
    tx_bytes: int
    rx_packets: int | None = None
    tx_packets: int | None = None
    rx_errors: int | None = None
    tx_errors: int | None = None
    rx_dropped: int | None = None
    tx_dropped: int | None = None


@dataclass(frozen=True, kw_only=True)
class Pressure:
    """PSI of one resource over the whole run, in microseconds of stall."""

    some_usec: int
    full_usec: int | None


@dataclass(frozen=True, kw_only=True)
class EnergyUse:
    """What one energy counter of the machine counted; everything that ran on it, not one run."""

    domain: str
    """`package-0`, or below one `package-0/dram`."""
    energy_uj: int


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Exact totals of the whole tree over the whole run, baseline subtracted; raw kernel integers.

    What this host cannot give is None, and its reason is in `RunResult.unavailable` under the
    same name.
    """

    cpu_usage_usec: int | None = None
    cpu_user_usec: int | None = None
    cpu_system_usec: int | None = None
    cpu_periods: int | None = None
    cpu_throttled_periods: int | None = None
    cpu_throttled_usec: int | None = None
    memory_peak_bytes: int | None = None
    memory_peak_source: str | None = None
    """`kernel` (exact) or `sampled` (the largest of the samples)."""
    swap_peak_bytes: int | None = None
    oom_events: int | None = None
    """Times that the group itself hit its memory limit and could not reclaim."""
    oom_kills: int | None = None
    """The kernel's counter of OOM kills in the group; not a number of processes."""
    limit_hits: int | None = None
    """Times that usage was about to pass the limit and the kernel reclaimed instead."""
    pids_peak: int | None = None
    pids_refused: int | None = None
    """Forks and clones that the process limit refused."""
    io: tuple[DeviceIo, ...] | None = None
    network: tuple[NetworkIo, ...] | None = None
    """By interface, without `lo`; empty for a run without any."""
    cpu_pressure: Pressure | None = None
    memory_pressure: Pressure | None = None
    io_pressure: Pressure | None = None
    energy_uj: int | None = None
    """Microjoules of all CPU packages: the whole machine's while the run lasted, not its share."""
    energy: tuple[EnergyUse, ...] | None = None
    """The same by counter; those below a package are part of it, or of the memory beside it."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """The counters of a run between two of its phases."""

    totals: Totals
    """Since the start of the run."""
    memory_peak_bytes: int | None = None
    """Since the last split, or the start; None where the kernel cannot start a peak anew."""
    swap_peak_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Phase:
    """What happened between two marks."""

    name: str
    """`start` before the first mark, then what was marked."""
    started_ns: int
    """CLOCK_MONOTONIC."""
    wall_ns: int
    totals: Totals
    """Of this phase alone; its peaks too. `memory_peak_source` says how exact that one is."""


@dataclass(frozen=True, kw_only=True)
class RunWarning:
    """Something that makes the result weaker or surprising; `code` is stable."""

    code: str
    text: str
    hint: str | None = None


@dataclass(frozen=True, kw_only=True)
class Overhead:
    """What measuring cost."""

    cpu_usec: int
    """CPU time of the supervisor from the start of the program to its end."""
    ticks: int
    missed_ticks: int
    max_late_ns: int
    """The largest distance of a tick from its place on the grid."""


@dataclass(frozen=True, kw_only=True)
class RootMade:
    """How the root file system of a run was made."""

    how: str
    """`overlay`: its layers were stacked; `copy`; `bind`: it is only read, and was there."""
    reason: str = ""
    """Why the layers were not stacked."""
    entries: int = 0
    """Files, directories, links … that were copied for it."""
    size_bytes: int = 0
    """Of the files that were copied."""
    wall_ns: int = 0
    """What that took, before the program was started."""


@dataclass(frozen=True, kw_only=True)
class OomKill:
    """One moment at which the kernel killed for memory inside the run."""

    time_ns: int
    """CLOCK_MONOTONIC."""
    since_start_ns: int
    cause: str
    """`limit` (the run's own or an enclosing limit) or `host` (the whole machine was short)."""


@dataclass(frozen=True, kw_only=True)
class MemorySplit:
    """What the memory was made of, at the sample nearest to the peak."""

    time_ns: int
    current_bytes: int | None
    anon_bytes: int | None
    file_bytes: int | None
    shmem_bytes: int | None
    kernel_bytes: int | None
    uncounted_bytes: int | None = None
    """How far memory.stat was behind memory.current; 0 if not by more than batching explains."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Numbers derived from totals and samples; they can be derived again at any time.

    CPU figures are in CPUs: 1.0 is one full CPU for the whole time.
    """

    cpu_mean: float | None = None
    cpu_p95: float | None = None
    """95th percentile over sliding 1 s windows; absent for runs below 2 s."""
    cpu_max: float | None = None
    """Largest sliding 1 s window; absent for runs below 2 s."""
    cpu_limit: float | None = None
    """The base of "of the limit": the CPU limit in force, or the host's CPUs."""
    throttled_ratio: float | None = None
    """Share of enforcement periods in which the quota was used up."""
    memory_mean_bytes: int | None = None
    """Mean of the samples, weighted by time."""
    memory_peak_sampled_bytes: int | None = None
    memory_peak_time_ns: int | None = None
    """CLOCK_MONOTONIC of the largest sample."""
    memory_split: MemorySplit | None = None
    memory_need_bytes: int | None = None
    """Largest sampled anon + shmem + kernel: what is needed apart from page cache.

    What the kernel had not counted in any part at the peak is taken as needed.
    """
    memory_cache_bytes: int | None = None
    """Largest sampled file - shmem."""
    page_cache: str | None = None
    """`cold` (much was read from disk), `warm`, or None when it cannot be told."""
    io_read_bytes: int | None = None
    io_write_bytes: int | None = None
    io_read_ops: int | None = None
    io_write_ops: int | None = None
    processes_peak: int | None = None
    samples: int = 0


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """One run, whole: what was asked, where it ran, how it ended, what it used."""

    run_id: str
    name: str
    command: tuple[str, ...]
    spec: dict[str, Any]
    """The `RunSpec` as plain values; of the environment only the names."""
    host: Host
    limits: tuple[LimitReport, ...] = ()
    outcome: Outcome
    exit_code: int | None
    """What `sandbox run` exits with: the program's status, 128+signal, 124 to 127, or 137."""
    program_status: int | None = None
    """The program's own exit status; None when a signal ended it."""
    program_signal: int | None = None
    reason: str = ""
    """One line for people: `killed: out of memory at 3.21 s`."""
    started_utc_ns: int
    started_ns: int
    """CLOCK_MONOTONIC when the program was let go."""
    wall_ns: int | None = None
    """From there to the end of the main process (with --wait-all: of the last one)."""
    totals: Totals = field(default_factory=Totals)
    summary: Summary | None = None
    phases: tuple[Phase, ...] = ()
    """From mark to mark, the whole run; empty when nothing was marked."""
    oom_kills: tuple[OomKill, ...] = ()
    leftover_processes: int | None = None
    """Processes that outlived the main process and were killed."""
    unavailable: dict[str, str] = field(default_factory=dict)
    warnings: tuple[RunWarning, ...] = ()
    overhead: Overhead | None = None
    root: RootMade | None = None
    """None where the program ran in the host's own root."""
    thread_hints: dict[str, str] = field(default_factory=dict)
    """Environment variables that were set to the CPU limit, such as OMP_NUM_THREADS."""
    protections: tuple[Protection, ...] = ()
    """What kept the program apart from the host; empty on the host's own root."""
    ports: tuple[PublishedPort, ...] = ()
    """Of the host, that lead into the run's own network."""
    groups: tuple[str, ...] = ()
    """Every cgroup directory of the run."""
    directory: str | None = None
    """The run directory, or None when none could be written."""
    versions: dict[str, str] = field(default_factory=dict)
    schema: int = SCHEMA


@dataclass(frozen=True, kw_only=True)
class Event:
    """One line of `events.jsonl`."""

    time_ns: int
    utc_ns: int
    kind: str
    """`started oom signal timeout cpu_time gap stopped continued missed update mark ended` …"""
    detail: dict[str, Any] = field(default_factory=dict)
