"""The groups of runs that others have made: which hierarchy each is in, and whose they are."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from sandbox.kernel import v2
from sandbox.kernel.files import find_text
from sandbox.kernel.hierarchies import find_hierarchies
from sandbox.kernel.parse import parse_own_groups
from sandbox.kernel.place import GROUP_PREFIX
from sandbox.kernel.processes import find_descendants, find_state, read_file, read_stat
from sandbox.kernel.roots import Roots
from sandbox.records.light import dataclass, field

_RUN_ID = re.compile(rf"{re.escape(GROUP_PREFIX)}([0-9a-f]{{12}})")
_KEEPER = b"(sandbox-keeper)"
_STOPPED = {"T", "t"}
_LINKS_OF_A_LEAF = 2
_GONE = {None, "Z", "X"}
_FLOCK = re.compile(r"^\d+: FLOCK +\w+ +WRITE (\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) ", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class GroupPaths:
    """Where one run's limits and counters are: its `run-<id>` in each hierarchy."""

    v2: Path | None = None
    """In the unified hierarchy; None for a run without groups."""
    v1: Mapping[str, Path] = field(default_factory=dict)
    """By controller; those that are mounted together share a directory. Empty on v2 hosts."""


class Finder:
    """Finds groups and supervisors of many runs; what these have in common is read only once."""

    def __init__(self, roots: Roots) -> None:
        """Read what is mounted.

        Raises:
            KernelError: the mounts cannot be understood.
        """
        self._roots = roots
        hierarchies = find_hierarchies(roots)
        self._v1 = {name: str(one.mount) for name, one in hierarchies.v1.items()}
        self._v2 = None if hierarchies.v2 is None else str(hierarchies.v2.mount)
        self._locks: dict[int, list[tuple[int, int]]] | None = None

    def sort(self, run_id: str, directories: Iterable[Path]) -> GroupPaths:
        """Return the directories that a run has written down, by hierarchy, without inner ones."""
        end = f"/{GROUP_PREFIX}{run_id}"
        tops = [text for text in map(str, directories) if text.endswith(end)]
        # The v2 mount of a hybrid host is inside the directory that holds the others.
        unified = None if self._v2 is None else _below(self._v2, tops)
        v1 = {
            name: Path(top)
            for name, mount in self._v1.items()
            if (top := _below(mount, tops)) is not None and top != unified
        }
        return GroupPaths(v2=None if unified is None else Path(unified), v1=v1)

    def find_runs(self) -> Iterator[tuple[str, Path]]:
        """Yield the id and the v2 group of every run on this host that is seen, whoever's."""
        waiting = [] if self._v2 is None else [self._v2]
        while waiting:
            for path in _groups_in(waiting.pop()):
                waiting.append(path)
                match = _RUN_ID.fullmatch(path.rpartition("/")[2])
                if match is not None:
                    yield match[1], Path(path)

    def find_v1(self, run_id: str, pids: Iterable[int]) -> Mapping[str, Path]:
        """Return a run's v1 groups by controller, as the first of its processes seen has them.

        Raises:
            KernelError: the kernel's list of a process's groups cannot be understood.
        """
        wanted = f"{GROUP_PREFIX}{run_id}"
        for pid in pids if self._v1 else ():
            text = find_text(self._roots.proc / str(pid) / "cgroup")
            if text is None:
                continue
            found: dict[str, Path] = {}
            for name, group in parse_own_groups(text).items():
                parts = Path(group).parts[1:]
                if name in self._v1 and wanted in parts:
                    top = Path(self._v1[name], *parts[: parts.index(wanted) + 1])
                    if top.is_dir():  # in a container, names may begin above what is mounted
                        found[name] = top
            return found
        return {}

    def find_locker(self, lock: os.stat_result) -> int | None:
        """Return the process that holds the lock of a file; None if the kernel does not tell us.

        It is found by the file's number alone where file systems are layered: devices differ.
        """
        if self._locks is None:
            self._locks = {}
            for match in _FLOCK.finditer(find_text(self._roots.proc / "locks") or ""):
                device = os.makedev(int(match[2], 16), int(match[3], 16))
                self._locks.setdefault(int(match[4]), []).append((device, int(match[1])))
        same = self._locks.get(lock.st_ino, [])
        chosen = [pid for device, pid in same if device == lock.st_dev] or [pid for _, pid in same]
        return chosen[0] if len(chosen) == 1 and chosen[0] > 0 else None


def _below(mount: str, paths: Iterable[str]) -> str | None:
    return next((path for path in paths if path.startswith(f"{mount}/")), None)


def _groups_in(directory: str) -> list[str]:
    """Return the groups right below one; none if it has gone or is closed to us."""
    try:
        if os.stat(directory).st_nlink == _LINKS_OF_A_LEAF:  # noqa: PTH116 - of every group
            return []
        with os.scandir(directory) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


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


def _name(pid: int, roots: Roots) -> bytes:
    data = read_file(f"{roots.proc}/{pid}/stat")
    return data[data.find(b"(") : data.rfind(b")") + 1]
