"""The groups of runs that others have made: which hierarchy each is in, and whose they are."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from sandbox.errors import KernelError
from sandbox.kernel import v2
from sandbox.kernel.files import find_text, list_tree
from sandbox.kernel.hierarchies import UNIFIED, find_hierarchies
from sandbox.kernel.parse import parse_own_groups
from sandbox.kernel.place import GROUP_PREFIX
from sandbox.kernel.processes import find_descendants, find_state, read_file, read_stat
from sandbox.kernel.roots import Roots
from sandbox.records.light import dataclass, field

_RUN_ID = re.compile(rf"{re.escape(GROUP_PREFIX)}([0-9a-f]{{12}})")
_KEEPER = b"(sandbox-keeper)"
_STOPPED = {"T", "t"}
_GONE = {None, "Z", "X"}
_FLOCK = re.compile(r"^\d+: FLOCK +\w+ +WRITE (\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) ", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class GroupPaths:
    """Where one run's limits and counters are: its `run-<id>` in each hierarchy."""

    v2: Path | None = None
    """In the unified hierarchy; None for a run without groups."""
    v1: Mapping[str, Path] = field(default_factory=dict)
    """By controller; those that are mounted together share a directory. Empty on v2 hosts."""


def sort_groups(run_id: str, directories: Iterable[Path], roots: Roots) -> GroupPaths:
    """Return the directories that a run has written down by hierarchy, without the inner ones.

    Raises:
        KernelError: the mounts cannot be understood.
    """
    tops = [path for path in directories if path.name == f"{GROUP_PREFIX}{run_id}"]
    if not tops:
        return GroupPaths()
    hierarchies = find_hierarchies(roots)
    below: dict[str, Path] = {}
    for name, hierarchy in hierarchies.v1.items():
        found = next((top for top in tops if top.is_relative_to(hierarchy.mount)), None)
        if found is not None:
            below[name] = found
    v1_tops = set(below.values())
    unified = next((top for top in tops if top not in v1_tops), None)
    if hierarchies.v2 is not None:
        side = hierarchies.v2.mount
        # The v2 mount of a hybrid host is inside the directory that holds the others.
        unified = next((top for top in tops if top.is_relative_to(side)), unified)
        below = {name: path for name, path in below.items() if path != unified}
    return GroupPaths(v2=unified, v1=below)


def find_run_groups(roots: Roots) -> Iterator[tuple[str, Path]]:
    """Yield the id and the v2 group of every run on this host that can be seen, whoever's.

    Raises:
        KernelError: the mounts cannot be understood.
    """
    unified = find_hierarchies(roots).v2
    if unified is None:
        return
    try:
        groups = list_tree(unified.mount)
    except KernelError:
        return
    for group in groups:
        path = Path(group)
        match = _RUN_ID.fullmatch(path.name)
        if match is not None:
            yield match[1], path


def find_v1_groups(run_id: str, pids: Iterable[int], roots: Roots) -> Mapping[str, Path]:
    """Return a run's v1 groups by controller, as the first of its processes that is seen has them.

    Raises:
        KernelError: the mounts cannot be understood.
    """
    mounts = find_hierarchies(roots).v1
    for pid in pids:
        text = find_text(roots.proc / str(pid) / "cgroup")
        if text is None:
            continue
        found: dict[str, Path] = {}
        for name, group in parse_own_groups(text).items():
            parts = Path(group).parts[1:]
            wanted = f"{GROUP_PREFIX}{run_id}"
            if name != UNIFIED and name in mounts and wanted in parts:
                top = mounts[name].mount.joinpath(*parts[: parts.index(wanted) + 1])
                if top.is_dir():  # in a container, names may begin above what is mounted
                    found[name] = top
        return found
    return {}


def is_stopped(groups: GroupPaths, supervisor_pid: int | None, roots: Roots) -> bool:
    """Return whether a run is paused: its group frozen, or every process of it stopped.

    A process that waits for a device is frozen later; that it is to be is enough.
    """
    if groups.v2 is not None:
        asked = (find_text(groups.v2 / "cgroup.freeze") or "").strip()
        return asked == "1" or v2.is_frozen(groups.v2)
    if supervisor_pid is None:
        return False
    keepers = [
        pid for pid in find_descendants(supervisor_pid, roots.proc) if _name(pid, roots) == _KEEPER
    ]
    inside = [pid for keeper in keepers for pid in find_descendants(keeper, roots.proc)]
    states = [state for pid in inside if (state := find_state(pid, roots.proc)) not in _GONE]
    return bool(states) and all(state in _STOPPED for state in states)


def count_tasks(groups: GroupPaths) -> int | None:
    """Return the processes and threads inside; None where no group counts them."""
    directory = groups.v1.get("pids", groups.v2)
    text = None if directory is None else find_text(directory / "pids.current")
    return int(text) if text is not None and text.strip().isdecimal() else None


def find_child(parent: int, pids: Iterable[int], roots: Roots) -> int | None:
    """Return which of some processes has this parent; None if none has."""
    for pid in pids:
        data = read_file(f"{roots.proc}/{pid}/stat")
        if data and data[data.rfind(b")") + 2 :].split()[1] == str(parent).encode():
            return pid
    return None


def first_start_ns(pids: Iterable[int], roots: Roots) -> int | None:
    """Return when the eldest of some processes was started, on the clock of the boot."""
    starts = [stat.start_ticks for pid in pids if (stat := read_stat(pid, roots.proc)) is not None]
    return min(starts) * 1_000_000_000 // os.sysconf("SC_CLK_TCK") if starts else None


def find_locker(lock: os.stat_result, roots: Roots) -> int | None:
    """Return the process that holds the lock of a file; None if the kernel does not tell us.

    It is found by the file's number alone where file systems are layered, and devices differ.
    """
    text = find_text(roots.proc / "locks") or ""
    same = [match for match in _FLOCK.finditer(text) if int(match[4]) == lock.st_ino]
    exact = [
        match for match in same if os.makedev(int(match[2], 16), int(match[3], 16)) == lock.st_dev
    ]
    chosen = exact or same
    pid = int(chosen[0][1]) if len(chosen) == 1 else 0
    return pid if pid > 0 else None


def _name(pid: int, roots: Roots) -> bytes:
    data = read_file(f"{roots.proc}/{pid}/stat")
    return data[data.find(b"(") : data.rfind(b")") + 1]
