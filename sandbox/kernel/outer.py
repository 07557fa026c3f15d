"""The limits of the groups around a run's: the tightest one holds, whatever ours says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from sandbox.errors import KernelError
from sandbox.kernel.files import find_text
from sandbox.kernel.parse import parse_cpu_max, parse_cpuset, parse_flat, parse_limit
from sandbox.records.light import dataclass
from sandbox.units import UNLIMITED

Amount = TypeVar("Amount", int, float)


@dataclass(frozen=True, kw_only=True)
class OuterLimits:
    """The tightest limit of any enclosing group; None where no group has one."""

    cpus: float | None = None
    """CPU bandwidth: quota by period."""
    cpuset_cpus: tuple[int, ...] | None = None
    """The CPUs that the enclosing group may use."""
    memory_bytes: int | None = None
    swap_bytes: int | None = None
    """Swap alone (v2)."""
    memory_swap_bytes: int | None = None
    """Memory and swap together (v1)."""
    pids: int | None = None


def read_outer_v2(chain: Iterable[Path]) -> OuterLimits:
    """Return the tightest limits of the groups in `chain`, which goes from the top down."""
    groups = tuple(chain)
    return OuterLimits(
        cpus=_tightest(groups, "cpu.max", _bandwidth),
        cpuset_cpus=_cpuset(groups[-1] / "cpuset.cpus.effective") if groups else None,
        memory_bytes=_tightest(groups, "memory.max", _limit),
        swap_bytes=_tightest(groups, "memory.swap.max", _limit),
        pids=_tightest(groups, "pids.max", _limit),
    )


def read_outer_v1(parents: Mapping[str, Path], tops: Mapping[str, Path]) -> OuterLimits:
    """Return the tightest limits around v1 groups made in `parents`.

    `tops` are the mount points, where each walk upwards ends.
    """
    pids = _chain(parents, tops, "pids")
    memory: dict[str, int] = {}
    if "memory" in parents:
        # The kernel has already taken the least of all groups above.
        memory = _flat(parents["memory"] / "memory.stat")
    return OuterLimits(
        cpus=_least(_v1_bandwidth(group) for group in _chain(parents, tops, "cpu")),
        cpuset_cpus=_v1_cpuset(parents),
        memory_bytes=_finite(memory.get("hierarchical_memory_limit")),
        memory_swap_bytes=_finite(memory.get("hierarchical_memsw_limit")),
        pids=_tightest(pids, "pids.max", _limit),
    )


def _chain(
    parents: Mapping[str, Path], tops: Mapping[str, Path], controller: str
) -> tuple[Path, ...]:
    """Return the groups from a run's parent up to the mount point."""
    directory, top = parents.get(controller), tops.get(controller)
    if directory is None or top is None:
        return ()
    above = [step for step in directory.parents if step == top or top in step.parents]
    return (directory, *above)


def _tightest(
    groups: Iterable[Path], name: str, parse: Callable[[str], Amount | None]
) -> Amount | None:
    texts = (find_text(group / name) for group in groups)
    return _least(parse(text) for text in texts if text)


def _least(values: Iterable[Amount | None]) -> Amount | None:
    found = [value for value in values if value is not None]
    return min(found) if found else None


def _limit(text: str) -> int | None:
    return _finite(parse_limit(text))


def _finite(value: int | None) -> int | None:
    # v1's "unlimited" is the largest multiple of a page; no machine has half of that.
    return None if value is None or value >= UNLIMITED // 2 else value


def _bandwidth(text: str) -> float | None:
    quota, period = parse_cpu_max(text)
    return None if quota == UNLIMITED or period == 0 else quota / period


def _v1_bandwidth(group: Path) -> float | None:
    quota = find_text(group / "cpu.cfs_quota_us")
    period = find_text(group / "cpu.cfs_period_us")
    if not quota or not period:
        return None
    return _bandwidth(f"{quota.strip()} {period.strip()}")


def _v1_cpuset(parents: Mapping[str, Path]) -> tuple[int, ...] | None:
    if "cpuset" not in parents:
        return None
    directory = parents["cpuset"]
    return _cpuset(directory / "cpuset.effective_cpus") or _cpuset(directory / "cpuset.cpus")


def _cpuset(path: Path) -> tuple[int, ...] | None:
    text = find_text(path)
    return (parse_cpuset(text) or None) if text else None


def _flat(path: Path) -> dict[str, int]:
    text = find_text(path)
    try:
        return {} if text is None else parse_flat(text)
    except KernelError:
        return {}
