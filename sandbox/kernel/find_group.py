"""Finding a group that somebody else has made, by its path, in every hierarchy that has it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from sandbox.errors import KernelError
from sandbox.kernel import v2
from sandbox.kernel.files import find_text
from sandbox.kernel.hierarchies import UNIFIED, find_hierarchies
from sandbox.kernel.live_parts import list_members
from sandbox.kernel.parse import parse_own_groups
from sandbox.kernel.roots import Roots
from sandbox.kernel.run_groups import GroupPaths
from sandbox.records.light import dataclass

_CONTAINER_ID = re.compile(r"[0-9a-f]{64}")
_SHORT_ID = 12


@dataclass(frozen=True, kw_only=True)
class FoundGroup:
    """One existing group."""

    id: str
    """A container's own id where the path has one; else the kernel's number of the group."""
    name: str
    """Its own name, with ids as short as docker shows them."""
    groups: GroupPaths


def find_group(asked: str, roots: Roots) -> FoundGroup:
    """Return the group of a path.

    Args:
        asked: The path below the hierarchies, such as `system.slice/ssh.service`, or that of its
            directory in one of them. A v1 host may have it elsewhere in other hierarchies: there
            it is found by its processes.
        roots: The kernel's file systems.

    Raises:
        KernelError: there is no such group.
    """
    mounts = _mounts(roots)
    relative = _relative(asked, mounts)
    found = {name: mount / relative for name, mount in mounts.items()}
    found = {name: path for name, path in found.items() if _is_group(path)}
    if not found or ".." in relative.split("/"):
        raise KernelError(
            f"there is no cgroup `{asked}`",
            hint="give its path as in /proc/PID/cgroup, or its directory below /sys/fs/cgroup",
        )
    found = {**_by_process(found, mounts, roots), **found}
    unified = found.pop(UNIFIED, None)
    if unified is not None and "memory" in found and not v2.is_populated(unified):
        unified = None  # engines of v1's time may make it, but leave the processes outside
    groups = GroupPaths(v2=unified, v1=found)
    return FoundGroup(
        id=_id(relative, groups),
        name=_CONTAINER_ID.sub(_shortened, relative.rpartition("/")[2]) or "/",
        groups=groups,
    )


def _mounts(roots: Roots) -> dict[str, Path]:
    hierarchies = find_hierarchies(roots)
    mounts = {
        name: hierarchy.mount
        for name, hierarchy in hierarchies.v1.items()
        if not name.startswith("name=")
    }
    if hierarchies.v2 is not None:
        mounts[UNIFIED] = hierarchies.v2.mount
    return mounts


def _relative(asked: str, mounts: Mapping[str, Path]) -> str:
    """Return the path below the hierarchies."""
    real = os.path.realpath(asked)
    tops = {os.path.realpath(mount) for mount in mounts.values()}
    around = [top for top in tops if f"{real}/".startswith(f"{top}/")]
    if asked.startswith("/") and around and _is_group(Path(real)):
        return real[len(max(around, key=len)) :].strip("/")
    return asked.strip("/")


def _is_group(path: Path) -> bool:
    return os.path.isfile(path / "cgroup.procs")  # noqa: PTH113 - False for whatever is wrong


def _by_process(
    found: Mapping[str, Path], mounts: Mapping[str, Path], roots: Roots
) -> dict[str, Path]:
    """Return where else a process of the group is: in groups of the same name."""
    for name, directory in found.items():
        pid = next(list_members(directory), None)
        text = None if pid is None else find_text(roots.proc / str(pid) / "cgroup")
        if text is None:
            continue
        paths = parse_own_groups(text)
        same = {}
        for other in mounts.keys() - found.keys():
            parts = Path(paths.get(other, "/")).parts
            if directory.name in parts:
                last = len(parts) - parts[::-1].index(directory.name)
                path = mounts[other].joinpath(*parts[1:last])
                if _is_group(path):
                    same[other] = path
        return {key: path for key, path in same.items() if key != name}
    return {}


def _shortened(container_id: re.Match[str]) -> str:
    return container_id[0][:_SHORT_ID]


def _id(relative: str, groups: GroupPaths) -> str:
    container = _CONTAINER_ID.findall(relative)
    if container:
        return str(container[-1])
    directory = groups.v2 or groups.v1.get("memory") or next(iter(groups.v1.values()))
    return f"{directory.stat().st_ino:012x}"
