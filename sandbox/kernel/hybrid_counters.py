"""A run's counters on a hybrid host: v1's files in the words of v2's, and the v2 side's own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sandbox.errors import KernelError
from sandbox.kernel import v1
from sandbox.kernel.files import find_text, list_tree
from sandbox.kernel.parse import parse_limit, parse_number
from sandbox.kernel.unified_snapshot import RESOURCES, Disks, Snapshot
from sandbox.kernel.v2 import find_flat, read_pressure
from sandbox.records.light import dataclass
from sandbox.units import UNLIMITED

# Memory is charged in pieces as large as a huge page, so that the last one that is refused may
# leave usage this far below the limit.
_LARGEST_CHARGE_PAGES = 1_024


@dataclass(frozen=True, kw_only=True)
class RunGroups:
    """The groups that hold a run's limits and counters."""

    v2: Path
    v1: Mapping[str, Path]
    """By controller; those that are mounted together have the same directory."""

    def file(self, controller: str, name: str) -> str | None:
        """Return where a control file is, or None without its controller."""
        directory = self.v1.get(controller)
        return None if directory is None else f"{directory}/{name}"


def read_snapshot(groups: RunGroups, disks: Disks) -> Snapshot:
    """Return the counters of a run as they are now; an `OomAlarm` counts the OOMs.

    Of the limit hits it has those that were counted; `count_limit_hits` tells whether all were.
    """
    refused = None
    if "pids" in groups.v1:
        refused = v1.count_everywhere(groups.v1["pids"], v1.PIDS_EVENTS, "max")
    return Snapshot(
        cpu={**find_flat(groups.v2 / "cpu.stat"), **_throttling(groups)},
        io=_io(groups, disks),
        pressures={resource: read_pressure(groups.v2, resource) for resource in RESOURCES},
        memory_events=_as_events("oom_kill", count_oom_kills(groups)),
        memory_events_local=_as_events("max", _count_refusals(groups)),
        pids_events=_as_events("max", refused),
    )


def _as_events(key: str, value: int | None) -> dict[str, int]:
    return {} if value is None else {key: value}


def _find(path: str | None) -> str | None:
    return None if path is None else find_text(path)


def _throttling(groups: RunGroups) -> dict[str, int]:
    text = _find(groups.file("cpu", v1.CPU_STAT))
    values = None if text is None else v1.parse_throttling(text)
    if values is None:
        return {}
    return dict(zip(("nr_periods", "nr_throttled", "throttled_usec"), values, strict=True))


def _io(groups: RunGroups, disks: Disks) -> Mapping[str, Mapping[str, int]] | None:
    moved = _find(groups.file("blkio", v1.IO_BYTES))
    requests = _find(groups.file("blkio", v1.IO_OPERATIONS))
    if moved is None or requests is None or not v1.parse_reads_and_writes(moved):
        return None
    return disks.counted(join_io(moved, requests))


def join_io(moved: bytes | str, requests: bytes | str) -> dict[str, dict[str, int]]:
    """Return bytes and operations of each device in the words of v2's `io.stat`.

    Raises:
        KernelError: they are no blkio files.
    """
    devices: dict[str, dict[str, int]] = {}
    for keys, data in ((("rbytes", "wbytes"), moved), (("rios", "wios"), requests)):
        for device, values in v1.parse_reads_and_writes(data).items():
            devices.setdefault(device, {}).update(zip(keys, values, strict=True))
    return devices


def count_oom_kills(groups: RunGroups) -> int | None:
    """Return the OOM kills of the run and all groups below; None where none is counted.

    v1 counts them in the group of the victim, so those in groups that have gone are lost.
    """
    directory = groups.v1.get("memory")
    if directory is None:
        return None
    return v1.count_everywhere(directory, v1.OOM_CONTROL, "oom_kill")


def count_inner_ooms(groups: RunGroups) -> int:
    """Return how many groups inside the run have a limit of their own and lost a process to OOM.

    The kernel tells nobody above of an OOM below, so this can only be seen afterwards.
    """
    directory = groups.v1.get("memory")
    found = 0
    for group in list_tree(directory)[1:] if directory is not None else ():
        limit = find_text(f"{group}/{v1.MEMORY_LIMIT.file}")
        if limit is None or parse_limit(limit) == UNLIMITED:
            continue
        found += bool(find_flat(Path(group) / v1.OOM_CONTROL).get("oom_kill"))
    return found


def count_limit_hits(groups: RunGroups) -> int | None:
    """Return how often the run's memory limits made the kernel reclaim; None if it cannot tell.

    With no swap allowed the limit of memory plus swap is hit before that of memory, and since
    Linux 6.15 nobody counts that: a 0 then only means 0 if usage has stayed away from the limit.
    """
    hits = _count_refusals(groups)
    return None if hits == 0 and _may_have_hit_uncounted(groups) else hits


def _count_refusals(groups: RunGroups) -> int | None:
    counts = [
        parse_number(text)
        for name in v1.MEMORY_REFUSALS
        if (text := _find(groups.file("memory", name))) is not None
    ]
    return sum(counts) if counts else None


def _may_have_hit_uncounted(groups: RunGroups) -> bool:
    values = [
        _find(groups.file("memory", name))
        for name in (v1.MEMORY_LIMIT.file, v1.MEMORY_SWAP_LIMIT.file, v1.MEMORY_SWAP_PEAK)
    ]
    if any(text is None for text in values):
        return False  # without swap accounting the memory limit is the only one
    limit, total_limit, total_peak = (parse_limit(text or "") for text in values)
    margin = _LARGEST_CHARGE_PAGES * os.sysconf("SC_PAGE_SIZE")
    return total_limit <= limit and total_peak + margin > total_limit


def find_number(path: str | None) -> int | None:
    """Return the number of a file, or None where it lacks or is no number."""
    text = _find(path)
    try:
        return None if text is None else parse_number(text)
    except KernelError:
        return None


def has_kernel_memory(groups: RunGroups) -> bool:
    """Return whether the kernel counts its own memory; each process has some, if it does."""
    return bool(find_number(groups.file("memory", v1.MEMORY_KERNEL)))
