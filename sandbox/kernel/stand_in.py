"""What stands in for a controller that a group lacks: affinity for CPUs, /proc/PID/io for I/O.

Systemd hands `cpu`, `memory` and `pids` on to users, but neither `cpuset` nor `io` unless an admin
has said so. What stands in is named as such in the result.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from sandbox.errors import KernelError
from sandbox.kernel.bare_limits import choose_cpus, report_affinity
from sandbox.kernel.parse_proc import parse_pid_io
from sandbox.kernel.processes import read_file
from sandbox.records.light import replace
from sandbox.records.limits import LimitReport, LimitState
from sandbox.records.sample import ABSENT
from sandbox.spec import Limits

_FEW = 4
_TIME_SHARE = 20  # to look at more than a few may take one part in so many of the time


def find_cpus(limits: Limits, run_id: str, missing: Mapping[str, str]) -> tuple[int, ...] | None:
    """Return the CPUs to bind a program to; None where the group holds every limit of CPUs."""
    if "cpuset" in missing and limits.cpuset_cpus is not None:
        bound = replace(limits, cpus=limits.cpus if "cpu" in missing else None)
    elif "cpu" in missing and limits.cpus is not None:
        bound = limits
    else:
        return None
    return choose_cpus(bound, run_id)


def name_stand_ins(
    reports: Iterable[LimitReport], limits: Limits, cpus: tuple[int, ...] | None
) -> tuple[LimitReport, ...]:
    """Return the reports, those of CPU limits that affinity stands in for corrected."""
    if cpus is None:
        return tuple(reports)
    near = {report.name: report for report in report_affinity(limits, cpus)}
    return tuple(
        _with_cause(near[report.name], report.reason)
        if report.state is LimitState.UNAVAILABLE and report.name in near
        else report
        for report in reports
    )


def _with_cause(near: LimitReport, cause: str | None) -> LimitReport:
    return replace(near, reason=f"{near.reason}; {cause}") if cause else near


def bind(pids: Iterable[int], cpus: tuple[int, ...], proc: Path) -> None:
    """Bind every thread of processes that run already."""
    for pid in pids:
        with suppress(OSError):
            for thread in os.listdir(proc / str(pid) / "task"):  # noqa: PTH208 - names suffice
                with suppress(OSError):
                    os.sched_setaffinity(int(thread), cpus)


class ProcessIo:
    """Bytes that a run's processes read from and wrote to disks, by their own counters.

    A process that has ended is counted in the parent that waited for it, in the end in us; one
    that nobody waited for is lost. So the largest sum so far stands.

    What ends between the list of processes and their counters is missed once, never counted twice:
    the dead are counted first.
    """

    def __init__(self, find_pids: Callable[[], Iterable[int]], proc: Path) -> None:
        """Count from the first reading on."""
        self._find_pids = find_pids
        self._proc = proc
        self._next_ns = 0
        self._base: tuple[int, int] | None = None
        self._largest = [0, 0]

    def read(self) -> list[int]:
        """Return bytes read and bytes written; many processes are looked at less often."""
        now_ns = time.monotonic_ns()
        try:
            pids = tuple(self._find_pids())
        except KernelError:  # the group is gone
            return [ABSENT, ABSENT]
        if len(pids) > _FEW and now_ns < self._next_ns:
            return list(self._largest)
        sums = self._sum(pids)
        self._base = self._base or sums
        since = (now - base for now, base in zip(sums, self._base, strict=True))
        self._largest = [max(pair) for pair in zip(since, self._largest, strict=True)]
        end_ns = time.monotonic_ns()
        self._next_ns = end_ns + _TIME_SHARE * (end_ns - now_ns)
        return list(self._largest)

    def _sum(self, pids: Iterable[int]) -> tuple[int, int]:
        whole, alone = self._read("self"), self._read("thread-self")
        read_bytes, write_bytes = whole[0] - alone[0], whole[1] - alone[1]
        for pid in pids:
            one = self._read(str(pid))
            read_bytes, write_bytes = read_bytes + one[0], write_bytes + one[1]
        return read_bytes, write_bytes

    def _read(self, process: str) -> tuple[int, int]:
        data = read_file(f"{self._proc}/{process}/io")
        values = parse_pid_io(data) if data else {}
        return values.get("read_bytes", 0), values.get("write_bytes", 0)
