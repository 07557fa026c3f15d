"""A run's group on the unified hierarchy: `run-<id>` holds the limits, `run-<id>/main` the program.

Controllers are enabled down to `run-<id>` and not below it: the program is then charged to
`run-<id>` itself, which spares a level of accounting, and a nested run enables what it needs
beside `main`.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path

from sandbox.errors import KernelError
from sandbox.kernel import v2
from sandbox.kernel.files import find_text, make_directory, remove_tree, write_text
from sandbox.kernel.parse import parse_flat, parse_number
from sandbox.kernel.place import GROUP_PREFIX, INNER_GROUP, Place
from sandbox.kernel.roots import Roots
from sandbox.kernel.unified_limits import apply_limits
from sandbox.kernel.unified_reader import (
    MEMORY_COLUMNS,
    PROCESS_IO_COLUMNS,
    UnifiedReader,
    has_process_io,
)
from sandbox.kernel.unified_snapshot import IO_COLUMNS, RESOURCES, Snapshot, read_snapshot
from sandbox.kernel.unified_totals import PeakFile, totals_between
from sandbox.records.host import Mode
from sandbox.records.light import replace
from sandbox.records.limits import LimitReport
from sandbox.records.program import Program
from sandbox.records.result import Split, Totals
from sandbox.spec import Limits

_METRICS = {
    "cpu": ("cpu_periods", "cpu_throttled_periods", "cpu_throttled_usec"),
    "memory": (
        "memory_current_bytes",
        "memory_peak_bytes",
        "memory_swap_bytes",
        "swap_peak_bytes",
        "oom_events",
        "oom_kills",
        "limit_hits",
        *MEMORY_COLUMNS,
    ),
    "pids": ("pids", "pids_peak", "pids_refused"),
    "io": ("io", *IO_COLUMNS),
}
_FILES = {
    "memory_peak_bytes": ("memory", "memory.peak", "Linux 5.19 brought it"),
    "swap_peak_bytes": ("memory", "memory.swap.peak", "Linux 6.5 brought it"),
    "memory_swap_bytes": ("memory", "memory.swap.current", "swap is not accounted"),
    "pids_peak": ("pids", "pids.peak", "Linux 6.1 brought it"),
}


class UnifiedGroup:
    """One run's group; see `Group`."""

    mode = Mode.UNIFIED

    def __init__(self, place: Place, run_id: str, roots: Roots, *, oom_group: bool = True) -> None:
        """Name the directories; nothing is made yet.

        With `oom_group` an OOM kill ends every process of the run, not one alone.

        Raises:
            KernelError: the place has no unified hierarchy.
        """
        if place.v2 is None or place.v2_top is None:
            raise KernelError(f"no group can be made here: {place.reason}")
        self._place = place
        self._roots = roots
        self._oom_group = oom_group
        self._parent = place.v2
        self._around = v2.path_down(place.v2_top, place.v2)
        self._run = place.v2 / f"{GROUP_PREFIX}{run_id}"
        self._main = self._run / INNER_GROUP
        self.directories: tuple[Path, ...] = (self._run, self._main)
        self._missing = dict(place.missing)
        self.kill_directory: Path | None = self._run
        """The directory whose `cgroup.kill` ends the run."""
        self.unavailable: Mapping[str, str] = {}
        """What this group cannot measure, and why; known once it is made."""
        self._bound_to: tuple[int, ...] | None = None
        self._before = Snapshot()
        self._alarms: list[v2.EventsAlarm] = []
        self._memory_peak: PeakFile | None = None
        self._swap_peak: PeakFile | None = None
        self._phase_peaks: tuple[PeakFile, PeakFile] | None = None
        """Of memory and swap, with descriptors of their own; None before the first split."""

    def _unmeasured(self) -> dict[str, str]:
        """Return what this group cannot measure, and why."""
        reasons = {"network": "the run shares the host's network"}
        for controller, why in self._missing.items():
            reasons.update(dict.fromkeys(_METRICS.get(controller, ()), why))
        if "io" in self._missing and has_process_io(self._roots.proc):
            why = f"only bytes, sampled from /proc/PID/io: {self._missing['io']}"
            reasons.update(dict.fromkeys(_METRICS["io"], why))
            for metric in PROCESS_IO_COLUMNS:
                del reasons[metric]
        for metric, (controller, name, since) in _FILES.items():
            if controller not in self._missing and not (self._run / name).exists():
                reasons[metric] = f"this kernel has no {name} ({since})"
        reasons.update(self._without_pressure())
        return reasons

    def _without_pressure(self) -> dict[str, str]:
        why = "the kernel does not count stalls here: PSI is off (boot with psi=1)"
        return {
            name: why
            for resource in RESOURCES
            if v2.read_pressure(self._run, resource) is None
            for name in (
                f"{resource}_pressure",
                f"{resource}_pressure_some_usec",
                f"{resource}_pressure_full_usec",
            )
        }

    def create(self) -> None:
        """Enable controllers as far as the kernel lets us, and make the two groups.

        Raises:
            KernelError: a group cannot be made; nothing is left.
        """
        if self._place.is_crowded:
            v2.make_room(self._parent)
        self._missing.update(v2.enable(self._around, self._place.controllers))
        make_directory(self._run)
        try:
            make_directory(self._main)
            if self._oom_group and "memory" not in self._missing:
                self._die_together()
        except KernelError:
            remove_tree(self._run)
            raise
        self.unavailable = self._unmeasured()

    def _die_together(self) -> None:
        try:
            write_text(self._run / "memory.oom.group", "1")
        except KernelError as error:
            if error.errno != errno.ENOENT:  # Linux before 4.19: the supervisor ends the rest
                raise

    def apply(self, limits: Limits) -> tuple[LimitReport, ...]:
        """Write each limit, read it back, say what became of it."""
        reports = apply_limits(self._run, limits, self._place.outer, self._missing)
        if "cpu" not in self._missing and "cpuset" not in self._missing:
            return reports
        from sandbox.kernel.stand_in import bind, find_cpus, name_stand_ins

        self._bound_to = find_cpus(limits, self._run.name, self._missing)
        if self._bound_to is not None:
            bind(self.pids(), self._bound_to, self._roots.proc)
        return name_stand_ins(reports, limits, self._bound_to)

    def adapt(self, program: Program) -> Program:
        """Return `program` with what no file of the group holds: the CPUs that it is bound to."""
        if self._bound_to is None:
            return program
        return replace(program, cpus_allowed=self._bound_to)

    def entrances(self) -> tuple[Path, ...]:
        """Return the one `cgroup.procs` that a child joins by."""
        return (self._main / "cgroup.procs",)

    def birth_directory(self) -> Path:
        """Return the inner group: one hierarchy holds everything, so a child can be born in it."""
        return self._main

    def start(self) -> None:
        """Take the baseline; where the kernel can (6.12), the peaks start anew as well."""
        self._memory_peak = PeakFile(self._run / "memory.peak")
        self._swap_peak = PeakFile(self._run / "memory.swap.peak")
        self._memory_peak.restart()
        self._swap_peak.restart()
        self._before = read_snapshot(self._run, self._roots, self._around)

    def open_reader(self) -> UnifiedReader:
        """Return a reader whose counters start at the baseline."""
        return UnifiedReader(self._run, self._main, self._before, self._roots)

    def oom_alarm(self) -> v2.EventsAlarm | None:
        """Return what fires when `memory.events` changes, or None without the controller."""
        return self._alarm("memory.events")

    def empty_alarm(self) -> v2.EventsAlarm | None:
        """Return what fires when the last process has left."""
        return self._alarm("cgroup.events")

    def _alarm(self, name: str) -> v2.EventsAlarm | None:
        try:
            alarm = v2.EventsAlarm(self._run / name)
        except KernelError:
            return None
        self._alarms.append(alarm)
        return alarm

    def oom_kills(self) -> int | None:
        """Return the kernel's counter of OOM kills, those in groups below included."""
        return self._events("memory.events").get("oom_kill")

    def oom_events(self) -> int | None:
        """Return how often a limit was hit without relief: the run's, one below or one around."""
        own = self._events("memory.events").get("oom")
        if own is None:
            return None
        around = (v2.find_flat(group / "memory.events.local") for group in self._around)
        outer = sum(events.get("oom", 0) for events in around)
        return own + max(0, outer - self._before.outer_oom)

    def over_limit(self) -> bool:
        """Return False: the kernel holds the memory limit."""
        return False

    def _events(self, name: str) -> dict[str, int]:
        text = find_text(self._run / name)
        return {} if text is None else parse_flat(text)

    def is_populated(self) -> bool:
        """Return whether any process is alive inside."""
        return v2.is_populated(self._run)

    def pids(self) -> tuple[int, ...]:
        """Return the processes inside, those in groups below included."""
        return v2.list_pids(self._run)

    def signal(self, signal_number: int) -> int:
        """Send a signal to every process inside; return how many were reached."""
        return v2.signal_all(self._run, signal_number)

    def kill(self) -> None:
        """SIGKILL everything inside; return when the group is empty.

        Raises:
            KernelError: something cannot be killed within ten seconds.
        """
        v2.kill(self._run)

    def freeze(self, frozen: bool) -> None:  # noqa: FBT001 - the protocol's signature
        """Stop or let go everything inside."""
        v2.freeze(self._run, frozen=frozen)

    def totals(self) -> Totals:
        """Return the exact counters since `start`."""
        pids_text = find_text(self._run / "pids.peak")
        return totals_between(
            self._before,
            read_snapshot(self._run, self._roots),
            roots=self._roots,
            peaks=(
                self._peak(self._memory_peak, 0),
                self._peak(self._swap_peak, 1),
                None if pids_text is None else parse_number(pids_text),
            ),
        )

    def _peak(self, run: PeakFile | None, place: int) -> int | None:
        """Return the run's peak of memory (0) or swap (1), which is at least each phase's.

        The kernel lets two CPUs race for a peak, so that the phase's may be some pages above it.
        """
        value = None if run is None else run.read()
        if value is None or self._phase_peaks is None:
            return value
        phase = self._phase_peaks[place]
        return max(value, phase.read() or 0, phase.largest)

    def split(self) -> Split:
        """Return the counters now; where the kernel can (6.12), the peaks of phases start anew.

        Each descriptor has a peak of its own: starting the phase's anew leaves the run's alone.
        """
        totals = self.totals()
        if self._phase_peaks is None:
            peaks = totals.memory_peak_bytes, totals.swap_peak_bytes
            self._phase_peaks = (
                PeakFile(self._run / "memory.peak"),
                PeakFile(self._run / "memory.swap.peak"),
            )
        else:
            memory, swap = (peak.read() for peak in self._phase_peaks)
            peaks = memory, swap
        for peak in self._phase_peaks:
            if not peak.restart():
                peak.close()  # what it says is no phase's, so it is not read again
        return Split(totals=totals, memory_peak_bytes=peaks[0], swap_peak_bytes=peaks[1])

    def remove(self) -> None:
        """Remove both groups and those that the program made, bottom up.

        Raises:
            KernelError: processes are still inside.
        """
        remove_tree(self._run)

    def close(self) -> None:
        """Close what is open; the groups stay."""
        for alarm in self._alarms:
            alarm.close()
        for peak in (self._memory_peak, self._swap_peak, *(self._phase_peaks or ())):
            if peak is not None:
                peak.close()
