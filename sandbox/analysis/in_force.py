"""Which limits really held a run: what was read back, an outer group's value, the host's CPUs."""

from __future__ import annotations

from typing import Any

from sandbox.errors import SpecError
from sandbox.records.limits import LimitReport, LimitState
from sandbox.records.result import RunResult
from sandbox.units import UNLIMITED, parse_cpu_list, parse_cpus, parse_size

_UNBOUNDED_V1 = 1 << 62  # v1 writes "no limit" as the largest number of whole pages


def find_limit(result: RunResult, name: str) -> LimitReport | None:
    """Return the report of one limit, or None if it was neither asked for nor a default."""
    return next((limit for limit in result.limits if limit.name == name), None)


def asked_limits(result: RunResult) -> dict[str, Any]:
    """Return what the user asked for as plain values: fields of `Limits` with their units."""
    limits = result.spec.get("limits")
    return limits if isinstance(limits, dict) else {}


def cpus_in_force(result: RunResult) -> float:
    """Return how many CPUs the run could use: its limit, its CPU list, or those of the host."""
    candidates = [float(len(result.host.cpus_allowed) or len(result.host.cpus_online))]
    bandwidth = _held(find_limit(result, "cpus"))
    if bandwidth is not None:
        candidates.append(_bandwidth(bandwidth))
    cpuset = _held(find_limit(result, "cpuset_cpus"))
    if cpuset is not None:
        candidates.append(_cpu_count(cpuset))
    return min(candidate for candidate in candidates if candidate > 0)


def has_cpu_limit(result: RunResult) -> bool:
    """Return whether CPU bandwidth is limited below the host's CPUs by a quota in force."""
    limit = _held(find_limit(result, "cpus"))
    return limit is not None and _bandwidth(limit) > 0


def memory_in_force_bytes(result: RunResult) -> int | None:
    """Return the memory limit that held, or None if there was none."""
    limit = _held(find_limit(result, "memory"))
    if limit is None:
        return None
    exact = asked_limits(result).get("memory_bytes")
    for value in (
        _bytes(limit.effective),
        _bytes(limit.value),
        exact if isinstance(exact, int) else None,
        _bytes(limit.asked),
    ):
        if value is not None:
            return value if value < _UNBOUNDED_V1 else None
    return None


def pids_in_force(result: RunResult) -> int | None:
    """Return the limit of processes and threads that held, or None if there was none."""
    limit = _held(find_limit(result, "pids"))
    if limit is None:
        return None
    for text in (limit.effective, limit.value, limit.asked):
        if text is not None and text.strip().isdecimal():
            return int(text)
    return None


def _held(limit: LimitReport | None) -> LimitReport | None:
    return None if limit is None or limit.state is LimitState.UNAVAILABLE else limit


def _bandwidth(limit: LimitReport) -> float:
    """Return CPUs, or 0 if the limit does not bound them."""
    if limit.state is LimitState.APPROXIMATED and "affinity" in (limit.file or ""):
        return _cpu_count(limit)
    read_back = limit.value if limit.value and " " in limit.value.strip() else None
    for text in (limit.effective, read_back, limit.asked):
        try:
            if text is not None:
                return _quota(text)
        except SpecError:
            continue
    return 0.0


def _quota(text: str) -> float:
    """Read `1.5` or the kernel's own `150000 100000`."""
    quota, space, period = text.strip().partition(" ")
    if space and quota.isdecimal() and period.isdecimal() and int(period) > 0:
        return int(quota) / int(period)
    return parse_cpus(quota)


def _cpu_count(limit: LimitReport) -> float:
    for text in (limit.effective, limit.value, limit.asked):
        try:
            if text:
                return float(len(parse_cpu_list(text)))
        except SpecError:
            continue
    return 0.0


def _bytes(text: str | None) -> int | None:
    if text is None:
        return None
    if text.strip() in {"max", "unlimited", "-1"}:
        return UNLIMITED
    try:
        return parse_size(text)
    except SpecError:
        return None
