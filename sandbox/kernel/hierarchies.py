"""Which cgroup hierarchies are mounted, and where our own group is in each of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sandbox.kernel.files import find_text
from sandbox.kernel.parse import CgroupMount, parse_cgroup_mounts, parse_own_groups
from sandbox.kernel.roots import Roots
from sandbox.records.light import dataclass

_USUAL_ROOT = "/sys/fs/cgroup"
UNIFIED = ""
"""The unified hierarchy's name in `/proc/PID/cgroup`, where v1 has controllers."""


@dataclass(frozen=True, kw_only=True)
class Hierarchy:
    """One hierarchy as this process sees it."""

    mount: Path
    """The top of what is seen of it."""
    own: Path | None
    """The directory of our own group; None when it cannot be seen here."""
    writable: bool
    """Whether we may make groups in our own and put processes into them."""
    reason: str | None = None
    """Why `own` is None, or why it is not writable."""


@dataclass(frozen=True, kw_only=True)
class Hierarchies:
    """Every mounted hierarchy."""

    v2: Hierarchy | None
    v1: Mapping[str, Hierarchy]
    """By controller; controllers that are mounted together share a directory."""


def find_hierarchies(roots: Roots) -> Hierarchies:
    """Return the mounted hierarchies; none where `/proc` does not tell.

    Raises:
        KernelError: `/proc/self/cgroup` or `mountinfo` makes no sense.
    """
    groups_text = find_text(roots.proc / "self" / "cgroup")
    mounts_text = find_text(roots.proc / "self" / "mountinfo")
    if groups_text is None or mounts_text is None:
        return Hierarchies(v2=None, v1={})
    groups = parse_own_groups(groups_text)
    found: dict[str, Hierarchy] = {}
    for mount in parse_cgroup_mounts(mounts_text):
        for name in (UNIFIED,) if mount.unified else mount.controllers:
            hierarchy = _look(mount, groups.get(name), roots)
            if name not in found or _is_better(hierarchy, found[name]):
                found[name] = hierarchy
    return Hierarchies(v2=found.pop(UNIFIED, None), v1=found)


def _is_better(later: Hierarchy, earlier: Hierarchy) -> bool:
    """Choose among several mounts of one hierarchy: one that shows us, and may be written.

    A later mount at the same place hides the earlier one.
    """
    rank = (later.own is not None, later.writable)
    return later.mount == earlier.mount or rank > (earlier.own is not None, earlier.writable)


def _look(mount: CgroupMount, group: str | None, roots: Roots) -> Hierarchy:
    point = _in_roots(mount.point, roots)
    own, reason = _own_directory(point, mount.root, group)
    if own is None:
        return Hierarchy(mount=point, own=None, writable=False, reason=reason)
    reason = _why_not_writable(own, mounted_writable=mount.writable)
    return Hierarchy(mount=point, own=own, writable=reason is None, reason=reason)


def _in_roots(point: str, roots: Roots) -> Path:
    """Return where a mount point of the usual place is, seen from `roots`."""
    if _is_below(point, _USUAL_ROOT):
        return roots.cgroup / point[len(_USUAL_ROOT) :].lstrip("/")
    return Path(point)


def _own_directory(point: Path, root: str, group: str | None) -> tuple[Path | None, str | None]:
    """Join a mount with our group's name, or say why our group is not seen there.

    Both names are relative to our cgroup namespace; `/..` leads out of it.
    """
    if group is None:
        return None, f"this process has no group in the hierarchy at {point}"
    if not _is_below(group, root):
        return None, (
            f"our own group {group} is outside of what is mounted at {point}, as in a container "
            "that shares the host's cgroup namespace"
        )
    inside = group[len(root) :].lstrip("/")
    own = point / inside if inside else point
    if not os.access(f"{own}/cgroup.procs", os.F_OK):
        return None, f"our own group {group} does not show at {own}; another mount may hide it"
    return own, None


def _is_below(group: str, root: str) -> bool:
    if ".." in group.split("/") or ".." in root.split("/"):
        return False
    return root in {"/", group} or group.startswith(f"{root}/")


def _why_not_writable(own: Path, *, mounted_writable: bool) -> str | None:
    if not mounted_writable:
        return f"{own} is mounted read-only, as container engines do by default"
    if not can_make_groups(own):
        return f"{own} belongs to another user and was not delegated to us"
    return None


def can_make_groups(directory: Path) -> bool:
    """Return whether we may make groups in a directory and move processes of ours into them."""
    return os.access(directory, os.W_OK | os.X_OK) and os.access(
        f"{directory}/cgroup.procs", os.W_OK
    )


def why_invisible(hierarchies: Hierarchies) -> str | None:
    """Return why no hierarchy at all can be used, or None if one shows our own group."""
    every = [*hierarchies.v1.values(), *([hierarchies.v2] if hierarchies.v2 else [])]
    if not every:
        return "no cgroup hierarchy is mounted"
    if any(hierarchy.own is not None for hierarchy in every):
        return None
    return every[-1].reason
