"""Where the kernel's file systems are: a value, so that tests can pass a directory instead."""

from __future__ import annotations

from pathlib import Path

from sandbox.records.light import dataclass


@dataclass(frozen=True, kw_only=True)
class Roots:
    """The mount points that everything else is found from."""

    cgroup: Path = Path("/sys/fs/cgroup")
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    top: Path = Path("/")
    """Where everything else is: `run`, `etc`, `usr`, `var`."""
