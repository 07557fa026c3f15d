"""One line of `sandbox ps`."""

from __future__ import annotations

from sandbox.records.light import dataclass, field
from sandbox.records.ports import PublishedPort
from sandbox.records.stats import State


@dataclass(frozen=True, kw_only=True)
class PsRow:
    """One sandbox, as far as a list tells it."""

    id: str
    name: str
    command: tuple[str, ...]
    """Empty where it is unknown, such as for another user's sandbox."""
    state: State
    created_utc_ns: int
    started_utc_ns: int | None = None
    finished_utc_ns: int | None = None
    exit_code: int | None = None
    cpus_limit: float | None = None
    memory_limit_bytes: int | None = None
    pids_limit: int | None = None
    pids: int | None = None
    """Tasks inside now."""
    owner: str | None = None
    """The user that it belongs to."""
    cgroup: str | None = None
    ports: tuple[PublishedPort, ...] = ()
    """Of the host, that lead inside, while it runs."""
    labels: dict[str, str] = field(default_factory=dict)
