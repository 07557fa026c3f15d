"""Limits to v1 control files, by docker's formulas, and what became of them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from sandbox.errors import KernelError
from sandbox.kernel import v1
from sandbox.kernel.outer import OuterLimits
from sandbox.kernel.roots import Roots
from sandbox.kernel.unified_limits import PERIOD_USEC, quota_usec
from sandbox.records.light import dataclass, replace
from sandbox.records.limits import LimitReport, LimitState
from sandbox.spec import Limits
from sandbox.units import UNLIMITED, format_cpu_list, format_size

MIN_QUOTA_USEC = 1_000  # the kernel's smallest
_NOT_USED = "the v1 controller is not mounted"
_NO_HIGH = "cgroup v1 has no mark above which a group is slowed instead of killed"
_NO_SWAP_FILE = (
    "this kernel does not account swap: it has no memory.memsw.limit_in_bytes "
    "(boot with swapaccount=1)"
)


@dataclass(frozen=True, kw_only=True)
class LimitFiles:
    """Where a run's limits are."""

    outer: Mapping[str, Path]
    """`run-<id>` by controller: it holds the limits."""
    inner: Mapping[str, Path]
    """`run-<id>/main` by controller: v1 wants cpusets filled at every level."""
    missing: Mapping[str, str]
    """Why each other controller is not to be had."""
    enclosing: OuterLimits


def apply_limits(files: LimitFiles, limits: Limits) -> tuple[LimitReport, ...]:
    """Write every limit, read it back and say what became of it; nothing is raised."""
    return tuple(_apply(files, limits))


def _apply(files: LimitFiles, limits: Limits) -> Iterator[LimitReport]:
    if limits.cpuset_cpus is not None:
        yield _apply_cpuset(files, frozenset(limits.cpuset_cpus))
    if limits.cpus is not None:
        yield _apply_cpus(files, limits.cpus)
    if limits.cpu_shares:
        yield _apply_number(files, v1.CPU_SHARES, "cpu_shares", limits.cpu_shares, str)
    if limits.memory_bytes is not None:
        yield from _apply_memory(files, limits.memory_bytes, limits.memory_swap_bytes)
    if limits.memory_reservation_bytes is not None:
        value = limits.memory_reservation_bytes
        yield _apply_number(files, v1.MEMORY_SOFT_LIMIT, "memory_reservation", value, format_size)
    if limits.memory_high_bytes is not None:
        asked = format_size(limits.memory_high_bytes)
        report = LimitReport(name="memory_high", asked=asked, state=LimitState.UNAVAILABLE)
        yield replace(report, reason=_NO_HIGH)
    if limits.blkio_weight or limits.device_rates:
        from sandbox.kernel.io_limits import apply_v1

        yield from apply_v1(files.outer.get("blkio"), files.missing, limits, Roots())
    if limits.pids is not None:
        report = _apply_number(files, v1.PIDS_LIMIT, "pids", limits.pids, _describe_count)
        yield _cut(report, limits.pids, files.enclosing.pids, _describe_count)


# --- CPU


def _apply_cpus(files: LimitFiles, cpus: float) -> LimitReport:
    """Write quota and period; v1 refuses a share above the enclosing group's, so it is cut."""
    report = LimitReport(
        name="cpus",
        asked=f"{cpus:g}",
        state=LimitState.ENFORCED,
        file=f"{v1.CPU_QUOTA.file} {v1.CPU_PERIOD.file}",
    )
    directory = files.outer.get("cpu")
    if directory is None:
        return _unavailable(report, files.missing.get("cpu", _NOT_USED))
    quota_asked = quota = quota_usec(cpus)
    if files.enclosing.cpus is not None and files.enclosing.cpus < cpus:
        report = replace(report, effective=f"{files.enclosing.cpus:g}")
        quota = max(quota_usec(files.enclosing.cpus), MIN_QUOTA_USEC)
    try:
        if v1.read_number(directory, v1.CPU_PERIOD) != PERIOD_USEC:
            v1.write_number(directory, v1.CPU_PERIOD, PERIOD_USEC)
        found = v1.write_number(directory, v1.CPU_QUOTA, quota)
        report = replace(report, value=f"{found} {v1.read_number(directory, v1.CPU_PERIOD)}")
    except KernelError as error:
        return _unavailable(report, _why_quota_refused(error))
    if found != quota:
        return _approximated(report, f"{quota}", f"{found}")
    if quota != quota_asked:
        return replace(report, reason="cut to the limit of the enclosing group")
    return report


def _why_quota_refused(error: KernelError) -> str:
    if error.errno == errno.ENOENT:
        return "this kernel was built without CPU bandwidth control: it has no cpu.cfs_quota_us"
    if error.errno == errno.EINVAL:
        return f"a group below or above has a CPU limit that does not fit: {error}"
    return str(error)


