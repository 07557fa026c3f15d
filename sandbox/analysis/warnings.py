"""What makes a result weaker or surprising: each finding with its figures and what to do next.

Every `code` is stable; the texts may change. Thresholds stand beside their reasons.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from sandbox.analysis.in_force import (
    cpus_in_force,
    has_cpu_limit,
    memory_in_force_bytes,
    pids_in_force,
)
from sandbox.records.host import HostLoad
from sandbox.records.limits import LimitState
from sandbox.records.observed import Observed
from sandbox.records.result import DeviceIo, Outcome, RunResult, RunWarning
from sandbox.units import NS_PER_SEC, USEC_PER_SEC, format_size

_STEAL_RATIO = 0.01
_OTHER_LOAD_CPU_RATIO = 0.10
_SHORTEST_LOAD_NS = NS_PER_SEC // 10  # the machine's own counters move in steps of 10 ms
_BUSY_THROTTLED_RATIO = 0.5
_CROSS_CHECK_RATIO = 0.05
_CROSS_CHECK_USEC = 20_000  # two ticks of the slowest kernel
_MISSED_RATIO = 0.01
_FEW = 2  # of a short run these are more than a hundredth, and yet nothing
_NEAR_LIMIT_RATIO = 0.95
_AT_LIMIT_RATIO = 0.99
_LIMIT_NAMES = {"cpus": "CPU", "cpuset_cpus": "CPU list", "pids": "process"}


def find_warnings(
    result: RunResult,
    before: HostLoad | None = None,
    after: HostLoad | None = None,
    *,
    observed: Observed | None = None,
) -> tuple[RunWarning, ...]:
    """Return what a reader of `result` should know, the gravest first.

    `result` has its totals and summary; `before` and `after` are the machine's counters around
    the run, `observed` what the supervisor saw.
    """
    return (
        *_about_limits(result),
        *_about_memory(result),
        *_about_threads(result),
        *_about_measuring(result, observed),
        *_about_memory_parts(result),
        *(_about_host(result, before, after) if before is not None and after is not None else ()),
        *_about_devices(result.totals.io or ()),
    )


def _about_limits(result: RunResult) -> Iterator[RunWarning]:
    for limit in result.limits:
        name = _LIMIT_NAMES.get(limit.name, limit.name.replace("_", " "))
        if limit.state is LimitState.UNAVAILABLE and not limit.by_default:
            yield RunWarning(
                code="limit_unavailable",
                text=f"the {name} limit of {limit.asked} was not in force: {limit.reason}",
                hint=f"`sandbox doctor {limit.check}` says what it takes; "
                "--strict refuses to run without it",
            )
        elif limit.state is LimitState.APPROXIMATED and not limit.by_default:
            yield RunWarning(
                code="limit_approximated",
                text=f"the {name} limit of {limit.asked} is only approximated: {limit.reason}",
                hint=f"`sandbox doctor {limit.check}` says what it takes to enforce it",
            )
        elif limit.effective is not None and limit.effective != limit.asked:
            yield RunWarning(
                code="limit_tightened",
                text=f"an outer group holds the {name} limit at {limit.effective}, "
                f"below the {limit.asked} asked for",
            )
    pids = pids_in_force(result)
    if result.totals.pids_refused:
        yield RunWarning(
            code="pids_refused",
            text=f"{result.totals.pids_refused} new processes or threads were refused"
            + ("" if pids is None else f" by the limit of {pids}"),
            hint="raise --pids-limit if the program needs them",
        )


def _about_memory_parts(result: RunResult) -> Iterator[RunWarning]:
    split = None if result.summary is None else result.summary.memory_split
    if split is None or not split.uncounted_bytes:
        return
    late = "behind" if split.uncounted_bytes > 0 else "ahead of"
    yield RunWarning(
        code="memory_stat_late",
        text=f"at the peak the kernel's memory.stat was {format_size(abs(split.uncounted_bytes))} "
        f"{late} memory.current: the parts of the memory are not exact; its peak is",
        hint="the need counts what was in no part; another run may be luckier",
    )


def _about_memory(result: RunResult) -> Iterator[RunWarning]:
    limit, summary = memory_in_force_bytes(result), result.summary
    if limit is None or summary is None or result.outcome is Outcome.OOM_KILLED:
        return
    need, peak = summary.memory_need_bytes, result.totals.memory_peak_bytes
    if need is not None and need > _NEAR_LIMIT_RATIO * limit:
        yield RunWarning(
            code="memory_near_limit",
            text=f"the run needed {format_size(need)} apart from page cache, "
            f"{need / limit:.0%} of its limit of {format_size(limit)}",
            hint="a little more input would end it: give it more with --memory",
        )
    elif need is not None and peak is not None and peak >= _AT_LIMIT_RATIO * limit:
        cache = summary.memory_cache_bytes
        held = "" if cache is None else f" (up to {format_size(cache)})"
        yield RunWarning(
            code="peak_is_cache",
            text=f"the memory peak is the limit itself because of page cache{held}; "
            f"the run needed {format_size(need)}",
            hint="the kernel drops page cache when memory is short",
        )


def _about_threads(result: RunResult) -> Iterator[RunWarning]:
    """Tell of more busy threads than the quota can serve."""
    ratio = None if result.summary is None else result.summary.throttled_ratio
    tasks, cpus = result.totals.pids_peak, cpus_in_force(result)
    if ratio is None or tasks is None or not has_cpu_limit(result):
        return
    # A single busy thread is throttled by any quota below one CPU: that is the limit at work.
    if ratio > _BUSY_THROTTLED_RATIO and tasks > math.ceil(cpus) and _is_bursting(result, cpus):
        yield RunWarning(
            code="oversubscribed",
            text=f"up to {tasks} threads shared {cpus:g} CPUs: "
            f"throttled in {ratio:.0%} of the periods",
            hint=f"let the program use {math.ceil(cpus)} threads, as OMP_NUM_THREADS does",
        )


def _is_bursting(result: RunResult, cpus: float) -> bool:
    """Return whether several threads were throttled at once, as far as the counters tell.

    A thread that waits for the quota alone waits 1 - cpus of each period; more than that, summed
    over CPUs, was waited by others beside it.
    """
    throttled_usec, wall_ns = result.totals.cpu_throttled_usec, result.wall_ns
    if throttled_usec is None or not wall_ns:
        return True
    alone = max(math.ceil(cpus) - cpus, 0.0)
    return throttled_usec * 1_000 / wall_ns > alone + 0.1


def _about_measuring(result: RunResult, observed: Observed | None) -> Iterator[RunWarning]:
    overhead = result.overhead
    if overhead is not None and overhead.missed_ticks > max(_MISSED_RATIO * overhead.ticks, _FEW):
        yield RunWarning(
            code="missed_ticks",
            text=f"{overhead.missed_ticks} of {overhead.ticks + overhead.missed_ticks} samples "
            "were missed; totals are exact, curves and sampled peaks have gaps",
            hint="the host was busy: sample less often with --interval",
        )
    main = None if observed is None else observed.exit
    counted = result.totals.cpu_usage_usec
    if main is None or counted is None or None in {main.cpu_user_usec, main.cpu_system_usec}:
        return
    by_rusage = (main.cpu_user_usec or 0) + (main.cpu_system_usec or 0)
    extra = by_rusage - counted
    if extra > _CROSS_CHECK_USEC and extra > _CROSS_CHECK_RATIO * by_rusage:
        yield RunWarning(
            code="moved_away",
            text=f"the main process used {by_rusage / USEC_PER_SEC:.2f} s of CPU time, but its "
            f"group counted {counted / USEC_PER_SEC:.2f} s: something moved it out of its group, "
            "and with it out of its limits",
            hint="look for a daemon that sorts processes into groups",
        )


def _about_host(result: RunResult, before: HostLoad, after: HostLoad) -> Iterator[RunWarning]:
    swapped_in = _grown(before.swap_in_pages, after.swap_in_pages)
    swapped_out = _grown(before.swap_out_pages, after.swap_out_pages)
    if swapped_in or swapped_out:
        yield RunWarning(
            code="host_swapped",
            text=f"the host swapped during the run: {swapped_in or 0} pages in, "
            f"{swapped_out or 0} out; times may be too long",
            hint="free some memory and run again",
        )
    outside = (_grown(before.oom_kills, after.oom_kills) or 0) - (result.totals.oom_kills or 0)
    if outside > 0 and result.totals.oom_kills is not None:
        yield RunWarning(
            code="host_out_of_memory",
            text=f"{_count(outside, 'process')} outside the run "
            f"{'was' if outside == 1 else 'were'} killed for memory meanwhile",
            hint="the host may have been short of memory: `dmesg` tells",
        )
    throttled = _grown(before.thermal_throttles, after.thermal_throttles)
    if throttled:
        yield RunWarning(
            code="thermal_throttled",
            text=f"the CPUs were slowed for their temperature {_count(throttled, 'time')}",
            hint="let the machine cool down and run again",
        )
    yield from _about_other_load(result, before, after)


def _about_other_load(result: RunResult, before: HostLoad, after: HostLoad) -> Iterator[RunWarning]:
    total = _grown(before.total_usec, after.total_usec)
    if not total or after.time_ns - before.time_ns < _SHORTEST_LOAD_NS:
        return
    steal = _grown(before.steal_usec, after.steal_usec) or 0
    if steal > _STEAL_RATIO * total:
        yield RunWarning(
            code="steal",
            text=f"the hypervisor gave {steal / total:.1%} of the CPU time to others; "
            "times may be too long",
            hint="run on a machine of its own, or compare repeats",
        )
    idle, ours = _grown(before.idle_usec, after.idle_usec), result.totals.cpu_usage_usec
    if idle is None or ours is None:
        return
    measuring = 0 if result.overhead is None else result.overhead.cpu_usec
    other = total - idle - steal - ours - measuring
    if other > _OTHER_LOAD_CPU_RATIO * total:
        cpus = other * 1_000 / (after.time_ns - before.time_ns)
        yield RunWarning(
            code="other_load",
            text=f"other programs kept {cpus:.1f} CPUs of the host busy; times may be too long",
            hint="stop them, or keep the run apart with --cpuset-cpus",
        )


def _about_devices(devices: tuple[DeviceIo, ...]) -> Iterator[RunWarning]:
    """Tell when one byte may have been counted at two layers of devices."""
    used = [device for device in devices if device.read_bytes or device.write_bytes]
    stacked = [device for device in used if _is_stacked(device)]
    if stacked and len(stacked) < len(used):
        names = ", ".join(device.device.split()[-1] for device in stacked)
        yield RunWarning(
            code="stacked_devices",
            text=f"block I/O may be counted twice: {names} lies on another device",
            hint="`sandbox runs show` lists each device",
        )


def _is_stacked(device: DeviceIo) -> bool:
    return device.device.split()[-1].startswith(("dm-", "md", "loop"))


def _grown(before: int | None, after: int | None) -> int | None:
    if before is None or after is None or after < before:
        return None
    return after - before


def _count(number: int, what: str) -> str:
    if number == 1:
        return f"{number} {what}"
    return f"{number} {what}es" if what.endswith("s") else f"{number} {what}s"
