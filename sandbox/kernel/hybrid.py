"""A run's groups on a hybrid host: v1 controllers for limits, v2 for CPU time, pressure, killing.

In every hierarchy `run-<id>` holds the limits and `run-<id>/main` the program, below our own group
of that hierarchy: these differ. v1 has no limit by which one OOM kill ends the whole run, so the
supervisor does that when `oom_kills` rises.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from sandbox.errors import KernelError
from sandbox.kernel import v1, v2
from sandbox.kernel.disks import find_disks
from sandbox.kernel.files import make_directory, remove_tree
from sandbox.kernel.hybrid_counters import (
    RunGroups,
    count_inner_ooms,
    count_limit_hits,
    count_oom_kills,
    find_number,
    has_kernel_memory,
    read_snapshot,
)
from sandbox.kernel.hybrid_kill import kill_all, signal_pids
from sandbox.kernel.hybrid_limits import LimitFiles, apply_limits
from sandbox.kernel.hybrid_reader import KERNEL_COLUMN, MEMORY_STAT_KEYS, HybridReader
from sandbox.kernel.place import GROUP_PREFIX, INNER_GROUP, Place
from sandbox.kernel.roots import Roots
from sandbox.kernel.unified_snapshot import IO_COLUMNS, RESOURCES, Disks, Snapshot
from sandbox.kernel.unified_totals import totals_between
from sandbox.kernel.v1_alarm import OomAlarm
from sandbox.records.host import Mode
from sandbox.records.light import replace
from sandbox.records.limits import LimitReport
from sandbox.records.result import Split, Totals
from sandbox.spec import Limits

_THROTTLING = ("cpu_periods", "cpu_throttled_periods", "cpu_throttled_usec")
_OOM = ("oom_events", "oom_kills")
_REMOVAL_PATIENCE_SEC = 1.0
_METRICS = {
    "cpu": _THROTTLING,
    "memory": (
        "memory_current_bytes",
        "memory_peak_bytes",
        "swap_peak_bytes",
        "limit_hits",
        *_OOM,
        *MEMORY_STAT_KEYS,
        KERNEL_COLUMN,
    ),
    "pids": ("pids", "pids_peak", "pids_refused"),
    "blkio": ("io", *IO_COLUMNS),
}
_NO_NETWORK = "the run shares the host's network"
_NO_BANDWIDTH = "this kernel was built without CPU bandwidth control"
_NO_SWAP_PEAK = "cgroup v1 keeps the peak of memory and swap together only"
_NO_KERNEL_MEMORY = "this kernel does not count its own memory by group"
_NO_IO = "this kernel counts no block device by group"
_NO_PRESSURE = "the kernel does not count stalls here: PSI is off (boot with psi=1)"
_NO_HITS = (
    "the limit of memory and swap together was reached first, and this kernel does not count that"
)


class HybridGroup:
    """One run's groups; see `Group`."""

    mode = Mode.HYBRID

    def __init__(self, place: Place, run_id: str, roots: Roots, *, oom_group: bool = True) -> None:
        """Name the directories; nothing is made yet.

        `oom_group` is for the supervisor alone to heed here.

        Raises:
            KernelError: the place has no v2 mount.
        """
        if place.v2 is None:
            raise KernelError(f"no group can be made here: {place.reason}")
        self.oom_group = oom_group
        self._place = place
        self._roots = roots
        name = f"{GROUP_PREFIX}{run_id}"
        v1_groups = {key: place.v1[key] / name for key in v1.USED if key in place.v1}
        self._groups = RunGroups(v2=place.v2 / name, v1=v1_groups)
        # Controllers that are mounted together share one directory.
        self._v1_directories = tuple(dict.fromkeys(v1_groups.values()))
        self._tops = (*self._v1_directories, self._groups.v2)
        self._main = self._groups.v2 / INNER_GROUP
        self.directories: tuple[Path, ...] = tuple(
            directory for top in self._tops for directory in (top, top / INNER_GROUP)
        )
        self.kill_directory: Path | None = self._groups.v2
        """The directory whose `cgroup.kill` ends the run."""
        self._missing = {key: why for key, why in place.missing.items() if key in v1.USED}
        self.unavailable: Mapping[str, str] = {}
        """What this group cannot measure, and why; known once the child is inside."""
        self._before = Snapshot()
        self._earlier_peak_bytes = 0
        """The largest memory peak of the phases that have ended."""
        self._disks = Disks(roots)
        self._oom: OomAlarm | None = None
        self._alarms: list[OomAlarm | v2.EventsAlarm] = []

    # --- making and limiting

    def create(self) -> None:
        """Make every group and fill what v1 leaves empty.

        Raises:
            KernelError: a group cannot be made; nothing is left.
        """
        made: list[Path] = []
        try:
            for top in self._tops:
                make_directory(top)
                made.append(top)
                make_directory(top / INNER_GROUP)
            if "cpuset" in self._groups.v1:
                self._fill_cpuset(self._groups.v1["cpuset"])
            if "blkio" in self._groups.v1:
                v1.count_io(self._groups.v1["blkio"], find_disks(self._roots))
            self._oom = self._find_oom_alarm()
        except KernelError:
            _remove(made)
            raise

    def _fill_cpuset(self, top: Path) -> None:
        v1.fill_cpuset(top.parent, (top, top / INNER_GROUP))

    def apply(self, limits: Limits) -> tuple[LimitReport, ...]:
        """Write each limit, read it back, say what became of it."""
        outer = self._groups.v1
        files = LimitFiles(
            outer=outer,
            inner={key: directory / INNER_GROUP for key, directory in outer.items()},
            missing=self._missing,
            enclosing=self._place.outer,
        )
        return apply_limits(files, limits)

    # --- the child

    def entrances(self) -> tuple[Path, ...]:
        """Return what a child with one thread writes `0` to: v1's first, they cost little."""
        v1_files = [top / INNER_GROUP / v1.ENTRANCE for top in self._v1_directories]
        return (*v1_files, self._main / "cgroup.procs")

    def birth_directory(self) -> Path:
        """Return the v2 group: joining that one later makes the kernel stop the world."""
        return self._main

    # --- measuring

    def start(self) -> None:
        """Start the memory peaks anew and take the baseline."""
        for name in (v1.MEMORY_PEAK, v1.MEMORY_SWAP_PEAK):
            v1.restart_peak(self._groups.file("memory", name))
        self._before = read_snapshot(self._groups, self._disks)
        self.unavailable = self._unmeasured()

    def _unmeasured(self) -> dict[str, str]:
        """Return what this group cannot measure, and why."""
        before = self._before
        reasons = {"network": _NO_NETWORK}
        reasons["swap_peak_bytes"] = _NO_SWAP_PEAK
        if "nr_periods" not in before.cpu:
            reasons.update(dict.fromkeys(_THROTTLING, _NO_BANDWIDTH))
        if before.io is None:
            reasons.update(dict.fromkeys(_METRICS["blkio"], _NO_IO))
        if not has_kernel_memory(self._groups):
            reasons[KERNEL_COLUMN] = _NO_KERNEL_MEMORY
        for resource in RESOURCES:
            if before.pressures.get(resource) is None:
                name = f"{resource}_pressure"
                names = (name, f"{name}_some_usec", f"{name}_full_usec")
                reasons.update(dict.fromkeys(names, _NO_PRESSURE))
        for controller, why in self._missing.items():
            reasons.update(dict.fromkeys(_METRICS.get(controller, ()), why))
        return reasons

    def open_reader(self) -> HybridReader:
        """Return a reader whose counters start at the baseline."""
        return HybridReader(self._groups, self._main, self._before, self._disks, self._roots)

    def totals(self) -> Totals:
        """Return the exact counters since `start`."""
        after = read_snapshot(self._groups, self._disks)
        memory_peak = self._phase_peak()
        if memory_peak is not None:
            memory_peak = max(memory_peak, self._earlier_peak_bytes)
        peaks = (
            memory_peak,
            None,
            find_number(self._groups.file("pids", v1.PIDS_PEAK)),
        )
        totals = totals_between(self._before, after, roots=self._roots, peaks=peaks)
        if "memory" in self._groups.v1 and count_limit_hits(self._groups) is None:
            totals = replace(totals, limit_hits=None)
            self.unavailable = {**self.unavailable, "limit_hits": _NO_HITS}
        # The run's own limit; what a limit below did is told by `oom_kills` alone.
        return replace(totals, oom_events=None if self._oom is None else self._oom.count())

    def _phase_peak(self) -> int | None:
        """Return the memory peak since the last split, or the start."""
        return find_number(self._groups.file("memory", v1.MEMORY_PEAK))

    def split(self) -> Split:
        """Return the counters now, and start the memory peak anew; v1 has only one for all."""
        totals = self.totals()
        peak = self._phase_peak()
        if peak is not None:
            self._earlier_peak_bytes = max(self._earlier_peak_bytes, peak)
            v1.restart_peak(self._groups.file("memory", v1.MEMORY_PEAK))
        return Split(totals=totals, memory_peak_bytes=peak)

    # --- out of memory

    def oom_alarm(self) -> OomAlarm | None:
        """Return what rings right before an OOM kill for the run's limit or one around it."""
        alarm = self._find_oom_alarm()
        if alarm is not None:
            self._alarms.append(alarm)
        return alarm

    def _find_oom_alarm(self) -> OomAlarm | None:
        directory = self._groups.v1.get("memory")
        try:
            return None if directory is None else OomAlarm(directory)
        except KernelError:
            return None

    def oom_kills(self) -> int | None:
        """Return the OOM kills in the groups that are there; see `count_oom_kills`."""
        return count_oom_kills(self._groups)

    def oom_events(self) -> int | None:
        """Return how often a limit was hit without relief: the run's, one around or one below."""
        if self._oom is None:
            return None
        return self._oom.count() or count_inner_ooms(self._groups)

    def over_limit(self) -> bool:
        """Return False: the kernel holds the memory limit."""
        return False

    # --- the processes inside

    def empty_alarm(self) -> v2.EventsAlarm | None:
        """Return what fires when the last process has left."""
        try:
            alarm = v2.EventsAlarm(self._groups.v2 / "cgroup.events")
        except KernelError:
            return None
        self._alarms.append(alarm)
        return alarm

    def is_populated(self) -> bool:
        """Return whether any process is alive inside the v2 group."""
        return v2.is_populated(self._groups.v2)

    def pids(self) -> tuple[int, ...]:
        """Return the processes inside, those that left some of the hierarchies included."""
        inside = {*v2.list_pids(self._groups.v2), *v1.list_pids(self._v1_directories)}
        return tuple(sorted(inside))

    def signal(self, signal_number: int) -> int:
        """Send a signal to every process inside; return how many were reached."""
        return signal_pids(self.pids(), signal_number)

    def kill(self) -> None:
        """SIGKILL everything inside; return when the groups of every hierarchy are empty.

        Raises:
            KernelError: something cannot be killed within ten seconds.
        """
        kill_all(self._groups, self._place.v1.get("freezer"), self._roots)

    def freeze(self, frozen: bool) -> None:  # noqa: FBT001 - the protocol's signature
        """Stop or let go everything inside."""
        v2.freeze(self._groups.v2, frozen=frozen)

    # --- the end

    def remove(self) -> None:
        """Remove every group and those that the program made below them, bottom up.

        Raises:
            KernelError: processes are still inside of one; the others are gone.
        """
        _remove(self._tops)

    def close(self) -> None:
        """Close what is open; the groups stay."""
        for alarm in (*self._alarms, *((self._oom,) if self._oom else ())):
            alarm.close()


def _remove(tops: Iterable[Path]) -> None:
    """Remove what can be removed within a second in all, then raise the first refusal."""
    refused: KernelError | None = None
    deadline = time.monotonic() + _REMOVAL_PATIENCE_SEC
    for top in tops:
        try:
            remove_tree(
                top,
                known=(INNER_GROUP,),
                patience_sec=max(0.0, deadline - time.monotonic()),
            )
        except KernelError as error:
            refused = refused or error
    if refused is not None:
        raise refused
