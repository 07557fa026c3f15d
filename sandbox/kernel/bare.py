"""A run without a group: what can be limited, counted and ended by its processes alone.

Every number is a sum over the processes that a keeper holds; `unavailable` says what such sums
cannot give, and each limit says how it is approximated.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from sandbox.errors import KernelError
from sandbox.kernel.bare_limits import NEEDS_GROUP, Adaptation, adapt
from sandbox.kernel.bare_reader import Tree, TreeReader
from sandbox.kernel.group import Alarm, Reader
from sandbox.kernel.keeper_process import Keeper
from sandbox.kernel.launch import RSS_SLACK_BYTES, read_own_rss_bytes
from sandbox.kernel.ledger import Ledger
from sandbox.kernel.processes import (
    find_descendants,
    read_file,
    read_stat,
    signal_all,
    stop_tree,
)
from sandbox.kernel.roots import Roots
from sandbox.records.host import Mode
from sandbox.records.light import replace
from sandbox.records.limits import LimitReport
from sandbox.records.program import Program
from sandbox.records.result import Split, Totals
from sandbox.spec import Limits

_KEPT = "only root can raise it for processes that run already: they keep the lower one"
_RLIMITS = {resource.RLIMIT_DATA: "RLIMIT_DATA", resource.RLIMIT_NPROC: "RLIMIT_NPROC"}
_PATIENCE_NS = 5_000_000_000
_NS_PER_USEC = 1_000

_PER_DEVICE = "the processes' own counters do not tell devices apart"
_UNAVAILABLE = {
    **dict.fromkeys(
        (
            "cpu_periods",
            "cpu_throttled_periods",
            "cpu_throttled_usec",
            "memory_kernel_bytes",
            "memory_inactive_file_bytes",
            "swap_peak_bytes",
            "oom_events",
            "oom_kills",
            "limit_hits",
            "pids_refused",
            "cpu_pressure",
            "memory_pressure",
            "io_pressure",
        ),
        NEEDS_GROUP.replace("hold it", "count it"),
    ),
    "io": _PER_DEVICE,
    "io_read_ops": "the kernel counts requests only by group",
    "io_write_ops": "the kernel counts requests only by group",
    "network": "shares the host's network",
}


class _EmptyAlarm:
    """Fires when the keeper has seen the last process end."""

    mask = select.EPOLLIN

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def drain(self) -> None:
        """Make the descriptor quiet; it rings only once."""
        ready, _, _ = select.select([self.fd], [], [], 0)
        if ready:
            os.read(self.fd, 1)


class BareGroup:
    """A `Group` of processes that nothing but their keeper holds together."""

    mode = Mode.NONE
    directories: tuple[Path, ...] = ()
    unavailable: Mapping[str, str] = _UNAVAILABLE

    def __init__(self, run_id: str, roots: Roots) -> None:
        """Hold nothing yet; `run_id` spreads runs side by side over the CPUs."""
        self.ledger = Ledger()
        self._run_id = run_id
        self._roots = roots
        self._adaptation = Adaptation()
        self._keeper: Keeper | None = None
        self._program_pid = 0
        self._fork_rss_bytes = 0
        self._baseline_usec = 0
        self._tree: Tree | None = None
        self._seen: dict[int, int] = {}

    def create(self) -> None:
        """Make nothing: there is nothing to make."""

    def apply(self, limits: Limits) -> tuple[LimitReport, ...]:
        """Turn limits into what the program will be given, or give it to what already runs."""
        self._adaptation, reports = adapt(limits, self._run_id, self._roots.proc)
        kept = {which for pid in self.pids() for which in self._apply_to(pid)}
        return tuple(
            replace(report, reason=f"{report.reason}; {_KEPT}")
            if report.file in {_RLIMITS.get(which) for which in kept}
            else report
            for report in reports
        )

    def _apply_to(self, pid: int) -> Iterator[int]:
        """Give a process the limits; yield those that it keeps, lower than they are to be."""
        for which, value in self._adaptation.rlimits:
            try:
                resource.prlimit(pid, which, (value, value))
            except PermissionError:
                yield which
            except (OSError, ValueError):
                continue  # it has ended
        if self._adaptation.cpus_allowed is not None:
            for thread in _list(f"{self._roots.proc}/{pid}/task"):
                with suppress(OSError):
                    os.sched_setaffinity(int(thread), self._adaptation.cpus_allowed)

    def adapt(self, program: Program) -> Program:
        """Return `program` with the limits of `apply`, as far as a process can carry them."""
        return self._adaptation.apply(program)

    def attach(self, keeper: Keeper, program_pid: int) -> None:
        """Take the keeper of the program that was just launched."""
        self._keeper = keeper
        self._program_pid = program_pid
        self._fork_rss_bytes = read_own_rss_bytes()

    def entrances(self) -> tuple[Path, ...]:
        """Return nothing: there is nothing to enter."""
        return ()

    def birth_directory(self) -> Path | None:
        """Return None."""
        return None

    def start(self) -> None:
        """Take what the fork alone has used; it is not the program's."""
        data = read_file(f"{self._roots.proc}/{self._program_pid}/schedstat")
        self._baseline_usec = int(data.split()[0]) // _NS_PER_USEC if data else 0

    def open_reader(self) -> Reader:
        """Return a reader of sums over the processes.

        Raises:
            KernelError: nothing was launched yet.
        """
        return TreeReader(self._own_tree())

    def _own_tree(self) -> Tree:
        if self._keeper is None:
            raise KernelError("a run without a group cannot be read before its program is launched")
        if self._tree is None:
            self._tree = Tree(self._roots, self._keeper, self.ledger, self._baseline_usec)
        return self._tree

    def oom_alarm(self) -> Alarm | None:
        """Return None: the kernel tells only groups."""
        return None

    def empty_alarm(self) -> Alarm | None:
        """Return what fires when the last process has ended."""
        return None if self._keeper is None else _EmptyAlarm(self._keeper.empty_fd)

    def oom_kills(self) -> int | None:
        """Return None: the kernel tells only groups."""
        return None

    def oom_events(self) -> int | None:
        """Return None: the kernel tells only groups."""
        return None

    def over_limit(self) -> bool:
        """Return whether the run needs more memory than it may have, by the last sample.

        The cheap sum counts shared pages and mapped files too; only if that is above the limit,
        the dear one decides.
        """
        limit = self._adaptation.memory_bytes
        if limit is None or self._tree is None or self._tree.rss_bytes <= limit:
            return False
        (anon, _, shmem, _), living = self._tree.read_memory()
        if anon + shmem <= limit:
            return False
        needed = self._tree.needed_bytes() if living > 1 else None
        return (anon + shmem if needed is None else needed) > limit

    def is_populated(self) -> bool:
        """Return whether any process of the run is left."""
        if self._keeper is None or self.ledger.is_empty():
            return False
        return not self._keeper.is_lost() or bool(self._survivors())

    def pids(self) -> tuple[int, ...]:
        """Return the processes of the run that are alive."""
        if self._keeper is None or self.ledger.is_empty():
            return ()
        if self._keeper.is_lost():
            return tuple(self._survivors())
        return tuple(self._look(find_descendants(self._keeper.pid, self._roots.proc)))

    def _look(self, pids: Iterable[int]) -> list[int]:
        """Return those that are alive, and remember them in case the keeper gets lost."""
        alive = []
        for pid in pids:
            stat = read_stat(pid, self._roots.proc)
            if stat is not None and stat.is_alive:
                self._seen[pid] = stat.start_ticks
                alive.append(pid)
        return alive

    def _survivors(self) -> list[int]:
        """Return what is alive of all that was seen, and what that has started since."""
        alive: dict[int, None] = {}
        sampled = {} if self._tree is None else self._tree.start_ticks
        for pid, start_ticks in (self._seen | sampled).items():
            stat = read_stat(pid, self._roots.proc)
            if stat is not None and stat.is_alive and stat.start_ticks == start_ticks:
                alive[pid] = None
                alive.update(dict.fromkeys(find_descendants(pid, self._roots.proc)))
        return self._look(alive)

    def signal(self, signal_number: int) -> int:
        """Send a signal to every process of the run."""
        return signal_all(self.pids(), signal_number)

    def kill(self) -> None:
        """Kill everything, and return when nothing is left.

        Raises:
            KernelError: something is left after some seconds, such as another user's process.
        """
        if self._keeper is None or self._keeper.end_all():
            return
        deadline_ns = time.monotonic_ns() + _PATIENCE_NS
        while left := self.pids():
            signal_all(left, signal.SIGKILL)
            if time.monotonic_ns() > deadline_ns:
                raise KernelError(
                    f"cannot kill {', '.join(map(str, left))}: still alive",
                    hint="it is another user's (a set-uid program), or stuck in the kernel",
                )
            time.sleep(0.001)

    def freeze(self, frozen: bool) -> None:  # noqa: FBT001 - a state, not an option
        """Stop everything, or let it go on."""
        if self._keeper is None:
            return
        if frozen:
            stop_tree(self._keeper.pid, self._roots.proc)
        else:
            self.signal(signal.SIGCONT)

    def totals(self) -> Totals:
        """Return what the processes used that have ended: exact where a parent waited for them."""
        reaped = self.ledger.read()
        # What the fork costs before the program starts is the kernel's work.
        system_usec = max(0, reaped.system_usec - self._baseline_usec)
        user_usec = reaped.user_usec
        peak_bytes = self._peak_bytes(reaped.largest_rss_bytes)
        return Totals(
            cpu_usage_usec=user_usec + system_usec,
            cpu_user_usec=user_usec,
            cpu_system_usec=system_usec,
            memory_peak_bytes=peak_bytes,
            memory_peak_source=None if peak_bytes is None else "sampled",
        )

    def split(self) -> Split:
        """Return sums over the processes as they are now; the peaks of phases are sampled."""
        used_usec, *_ = self._own_tree().read_fast()
        user_usec, system_usec = self._own_tree().cpu_split_usec()
        totals = Totals(
            cpu_usage_usec=used_usec,
            cpu_user_usec=user_usec,
            cpu_system_usec=max(0, system_usec),
        )
        return Split(totals=totals)

    def _peak_bytes(self, largest_rss_bytes: int) -> int | None:
        """Return the largest sum seen, or the largest process by the kernel, if that is more."""
        sampled = self._tree.peak_rss_bytes if self._tree is not None else 0
        if largest_rss_bytes <= self._fork_rss_bytes + RSS_SLACK_BYTES:
            largest_rss_bytes = 0  # perhaps the fork's own
        return max(sampled, largest_rss_bytes) or None

    def remove(self) -> None:
        """Send the keeper home; what it still holds, it ends first."""
        if self._keeper is not None:
            self._keeper.dismiss()

    def close(self) -> None:
        """Close what is open."""
        if self._tree is not None:
            self._tree.close()
        self.ledger.close()


def _list(directory: str) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208 - names are all that is needed
    except OSError:
        return []
