"""What this kernel can do, beyond what a run finds out by trying: looked at, nothing is changed.

System calls cannot be sent to a stand-in directory, so what they say is a value of its own,
`Calls`; everything else is read below `Roots`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from sandbox.errors import KernelError
from sandbox.kernel import libc, v2
from sandbox.kernel.files import find_text
from sandbox.kernel.parse import parse_number
from sandbox.kernel.parse_proc import find_status
from sandbox.kernel.place import Place
from sandbox.kernel.roots import Roots
from sandbox.records.light import dataclass

Version = tuple[int, int]

_RELEASE = re.compile(r"(\d+)\.(\d+)")
_CGROUP2_OPTIONS = re.compile(r" - cgroup2 \S+ (\S+)$", re.MULTILINE)
_CONTAINER_FILES = {"run/.containerenv": "podman", ".dockerenv": "docker"}
_SECCOMP_FILTER = 2

INTO_CGROUP = (5, 7)
CGROUP_KILL = (5, 14)
MEMORY_PEAK = (5, 19)
PEAK_RESET = (6, 12)


@dataclass(frozen=True, kw_only=True)
class Calls:
    """What system calls say when they are tried."""

    release: str
    """Of the kernel, as `uname -r` prints it."""
    clone3: bool
    pidfd: bool
    landlock_abi: int
    """0 where there is none."""


@dataclass(frozen=True, kw_only=True)
class UserNamespaces:
    """The three switches by which a host refuses user namespaces to plain users."""

    most: int | None
    """user.max_user_namespaces; 0 refuses them to everybody."""
    is_refused: bool
    """kernel.unprivileged_userns_clone is 0 (Debian's own)."""
    is_restricted: bool
    """kernel.apparmor_restrict_unprivileged_userns is 1 (Ubuntu's own)."""


@dataclass(frozen=True, kw_only=True)
class Features:
    """What a kernel can do for runs; None where it cannot be told here."""

    release: str
    version: Version | None
    clone_into_cgroup: bool
    pidfd: bool
    landlock_abi: int
    security_modules: str | None
    """Those that are on, without the one that always is; None where the kernel does not tell."""
    cgroup_kill: bool | None
    memory_peak: bool | None
    """Whether a v2 group keeps the peak of its memory."""
    peak_reset: bool | None
    """Whether a v2 group's peak can be started anew."""
    swap_accounting: bool | None
    """Whether swap is limited by group."""
    pressure: bool
    nsdelegate: bool | None
    """Whether a cgroup namespace is a border of delegation; None without a v2 mount."""
    user_namespaces: UserNamespaces
    overlay: str | None
    """`loaded` or `loadable`; None where there is none."""
    seccomp: str | None
    """`off` or `filtered` (somebody has put a filter on us); None where the kernel has none."""
    container: str | None
    """What kind of container we are in, as far as it shows."""
    wsl: bool
    boot_tool: str | None
    """What changes the kernel's command line here: `grub`, `grubby` or None."""


def probe_calls() -> Calls:
    """Try the system calls of which a kernel or a container's filter may lack one."""
    return Calls(
        release=os.uname().release,
        clone3=libc.has_clone3(),
        pidfd=_has_pidfd(),
        landlock_abi=libc.landlock_abi(),
    )


def _has_pidfd() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


def read_features(roots: Roots, place: Place, calls: Calls) -> Features:
    """Return what this kernel can do; `place` is where runs are made."""
    version = parse_release(calls.release)
    return Features(
        release=calls.release,
        version=version,
        clone_into_cgroup=calls.clone3 and _since(version, INTO_CGROUP) is not False,
        pidfd=calls.pidfd,
        landlock_abi=calls.landlock_abi,
        security_modules=_security_modules(roots),
        cgroup_kill=_has_file(place, "cgroup.kill", version, CGROUP_KILL),
        memory_peak=_has_file(place, "memory.peak", version, MEMORY_PEAK),
        peak_reset=_since(version, PEAK_RESET),
        swap_accounting=_has_swap_accounting(place),
        pressure=_has_pressure(roots),
        nsdelegate=_has_nsdelegate(roots),
        user_namespaces=_user_namespaces(roots),
        overlay=_overlay(roots, calls.release),
        seccomp=_seccomp(roots),
        container=_container(roots),
        wsl="microsoft" in calls.release.lower(),
        boot_tool=_boot_tool(roots),
    )


def parse_release(release: str) -> Version | None:
    """Return the two numbers that order kernels: `6.1.0-13-amd64` is (6, 1)."""
    found = _RELEASE.match(release)
    return None if found is None else (int(found[1]), int(found[2]))


def _since(version: Version | None, first: Version) -> bool | None:
    return None if version is None else version >= first


# --- files of groups


def _has_file(place: Place, name: str, version: Version | None, since: Version) -> bool | None:
    """Return whether v2 groups have a file: the group itself tells, unless it is the root."""
    group = place.v2 or place.own  # ours shows what a scope that is still to be made will have
    if group is not None and not v2.is_real_root(group):
        controller = name.partition(".")[0]
        if controller == "cgroup" or controller in v2.read_controllers(group):
            return (group / name).exists()
    return _since(version, since)


def _has_swap_accounting(place: Place) -> bool | None:
    """Return whether groups limit swap, or None where no group that would show it is seen."""
    if "memory" in place.v1:
        return (place.v1["memory"] / "memory.memsw.limit_in_bytes").exists()
    group = place.v2 or place.own
    if group is None or "memory" not in v2.read_controllers(group):
        return None
    if not v2.is_real_root(group):
        return (group / "memory.swap.max").exists()
    # The root group has no limits; any group right below it shows what groups have.
    below = next(group.glob("*/memory.max"), None)
    return None if below is None else below.with_name("memory.swap.max").exists()


# --- the rest


def _has_pressure(roots: Roots) -> bool:
    # Where PSI is compiled in but off, the files are there and cannot be read.
    return bool(find_text(roots.proc / "pressure" / "cpu"))


def _has_nsdelegate(roots: Roots) -> bool | None:
    mounts = _CGROUP2_OPTIONS.findall(find_text(roots.proc / "self" / "mountinfo") or "")
    if not mounts:
        return None
    return any("nsdelegate" in options.split(",") for options in mounts)


def _user_namespaces(roots: Roots) -> UserNamespaces:
    settings = roots.proc / "sys"
    return UserNamespaces(
        most=find_number(settings / "user" / "max_user_namespaces"),
        is_refused=find_number(settings / "kernel" / "unprivileged_userns_clone") == 0,
        is_restricted=find_number(settings / "kernel" / "apparmor_restrict_unprivileged_userns")
        == 1,
    )


def find_number(path: Path) -> int | None:
    """Return the number of a file with one value; None if there is none."""
    text = find_text(path)
    try:
        return None if text is None else parse_number(text)
    except KernelError:
        return None


def _security_modules(roots: Roots) -> str | None:
    text = find_text(roots.sys / "kernel" / "security" / "lsm")
    if text is None:
        return None
    return ",".join(name for name in text.strip().split(",") if name != "capability")


def _overlay(roots: Roots, release: str) -> str | None:
    known = (find_text(roots.proc / "filesystems") or "").split()
    if "overlay" in known:
        return "loaded"
    modules = roots.top / "lib" / "modules" / release / "kernel" / "fs" / "overlayfs"
    return "loadable" if modules.is_dir() else None


def _seccomp(roots: Roots) -> str | None:
    status = find_text(roots.proc / "self" / "status")
    mode = None if status is None else find_status(status, "Seccomp")
    if mode is None:
        return None
    return "filtered" if mode == str(_SECCOMP_FILTER) else "off"


def _container(roots: Roots) -> str | None:
    # systemd's own convention, which LXC, Incus and nspawn follow.
    told = (find_text(roots.top / "run" / "systemd" / "container") or "").strip()
    if told:
        return told
    for file, kind in _CONTAINER_FILES.items():
        if (roots.top / file).exists():
            return kind
    if (roots.top / "var/run/secrets/kubernetes.io").exists():
        return "kubernetes"
    return None


def _boot_tool(roots: Roots) -> str | None:
    if any((roots.top / path).exists() for path in ("usr/sbin/grubby", "usr/bin/grubby")):
        return "grubby"
    return "grub" if (roots.top / "etc/default/grub").exists() else None
