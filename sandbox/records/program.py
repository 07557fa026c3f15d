"""A program ready to be executed: all names resolved, nothing left to decide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.records.light import dataclass

if TYPE_CHECKING:
    from sandbox.records.enclosure import Enclosure, IdMap, OwnNetwork

MARKS_VARIABLE = "SANDBOX_MARKS"
"""Where a program's marks go: `@` and an abstract name, or the path of a socket."""


def mark_name(run_id: str) -> str:
    """Return the abstract name that the marks of a run are sent to."""
    return f"sandbox-marks-{run_id}"


def control_name(run_id: str) -> str:
    """Return the abstract name that requests to the supervisor of a run are sent to."""
    return f"sandbox-control-{run_id}"


@dataclass(frozen=True, kw_only=True)
class Program:
    """What the child does between its fork and its exec, and what it executes."""

    argv: tuple[str, ...]
    environment: dict[bytes, bytes]
    """The whole environment, as bytes: values need not be UTF-8."""
    directory: str | None = None
    """Where to start; None stays where the supervisor is."""
    user: tuple[int, int, tuple[int, ...]] | None = None
    """uid, gid and supplementary groups; None keeps the supervisor's."""
    stdio: tuple[int | None, int | None, int | None] = (None, None, None)
    """Descriptors for stdin, stdout and stderr; None inherits the supervisor's."""
    rlimits: tuple[tuple[int, int, int], ...] = ()
    """`(resource.RLIMIT_*, soft, hard)`."""
    cpus_allowed: tuple[int, ...] | None = None
    """Affinity to set, where cpuset cannot."""
    enclosure: Enclosure | None = None
    """A root file system of its own, in which everything else is meant; None is the host's."""
    own_network: OwnNetwork | None = None
    """A network of its own, with or without such a root; None is the host's."""

    @property
    def is_apart(self) -> bool:
        """Return whether the program is born in namespaces of its own."""
        return self.enclosure is not None or self.own_network is not None

    @property
    def has_own_root(self) -> bool:
        """Return whether it has a root file system of its own, which takes a directory of ours."""
        return self.enclosure is not None and self.enclosure.in_place is None

    @property
    def ids(self) -> IdMap | None:
        """Return the ids of its user namespace; None if it has none of its own."""
        if self.enclosure is not None:
            return self.enclosure.ids
        return None if self.own_network is None else self.own_network.ids


@dataclass(frozen=True, kw_only=True)
class ExitStatus:
    """How the main process ended: exactly one of the two is set."""

    status: int | None = None
    signal: int | None = None
    cpu_user_usec: int | None = None
    """rusage of the main process and the children it waited for: a check on the group's counter."""
    cpu_system_usec: int | None = None
    max_rss_bytes: int | None = None
