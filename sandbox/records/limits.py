"""What became of each limit that was asked for."""

from __future__ import annotations

from enum import StrEnum

from sandbox.records.light import dataclass


class LimitState(StrEnum):
    """Whether the kernel holds a limit."""

    ENFORCED = "enforced"
    APPROXIMATED = "approximated"
    UNAVAILABLE = "unavailable"


_CHECKS = {
    "cpus": "cpu",
    "cpu_shares": "cpu",
    "cpuset_cpus": "cpuset",
    "memory": "memory",
    "memory_reservation": "memory",
    "memory_high": "memory",
    "memory_swap": "swap-limit",
    "pids": "pids",
    **dict.fromkeys(
        (
            *("blkio_weight", "device_read_bps", "device_write_bps"),
            *("device_read_iops", "device_write_iops"),
        ),
        "io",
    ),
}


@dataclass(frozen=True, kw_only=True)
class LimitReport:
    """One limit: what was asked, what was written and read back, and who holds it."""

    name: str
    """The field of `Limits` without its unit: `cpus`, `memory`, `memory_swap`, `pids` …"""
    asked: str
    """As people read it: `1.5`, `512 MiB`."""
    state: LimitState
    by_default: bool = False
    """True when the user did not ask for it; `--strict` never refuses these."""
    file: str | None = None
    """The kernel's file that holds it, or the mechanism (`RLIMIT_DATA`, `sched_setaffinity`)."""
    value: str | None = None
    """What that file said when it was read back."""
    effective: str | None = None
    """The tighter value of an outer group, if one is tighter than what was asked."""
    reason: str | None = None
    """How it is approximated, or why it is unavailable."""

    @property
    def check(self) -> str:
        """Return the check, or group of checks, of `sandbox doctor` that says what it takes."""
        return _CHECKS.get(self.name, "cgroup")
