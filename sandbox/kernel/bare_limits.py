"""Limits where no group can hold them: rlimits and affinity, which come near, and their gaps."""

from __future__ import annotations

import math
import os
import resource
import zlib
from collections.abc import Iterator
from pathlib import Path

from sandbox.kernel.processes import read_stat
from sandbox.records.light import dataclass, replace
from sandbox.records.limits import LimitReport, LimitState
from sandbox.records.program import Program
from sandbox.spec import Limits
from sandbox.units import UNLIMITED, format_cpu_list, format_size

NEEDS_GROUP = "only a cgroup can hold it, and this user can write none (see `sandbox doctor`)"

# Thread stacks and the arenas of allocators are reserved, and counted, long before they are used.
_DATA_SLACK_BYTES = 256 << 20


@dataclass(frozen=True, kw_only=True)
class Adaptation:
    """What a program is given in place of a group's limits."""

    rlimits: tuple[tuple[int, int], ...] = ()
    """`(resource.RLIMIT_*, value)`, soft and hard alike."""
    cpus_allowed: tuple[int, ...] | None = None
    memory_bytes: int | None = None
    """What the supervisor watches over by sampling."""

    def apply(self, program: Program) -> Program:
        """Return `program` with these limits; a tighter one of its own stays."""
        rlimits = {which: (soft, hard) for which, soft, hard in program.rlimits}
        for which, value in self.rlimits:
            bound = _bound(value, resource.getrlimit(which)[1])
            soft, hard = rlimits.get(which, (bound, bound))
            rlimits[which] = (_bound(soft, bound), _bound(hard, bound))
        return replace(
            program,
            rlimits=tuple((which, *pair) for which, pair in rlimits.items()),
            cpus_allowed=self.cpus_allowed or program.cpus_allowed,
        )


def _bound(one: int, other: int) -> int:
    """Return the tighter of two rlimits."""
    if resource.RLIM_INFINITY in {one, other}:
        return other if one == resource.RLIM_INFINITY else one
    return min(one, other)


def adapt(limits: Limits, run_id: str, proc: Path) -> tuple[Adaptation, tuple[LimitReport, ...]]:
    """Return what can be done instead of a group, and what that makes of each limit."""
    cpus = choose_cpus(limits, run_id)
    rlimits: list[tuple[int, int]] = []
    memory = None if limits.memory_bytes == UNLIMITED else limits.memory_bytes
    if memory is not None:
        rlimits.append((resource.RLIMIT_DATA, data_limit_bytes(memory)))
    pids = None if limits.pids == UNLIMITED or os.geteuid() == 0 else limits.pids
    if pids is not None:
        pids += count_tasks(os.getuid(), proc)
        rlimits.append((resource.RLIMIT_NPROC, pids))
    adaptation = Adaptation(rlimits=tuple(rlimits), cpus_allowed=cpus, memory_bytes=memory)
    return adaptation, tuple(_reports(limits, cpus, pids))


def data_limit_bytes(memory_bytes: int) -> int:
    """Return the RLIMIT_DATA behind a memory limit: what one process may ask for between samples.

    It counts what is reserved, not what is used, so it has to be generous.
    """
    return max(2 * memory_bytes, memory_bytes + _DATA_SLACK_BYTES)


def count_tasks(uid: int, proc: Path) -> int:
    """Return the processes and threads of one user: RLIMIT_NPROC counts them all."""
    count = 0
    for entry in os.scandir(proc):
        if entry.name.isdecimal():
            try:
                is_ours = entry.stat().st_uid == uid
            except OSError:
                continue
            stat = read_stat(int(entry.name), proc) if is_ours else None
            count += stat.threads if stat is not None else 0
    return count


def choose_cpus(limits: Limits, run_id: str) -> tuple[int, ...] | None:
    """Return as many whole CPUs as the limit needs; runs side by side begin at different ones."""
    if limits.cpus is None:
        return limits.cpuset_cpus
    allowed = limits.cpuset_cpus or tuple(sorted(os.sched_getaffinity(0)))
    count = min(math.ceil(limits.cpus), len(allowed))
    first = zlib.crc32(run_id.encode()) % len(allowed)
    return tuple(sorted((allowed + allowed)[first : first + count]))


def _reports(
    limits: Limits, cpus: tuple[int, ...] | None, nproc: int | None
) -> Iterator[LimitReport]:
    yield from report_affinity(limits, cpus)
    if limits.cpu_shares:
        yield _missing("cpu_shares", str(limits.cpu_shares), NEEDS_GROUP)
    if limits.blkio_weight:
        yield _missing("blkio_weight", str(limits.blkio_weight), NEEDS_GROUP)
    if limits.device_rates:
        from sandbox.kernel.io_limits import describe_rate

        for rate in limits.device_rates:
            yield _missing(f"device_{rate.kind.value}", describe_rate(rate), NEEDS_GROUP)
    if limits.memory_bytes is not None:
        yield _memory_report(limits.memory_bytes)
    for name, value in (
        ("memory_swap", limits.memory_swap_bytes),
        ("memory_reservation", limits.memory_reservation_bytes),
        ("memory_high", limits.memory_high_bytes),
    ):
        if value is not None:
            yield _missing(name, format_size(value), NEEDS_GROUP)
    if limits.pids is not None:
        yield _pids_report(limits.pids, nproc)


def report_affinity(limits: Limits, cpus: tuple[int, ...] | None) -> Iterator[LimitReport]:
    """Yield what becomes of limits of CPUs where the program is bound to `cpus` instead."""
    bound = format_cpu_list(cpus) if cpus is not None else None
    if limits.cpus is not None:
        yield _near(
            "cpus",
            f"{limits.cpus:g}",
            file="sched_setaffinity",
            value=bound,
            how="whole CPUs only, and the program can lift it: bound to CPU " + (bound or ""),
        )
    if limits.cpuset_cpus is not None:
        yield _near(
            "cpuset_cpus",
            format_cpu_list(limits.cpuset_cpus),
            file="sched_setaffinity",
            value=bound,
            how="by affinity, which the program can lift",
        )


def _memory_report(memory_bytes: int) -> LimitReport:
    if memory_bytes == UNLIMITED:
        return _none_asked("memory")
    data = format_size(data_limit_bytes(memory_bytes))
    return _near(
        "memory",
        format_size(memory_bytes),
        file="RLIMIT_DATA",
        value=None,
        how="sampled: the run is killed when a sample is above the limit; "
        f"between samples each process may reserve {data}",
    )


def _pids_report(pids: int, nproc: int | None) -> LimitReport:
    if pids == UNLIMITED:
        return _none_asked("pids")
    if nproc is None:
        return _missing("pids", str(pids), "RLIMIT_NPROC does not hold for root")
    return _near(
        "pids",
        str(pids),
        file="RLIMIT_NPROC",
        value=None,
        how="counts every process of the user: it allows as many, and the "
        f"{nproc - pids} that ran before",
    )


def _near(name: str, asked: str, *, file: str, value: str | None, how: str) -> LimitReport:
    state = LimitState.APPROXIMATED
    return LimitReport(name=name, asked=asked, state=state, file=file, value=value, reason=how)


def _missing(name: str, asked: str, why: str) -> LimitReport:
    return LimitReport(name=name, asked=asked, state=LimitState.UNAVAILABLE, reason=why)


def _none_asked(name: str) -> LimitReport:
    return LimitReport(name=name, asked="unlimited", state=LimitState.ENFORCED, value="unlimited")
