"""Ending what the v2 side alone cannot: processes that left its group, or that v1 has frozen."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath

from sandbox.errors import KernelError
from sandbox.kernel import v1, v2
from sandbox.kernel.files import find_text, write_text
from sandbox.kernel.hybrid_counters import RunGroups
from sandbox.kernel.parse import parse_own_groups
from sandbox.kernel.roots import Roots

# Even a large process has given back its memory by then; what is left may be frozen.
_THAW_AFTER_SEC = 0.5
_FIRST_PAUSE_SEC = 0.001
_LONGEST_PAUSE_SEC = 0.05
_FREEZER = "freezer"


def signal_pids(pids: Iterable[int], signal_number: int) -> int:
    """Send a signal to each process; return how many were reached."""
    reached = 0
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal_number)
            reached += 1
    return reached


def kill_all(groups: RunGroups, freezer: Path | None, roots: Roots) -> None:
    """SIGKILL everything in the run's groups of every hierarchy; return when they are empty.

    A privileged program can move its processes out of the v2 group, or freeze them by a v1 group
    that it has made below `freezer`, our own group of that hierarchy: these die too.

    Raises:
        KernelError: something cannot be killed within ten seconds.
    """
    try:
        v2.kill(groups.v2, patience_sec=_THAW_AFTER_SEC)
    except KernelError:
        thaw(v2.list_pids(groups.v2), freezer, roots)
        v2.kill(groups.v2)
    _kill_outsiders(groups, freezer, roots)


def _kill_outsiders(groups: RunGroups, freezer: Path | None, roots: Roots) -> None:
    directories = set(groups.v1.values())
    started = time.monotonic()
    pause_sec = _FIRST_PAUSE_SEC
    while pids := v1.list_pids(directories):
        if "pids" in groups.v1:
            with suppress(KernelError):  # or else a fork storm could outrun the list
                v1.write_number(groups.v1["pids"], v1.PIDS_LIMIT, 0)
        signal_pids(pids, signal.SIGKILL)
        waited_sec = time.monotonic() - started
        if waited_sec > _THAW_AFTER_SEC:
            thaw(pids, freezer, roots)
        if waited_sec > v2.KILL_PATIENCE_SEC:
            raise KernelError(
                f"cannot kill everything in {', '.join(map(str, sorted(directories)))}: after "
                f"{v2.KILL_PATIENCE_SEC:g} s these processes are still alive: {pids}",
                hint="they wait for a device or a network file system inside the kernel",
            )
        time.sleep(pause_sec)
        pause_sec = min(2 * pause_sec, _LONGEST_PAUSE_SEC)


def thaw(pids: Iterable[int], freezer: Path | None, roots: Roots) -> None:
    """Let go what a v1 freezer group below our own one holds: frozen there, nothing can die."""
    own = _freezer_group("self", roots)
    if freezer is None or own is None:
        return
    for group in {_freezer_group(str(pid), roots) for pid in pids}:
        if group is None or group == own or not group.is_relative_to(own):
            continue
        below = group.relative_to(own).parts
        for depth in range(1, len(below) + 1):
            with suppress(KernelError):  # it may have gone
                write_text(freezer.joinpath(*below[:depth], "freezer.state"), "THAWED")


def _freezer_group(process: str, roots: Roots) -> PurePosixPath | None:
    text = find_text(roots.proc / process / "cgroup")
    name = None if text is None else parse_own_groups(text).get(_FREEZER)
    return None if name is None else PurePosixPath(name)
