"""What a run's group can do, whatever the host's mode; one implementation a mode.

`run-<id>/` holds the limits, `run-<id>/main` the program: counters are read on the outer one,
so that what a nested run uses is counted too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from sandbox.records.host import Mode
from sandbox.records.limits import LimitReport
from sandbox.records.result import Split, Totals
from sandbox.spec import Limits


class Reader(Protocol):
    """Reads one group's counters through descriptors that stay open; nothing is formatted.

    `fast_columns` and `slow_columns` name what a reading returns, in order, without `time_ns`.
    A single value that cannot be read is `ABSENT`.
    """

    fast_columns: tuple[str, ...]
    slow_columns: tuple[str, ...]

    def read_fast(self) -> list[int]:
        """Read the cheap files: CPU time, memory, pids, I/O. About 5 µs."""

    def read_slow(self) -> list[int]:
        """Read the dear files: memory.stat, PSI, throttling, swap. About 25 µs."""

    def close(self) -> None:
        """Close the descriptors."""


class Alarm(Protocol):
    """A descriptor that becomes ready when something happened in the group."""

    fd: int
    mask: int
    """What to poll for: `select.EPOLLPRI` or `select.EPOLLIN`."""

    def drain(self) -> None:
        """Make the descriptor quiet until the next time."""


class Group(Protocol):
    """A run's place in the kernel; all state stays there."""

    mode: Mode
    directories: tuple[Path, ...]
    """Every cgroup directory that `create` makes, parents first; known before it is called."""
    unavailable: Mapping[str, str]
    """Metrics (names of `Totals` fields, columns, `network`) that it cannot give, with reasons."""

    def create(self) -> None:
        """Make the directories; on failure remove what was made and raise KernelError."""

    def apply(self, limits: Limits) -> tuple[LimitReport, ...]:
        """Write each limit in the order that the kernel wants, read it back, say what became of it.

        `limits` are those of `Limits.with_defaults()`. Called before any process is inside, and
        again to change a live group. A limit that cannot be set is reported, not raised.
        """

    def entrances(self) -> tuple[Path, ...]:
        """Return the files that a child with one thread writes `0` to before its exec.

        A child that was born in `birth_directory` leaves out the one in that directory, and only
        that one: on hybrid hosts it still has to join the other hierarchies.
        """

    def birth_directory(self) -> Path | None:
        """Return the directory to be born in with clone3, or None where that cannot be.

        Joining it afterwards works as well, but the kernel may take 4 to 20 ms for it.
        """

    def start(self) -> None:
        """Take the baseline, now that the child is inside and paused: totals count from here."""

    def open_reader(self) -> Reader:
        """Return a reader; counters start at the baseline."""

    def oom_alarm(self) -> Alarm | None:
        """Return what fires at an OOM kill, or None where the kernel cannot tell."""

    def empty_alarm(self) -> Alarm | None:
        """Return what fires when the last process has left, or None."""

    def oom_kills(self) -> int | None:
        """Return the kernel's counter of OOM kills inside the group, nested groups included."""

    def oom_events(self) -> int | None:
        """Return how often a memory limit was hit without relief: the run's, one below or around.

        With OOM kills, 0 means that the whole host was short.
        """

    def over_limit(self) -> bool:
        """Return whether sampled memory passed a limit that no kernel holds (degraded mode)."""

    def is_populated(self) -> bool:
        """Return whether any process is alive inside, nested groups included."""

    def pids(self) -> tuple[int, ...]:
        """Return the processes inside, nested groups included."""

    def signal(self, signal_number: int) -> int:
        """Send a signal to every process inside; return how many were reached."""

    def kill(self) -> None:
        """SIGKILL everything inside, frozen or forking, and return when the group is empty."""

    def freeze(self, frozen: bool) -> None:  # noqa: FBT001 - a state, not an option
        """Stop or let go everything inside."""

    def totals(self) -> Totals:
        """Return the exact counters since `start`, read from the kernel."""

    def split(self) -> Split:
        """Read the counters while the program runs, and start the peaks anew where that can be.

        The peaks of `totals` stay those of the whole run.
        """

    def remove(self) -> None:
        """Remove every directory, those that the program made included, bottom up."""

    def close(self) -> None:
        """Close what is open; the group itself stays."""
