"""What a profile says of one model, or of the one script that was run without any."""

from __future__ import annotations

from sandbox.records.light import dataclass
from sandbox.records.result import Outcome


@dataclass(frozen=True, kw_only=True)
class ProfileSample:
    """What was used at one step of the sample time."""

    utc_ms: int
    cpu_percent: float | None
    """Over the step that ends here; 100 is one CPU."""
    memory_bytes: int | None
    """Without page cache that is reclaimed first, as docker counts."""
    read_bytes: int | None
    """From block devices since the start of the run; likewise `write_bytes`."""
    write_bytes: int | None
    net_received_bytes: int | None = None
    """By the network since the start of the run, as far as the slow table has it."""
    net_sent_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class ModelProfile:
    """One row of the table; None where the host does not tell."""

    name: str
    model: str | None
    """As it was given, and as the script got it; None for a script without one."""
    run_id: str | None
    """None when the run could not be started."""
    outcome: Outcome
    exit_code: int | None
    reason: str
    cpu_mean_percent: float | None = None
    """CPU time over wall time; 100 is one CPU."""
    cpu_peak_percent: float | None = None
    """Of the busiest second; of the whole run where that was shorter."""
    throttled_ratio: float | None = None
    """Share of enforcement periods in which the CPU limit held the script back."""
    memory_mean_bytes: int | None = None
    """Without page cache that is reclaimed first, as docker counts."""
    memory_limit_bytes: int | None = None
    """The limit in force, or the host's memory."""
    memory_peak_bytes: int | None = None
    """All memory of the group, page cache included."""
    net_received_bytes: int | None = None
    net_sent_bytes: int | None = None
    read_bytes: int | None = None
    write_bytes: int | None = None
    wall_ns: int | None = None

    @property
    def is_good(self) -> bool:
        """Whether the script ended by itself with status 0."""
        return self.outcome.is_success(self.exit_code)
