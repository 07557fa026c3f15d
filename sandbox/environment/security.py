"""Docker's flags about privileges: what they mean on this host, or why they cannot be had."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sandbox.environment.system_calls import find_filter
from sandbox.errors import HostError
from sandbox.kernel import capabilities
from sandbox.kernel.roots import Roots
from sandbox.records.enclosure import GpuPlan, Mount
from sandbox.records.light import dataclass, replace
from sandbox.records.result import RunWarning
from sandbox.records.security import (
    Confinement,
    Device,
    DeviceRule,
    Protection,
    ProtectionState,
    Security,
    Sharing,
)

_OF_THE_HOST = frozenset(
    {
        *("audit_control", "audit_read", "audit_write", "block_suspend", "bpf", "linux_immutable"),
        *("mac_admin", "mac_override", "perfmon", "sys_module", "sys_rawio", "sys_time"),
        *("sys_tty_config", "syslog", "wake_alarm"),
    }
)
"""What the kernel asks of the host's own root: in a user namespace it opens nothing."""
_NOT_ASKED_FOR = frozenset({"audit_write"})
_USUAL_RULES = (
    DeviceRule(kind="a", access="m"),
    *(DeviceRule(kind="c", major=1, minor=minor) for minor in (3, 5, 7, 8, 9)),
    *(DeviceRule(kind="c", major=5, minor=minor) for minor in (0, 1, 2)),
    DeviceRule(kind="c", major=136),
)
"""Docker's: all may be made; null, zero, full, random, urandom, tty, console, ptmx and the ends of
terminals may be used."""
_NO_DEVICES = ("pts", "shm", "mqueue", "fd", "core")


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """What becomes of the flags."""

    confinement: Confinement
    devices: tuple[Device, ...] = ()
    device_rules: tuple[DeviceRule, ...] | None = None
    """What may be used of all devices; None where nothing filters them."""
    mounts: tuple[Mount, ...] = ()
    paths: tuple[tuple[str, str], ...] = ()
    """Variables and what is put before their value."""
    protections: tuple[Protection, ...] = ()
    warnings: tuple[RunWarning, ...] = ()


def resolve_security(
    security: Security, roots: Roots, *, is_plain: bool, has_group: bool = True
) -> Resolved:
    """Return what a child gives up, and what is shown to it.

    Args:
        security: What was asked for.
        roots: The host's file systems.
        is_plain: Whether the run is in a user namespace, as a plain user's is.
        has_group: Whether it will have a v2 group.

    Raises:
        HostError: something cannot be had here.
        SpecError: the profile of system calls is none.
    """
    gpus = GpuPlan()
    if security.gpus is not None:
        from sandbox.environment.gpus import plan_gpus

        gpus = plan_gpus(security.gpus, roots)
    names = find_capabilities(security, is_plain=is_plain)
    code, seccomp = find_filter(security, names)
    devices = (*_find_devices(security, is_plain=is_plain), *gpus.devices)
    rules, filtered = _find_rules(security, devices, is_plain=is_plain, has_group=has_group)
    return Resolved(
        confinement=Confinement(
            capabilities=capabilities.mask_of(names),
            no_new_privileges=_has_no_new_privileges(security),
            filter=code,
        ),
        devices=devices,
        device_rules=rules,
        mounts=gpus.mounts,
        paths=gpus.variables,
        protections=(
            seccomp,
            _describe_capabilities(names),
            Protection(
                name="no_new_privileges",
                state=_on(_has_no_new_privileges(security)),
                detail="set-user-ID programs and file capabilities give nothing"
                if _has_no_new_privileges(security)
                else "asked for by flags",
            ),
            *filtered,
            *_describe_open(security),
        ),
        warnings=tuple(_warnings(security, names, is_plain=is_plain)),
    )


def _on(value: bool) -> ProtectionState:  # noqa: FBT001 - a conversion
    return ProtectionState.ON if value else ProtectionState.OFF


def _has_no_new_privileges(security: Security) -> bool:
    if security.no_new_privileges is None:
        return not security.privileged
    return security.no_new_privileges


def find_capabilities(security: Security, *, is_plain: bool) -> frozenset[str]:
    """Return the capabilities that root inside holds, as docker puts them together.

    Raises:
        HostError: one that was asked for by name cannot be had here.
    """
    held = _held(is_plain=is_plain)
    named = frozenset(security.cap_add) - {"all"}
    if missing := sorted(named - held):
        raise HostError(
            f"CAP_{missing[0].upper()} was asked for, but this process does not hold it itself",
            hint="a container's root lacks what the container was not given",
        )
    if is_plain and (idle := sorted(named & _OF_THE_HOST - _NOT_ASKED_FOR)):
        raise HostError(
            f"CAP_{idle[0].upper()} gives nothing to a plain user: the kernel asks it of the "
            "host's own root",
            hint="leave it out, or run as root",
        )
    if security.privileged:
        return held
    if "all" in security.cap_add:
        return held - frozenset(security.cap_drop)
    if "all" in security.cap_drop:
        return named
    return (frozenset(capabilities.KEPT) & held | named) - frozenset(security.cap_drop)


def _held(*, is_plain: bool) -> frozenset[str]:
    if is_plain:
        return frozenset(capabilities.NAMES)  # all of those of its own namespace
    mask = capabilities.read_held(Path("/proc/self/status").read_text("utf-8", "replace"))
    return frozenset(name for number, name in enumerate(capabilities.NAMES) if mask >> number & 1)


