"""From limits to the unified hierarchy's files, by docker's formulas; what became of each."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from sandbox.errors import KernelError
from sandbox.kernel.files import find_text, write_and_read_back
from sandbox.kernel.outer import OuterLimits
from sandbox.kernel.parse import parse_cpuset, parse_limit
from sandbox.kernel.roots import Roots
from sandbox.records.light import dataclass, replace
from sandbox.records.limits import LimitReport, LimitState
from sandbox.spec import Limits
from sandbox.units import UNLIMITED, format_cpu_list, format_size

PERIOD_USEC = 100_000  # the kernel's own default, and docker's
NANO = 1_000_000_000
_LEAST_SHARES, _MOST_SHARES = 2, 262_144
_LEAST_WEIGHT, _MOST_WEIGHT = 1, 10_000


def quota_usec(cpus: float) -> int:
    """Return the CPU time of `cpus` CPUs in one period, rounded down as docker does."""
    return round(cpus * NANO) * PERIOD_USEC // NANO


def cpu_weight(shares: int) -> int:
    """Return the weight (1 to 10000) of docker's shares (2 to 262144): 1024 becomes 100.

    A curve through the least, the usual and the largest value of both scales.
    """
    if shares <= _LEAST_SHARES:
        return _LEAST_WEIGHT
    if shares >= _MOST_SHARES:
        return _MOST_WEIGHT
    power = math.log2(shares)
    return math.ceil(10 ** ((power * power + 125 * power) / 612 - 7 / 34))


def limit_text(value: int) -> str:
    """Return a limit as the kernel takes it: `max` for none."""
    return "max" if value == UNLIMITED else str(value)


@dataclass(frozen=True, kw_only=True)
class _Control:
    """One limit on its way into one file."""

    name: str
    asked: str
    file: str
    text: str
    effective: str | None = None


def _controls(limits: Limits, outer: OuterLimits) -> Iterator[_Control]:
    """Yield what is to be written, in an order that is right for empty and for live groups."""
    if limits.cpuset_cpus is not None:
        cpus = format_cpu_list(limits.cpuset_cpus)
        yield _Control(name="cpuset_cpus", asked=cpus, file="cpuset.cpus", text=cpus)
    if limits.cpus is not None:
        yield _Control(
            name="cpus",
            asked=f"{limits.cpus:g}",
            file="cpu.max",
            text=f"{quota_usec(limits.cpus)} {PERIOD_USEC}",
            effective=_tighter_cpus(limits.cpus, outer.cpus),
        )
    if limits.cpu_shares:
        yield _Control(
            name="cpu_shares",
            asked=str(limits.cpu_shares),
            file="cpu.weight",
            text=str(cpu_weight(limits.cpu_shares)),
        )
    yield from _memory_controls(limits, outer)
    if limits.pids is not None:
        yield _Control(
            name="pids",
            asked="unlimited" if limits.pids == UNLIMITED else str(limits.pids),
            file="pids.max",
            text=limit_text(limits.pids),
            effective=_tighter(limits.pids, outer.pids, str),
        )


def _memory_controls(limits: Limits, outer: OuterLimits) -> Iterator[_Control]:
    swap = limits.swap_bytes
    if swap is not None:
        # Before the memory limit: a lower limit on a live group must not push it into swap first.
        yield _Control(
            name="memory_swap",
            asked=format_size(limits.memory_swap_bytes or 0),
            file="memory.swap.max",
            text=limit_text(swap),
            effective=_tighter_sum(limits, outer),
        )
    for name, file, value in (
        ("memory_reservation", "memory.low", limits.memory_reservation_bytes),
        ("memory_high", "memory.high", limits.memory_high_bytes),
        ("memory", "memory.max", limits.memory_bytes),
    ):
        if value is not None:
            # A high mark or reservation above an outer limit is cut by it as well.
            yield _Control(
                name=name,
                asked=format_size(value),
                file=file,
                text=limit_text(value),
                effective=_tighter(value, outer.memory_bytes, format_size),
            )


def _tighter(asked: int, outer: int | None, describe: Callable[[int], str]) -> str | None:
    return None if outer is None or outer >= asked else describe(outer)


def _tighter_cpus(asked: float, outer: float | None) -> str | None:
    return None if outer is None or outer >= asked else f"{outer:g}"


def _tighter_sum(limits: Limits, outer: OuterLimits) -> str | None:
    """Return memory plus swap under the outer limits, if that is less than what was asked."""
    memory, swap = limits.memory_bytes, limits.swap_bytes
    if memory is None or swap is None:
        return None
    total = min(memory, outer.memory_bytes or memory)
    total += swap if outer.swap_bytes is None else min(swap, outer.swap_bytes)
    return None if total >= memory + swap else format_size(min(total, UNLIMITED))


def apply_limits(
    directory: Path, limits: Limits, outer: OuterLimits, missing: Mapping[str, str]
) -> tuple[LimitReport, ...]:
    """Write every limit, read it back and say what became of it; nothing is raised.

    `missing` says by controller why the group lacks it.
    """
    reports = [_apply(directory, control, missing) for control in _controls(limits, outer)]
    if limits.blkio_weight or limits.device_rates:
        from sandbox.kernel.io_limits import apply_v2

        reports += apply_v2(directory, missing, limits, Roots())
    return tuple(reports)


def _apply(directory: Path, control: _Control, missing: Mapping[str, str]) -> LimitReport:
    report = LimitReport(
        name=control.name,
        asked=control.asked,
        state=LimitState.ENFORCED,
        file=control.file,
        effective=control.effective,
    )
    try:
        value = write_and_read_back(directory / control.file, control.text)
    except KernelError as error:
        reason = _why_refused(control, error, missing)
        return replace(report, state=LimitState.UNAVAILABLE, effective=None, reason=reason)
    report = replace(report, value=value)
    if control.file == "cpuset.cpus":
        report = replace(report, effective=_effective_cpuset(directory, control.text))
    if _is_what_was_written(control, value):
        return report
    reason = f"`{control.text}` was written, and the kernel made it `{value}`"
    return replace(report, state=LimitState.APPROXIMATED, reason=reason)


def _why_refused(control: _Control, error: KernelError, missing: Mapping[str, str]) -> str:
    controller = control.file.partition(".")[0]
    if controller in missing:
        return missing[controller]
    if error.errno != errno.ENOENT:
        return str(error)
    if control.file == "memory.swap.max":
        return "this kernel does not account swap: it has no memory.swap.max"
    return f"this kernel has no {control.file}"


def _is_what_was_written(control: _Control, value: str) -> bool:
    if value == control.text:
        return True
    try:
        if control.file == "cpuset.cpus":
            return parse_cpuset(value) == parse_cpuset(control.text)
        if not control.file.startswith("memory."):
            return False
        lost = parse_limit(control.text) - parse_limit(value)
    except KernelError:
        return False
    return 0 <= lost < os.sysconf("SC_PAGE_SIZE")  # memory is limited in whole pages


def _effective_cpuset(directory: Path, asked: str) -> str | None:
    """Return the CPUs that the kernel gives, if they are not those that were asked for."""
    text = (find_text(directory / "cpuset.cpus.effective") or "").strip()
    return text if text and text != asked else None