def _apply_cpuset(files: LimitFiles, cpus: frozenset[int]) -> LimitReport:
    """Write the CPUs to both levels, in an order in which none is ever outside of its parent's."""
    asked = format_cpu_list(cpus)
    report = LimitReport(
        name="cpuset_cpus", asked=asked, state=LimitState.ENFORCED, file=v1.CPUSET_CPUS.file
    )
    outer, inner = files.outer.get("cpuset"), files.inner.get("cpuset")
    if outer is None or inner is None:
        return _unavailable(report, files.missing.get("cpuset", _NOT_USED))
    enclosing = files.enclosing.cpuset_cpus
    wanted = cpus if enclosing is None else cpus & frozenset(enclosing)
    if not wanted:
        within = format_cpu_list(enclosing or ())
        return _unavailable(report, f"the enclosing group may only use CPU {within}")
    try:
        v1.write_numbers(outer, v1.CPUSET_CPUS, v1.read_numbers(outer, v1.CPUSET_CPUS) | wanted)
        v1.write_numbers(inner, v1.CPUSET_CPUS, wanted)
        found = v1.write_numbers(outer, v1.CPUSET_CPUS, wanted)
    except KernelError as error:
        if error.errno == errno.EBUSY:
            return _unavailable(report, f"a group below uses other CPUs: {error}")
        return _unavailable(report, str(error))
    report = replace(report, value=format_cpu_list(found))
    if found != wanted:
        return _approximated(report, format_cpu_list(wanted), format_cpu_list(found))
    return report if wanted == cpus else replace(report, effective=format_cpu_list(wanted))


# --- memory


def _apply_memory(files: LimitFiles, memory: int, swap: int | None) -> Iterator[LimitReport]:
    """Write the memory limit and that of memory plus swap, which may never be the smaller one."""
    enclosing = files.enclosing
    total = UNLIMITED if swap is None else swap

    def apply_total() -> LimitReport:
        report = _apply_number(files, v1.MEMORY_SWAP_LIMIT, "memory_swap", total, format_size)
        return _cut(report, total, enclosing.memory_swap_bytes, format_size)

    raises = memory > _total_now(files)
    total_report = apply_total() if raises else None
    report = _apply_number(files, v1.MEMORY_LIMIT, "memory", memory, format_size)
    yield _cut(report, memory, enclosing.memory_bytes, format_size)
    total_report = total_report or apply_total()
    if swap is not None:
        yield total_report


def _total_now(files: LimitFiles) -> int:
    """Return the limit of memory plus swap in force; none where the kernel keeps none."""
    directory = files.outer.get("memory")
    if directory is None:
        return UNLIMITED
    try:
        return v1.read_number(directory, v1.MEMORY_SWAP_LIMIT)
    except KernelError:
        return UNLIMITED


# --- any


def _apply_number(
    files: LimitFiles, setting: v1.Setting, name: str, value: int, describe: Callable[[int], str]
) -> LimitReport:
    """Write one number into one file of the group that holds the limits."""
    report = LimitReport(
        name=name, asked=describe(value), state=LimitState.ENFORCED, file=setting.file
    )
    directory = files.outer.get(setting.controller)
    if directory is None:
        return _unavailable(report, files.missing.get(setting.controller, _NOT_USED))
    try:
        found = v1.write_number(directory, setting, value)
    except KernelError as error:
        return _unavailable(report, _why_refused(setting, error))
    report = replace(report, value="max" if found == UNLIMITED else str(found))
    in_pages = setting.controller == "memory"  # which the kernel rounds down
    lost = value - found
    if lost and not (in_pages and 0 < lost < os.sysconf("SC_PAGE_SIZE")):
        return _approximated(report, describe(value), describe(found))
    return report


def _why_refused(setting: v1.Setting, error: KernelError) -> str:
    if error.errno == errno.ENOENT:
        no_swap = setting is v1.MEMORY_SWAP_LIMIT
        return _NO_SWAP_FILE if no_swap else f"this kernel has no {setting.file}"
    if error.errno == errno.EBUSY:
        return f"more than that is in use and cannot be reclaimed: {error}"
    return str(error)


def _unavailable(report: LimitReport, reason: str) -> LimitReport:
    return replace(report, state=LimitState.UNAVAILABLE, reason=reason)


def _approximated(report: LimitReport, written: str, found: str) -> LimitReport:
    reason = f"`{written}` was written, and the kernel made it `{found}`"
    return replace(report, state=LimitState.APPROXIMATED, reason=reason)


def _cut(
    report: LimitReport, asked: int, enclosing: int | None, describe: Callable[[int], str]
) -> LimitReport:
    """Note the enclosing group's limit where it is the tighter one."""
    if enclosing is None or enclosing >= asked:
        return report
    return replace(report, effective=describe(enclosing))


def _describe_count(value: int) -> str:
    return "unlimited" if value == UNLIMITED else str(value)