def _describe_capabilities(names: frozenset[str]) -> Protection:
    every = len(names) == len(capabilities.NAMES)
    return Protection(
        name="capabilities",
        state=_on(not every),
        detail="all" if every else f"{len(names)}: {' '.join(sorted(names))}" if names else "none",
    )


def _describe_open(security: Security) -> Iterator[Protection]:
    if security.privileged:
        yield Protection(
            name="system",
            state=ProtectionState.OFF,
            detail="by --privileged: /proc, /sys and all devices are open",
        )
    for name, sharing in (("ipc", security.ipc), ("pid", security.pid)):
        if sharing is Sharing.HOST:
            detail = f"by --{name} host"
            yield Protection(name=name, state=ProtectionState.OFF, detail=detail)


def _warnings(security: Security, names: frozenset[str], *, is_plain: bool) -> Iterator[RunWarning]:
    if security.privileged and is_plain:
        yield RunWarning(
            code="privileged_rootless",
            text="--privileged gives a plain user no more than that user has on the host",
        )
    elif security.privileged or "sys_admin" in names:
        yield RunWarning(
            code="not_apart",
            text="the program can reach all of the host: it is root with CAP_SYS_ADMIN",
            hint="leave out --privileged and --cap-add SYS_ADMIN if you do not trust it",
        )


# Devices


def _find_devices(security: Security, *, is_plain: bool) -> tuple[Device, ...]:
    devices = [each for device in security.devices for each in _expand(device)]
    for device in devices:
        if is_plain and not os.access(device.source, os.R_OK | os.W_OK):
            raise HostError(
                f"the device {device.source} cannot be given: you may not read and write it",
                hint="its group may: `ls -l` names it, `sudo usermod -aG GROUP $USER` adds you",
            )
    if security.privileged:
        devices += _all_devices({device.target for device in devices})
    return tuple(devices)


def _expand(device: Device) -> Iterator[Device]:
    """Yield one device, or all that are in a directory.

    Raises:
        HostError: there is none.
    """
    source = os.path.realpath(device.source)
    try:
        kind = os.stat(source).st_mode  # noqa: PTH116 - many in a row
        inside = sorted(os.listdir(source)) if stat.S_ISDIR(kind) else []  # noqa: PTH208 - names
    except OSError as exc:
        raise HostError(
            f"there is no device {device.source}: {exc.strerror}",
            hint="`ls /dev` shows those of this host",
        ) from None
    if stat.S_ISCHR(kind) or stat.S_ISBLK(kind):
        yield replace(device, source=source)
        return
    found = [name for name in inside if _is_device(f"{source}/{name}")]
    if not found:
        raise HostError(f"{device.source} is not a device, and no directory of devices")
    for name in found:
        yield replace(device, source=f"{source}/{name}", target=f"{device.target}/{name}")


def _find_rules(
    security: Security, devices: tuple[Device, ...], *, is_plain: bool, has_group: bool
) -> tuple[tuple[DeviceRule, ...] | None, tuple[Protection, ...]]:
    """Return which devices may be used, None for all, and what is said of it.

    Raises:
        HostError: less than the modes of devices allow was asked for, and nothing could refuse it.
    """
    if security.privileged:
        return None, ()
    if is_plain or not has_group:
        why = "it takes root" if is_plain else "this run has no group of cgroup v2"
        if security.filters_devices:
            raise HostError(
                f"devices cannot be filtered here, for them to be read or written alone: {why}",
                hint="the modes of a device hold for the program's user: leave out the permissions "
                "and --device-cgroup-rule",
            )
        if is_plain:  # who could not open more than on the host, and makes none
            return None, ()
        unavailable = ProtectionState.UNAVAILABLE
        return None, (Protection(name="devices", state=unavailable, detail=why),)
    rules = (*_USUAL_RULES, *_stdio_rules(), *map(_rule_of, devices), *security.device_rules)
    more = len(devices) + len(security.device_rules)
    detail = "docker's default" + (f", and {more} by flags" if more else "")
    return rules, (Protection(name="devices", state=ProtectionState.ON, detail=detail),)


def _rule_of(device: Device) -> DeviceRule:
    found = os.stat(device.source)  # noqa: PTH116 - many in a row
    kind = "b" if stat.S_ISBLK(found.st_mode) else "c"
    major, minor = os.major(found.st_rdev), os.minor(found.st_rdev)
    return DeviceRule(kind=kind, major=major, minor=minor, access=device.permissions)


def _stdio_rules() -> Iterator[DeviceRule]:
    """Yield what lets a program open its own terminal or other device again, by /dev/stdout."""
    for fd in range(3):
        with suppress(OSError):
            found = os.fstat(fd)
            if stat.S_ISCHR(found.st_mode):
                major, minor = os.major(found.st_rdev), os.minor(found.st_rdev)
                yield DeviceRule(kind="c", major=major, minor=minor, access="rw")


def _is_device(path: str) -> bool:
    try:
        kind = os.lstat(path).st_mode
    except OSError:
        return False
    return stat.S_ISCHR(kind) or stat.S_ISBLK(kind)


def _all_devices(taken: set[str]) -> list[Device]:
    """Return every device of the host but those that each run has of its own."""
    found = []
    for directory, names, files in os.walk("/dev"):
        if directory == "/dev":
            names[:] = [name for name in names if name not in _NO_DEVICES]
        for name in files:
            path = f"{directory}/{name}"
            if path not in taken and _is_device(path) and not _is_usual(path):
                found.append(Device(source=path, target=path))
    return found


def _is_usual(path: str) -> bool:
    from sandbox.kernel.dev_mounts import USUAL

    return path.removeprefix("/dev/").encode() in USUAL
