"""What keeps a program apart: what was asked for, what it gives up, and what became of it.

A protection is not a limit: it changes what a program may do, not how much.
"""

from __future__ import annotations

from enum import StrEnum

from sandbox.records.light import dataclass

UNCONFINED = "unconfined"
OWNERLESS = "ownerless"
"""Docker's default filter, but to give a file or oneself to another user does nothing and succeeds:
for steps of builds in which there is one user only."""


class Sharing(StrEnum):
    """Whether a namespace is the run's own."""

    PRIVATE = "private"
    HOST = "host"
    NONE = "none"
    """Private, and without /dev/shm."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """A device of the host to show inside."""

    source: str
    target: str
    permissions: str = "rwm"
    """Of reading, writing and making: what root inside may do with it."""


@dataclass(frozen=True, kw_only=True)
class DeviceRule:
    """Devices that a run may use, and how."""

    kind: str
    """`b` for block devices, `c` for character devices, `a` for both."""
    major: int | None = None
    """None for all."""
    minor: int | None = None
    access: str = "rwm"
    """As `permissions` of a device."""


@dataclass(frozen=True, kw_only=True)
class Gpus:
    """Which GPUs to show inside: all, so many, or those with these numbers or ids."""

    count: int | None = None
    """None with no `devices` means all."""
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Security:
    """What a user can ask of the privileges of a run in a root file system of its own."""

    privileged: bool = False
    cap_add: tuple[str, ...] = ()
    """Names as `sys_admin`, or `all`."""
    cap_drop: tuple[str, ...] = ()
    no_new_privileges: bool | None = None
    """None: yes, unless it is privileged."""
    seccomp: str = ""
    """Empty takes docker's default filter; `unconfined` none; `ownerless` one of our own; else the
    path of a profile."""
    devices: tuple[Device, ...] = ()
    device_rules: tuple[DeviceRule, ...] = ()
    """Devices beside the usual ones and `devices`, that may be used without being shown."""
    gpus: Gpus | None = None
    ipc: Sharing = Sharing.PRIVATE
    pid: Sharing = Sharing.PRIVATE

    @property
    def filters_devices(self) -> bool:
        """Return whether something was asked for that takes a filter of devices."""
        return bool(self.device_rules) or any(
            not {"r", "w"} <= set(device.permissions) for device in self.devices
        )


@dataclass(frozen=True, kw_only=True)
class Harden:
    """What a user can ask of a hardened run on the host's own root."""

    writable: tuple[str, ...] = ()
    """Files and directories to write to, beside the working directory."""
    readable: tuple[str, ...] = ()
    """Those to read in places that are emptied, such as /tmp."""
    seccomp: str = ""
    """As in `Security`."""


@dataclass(frozen=True, kw_only=True)
class Confinement:
    """What a child gives up before it becomes its program, with all names resolved."""

    capabilities: int = 0
    """The mask of those that root inside may hold."""
    no_new_privileges: bool = True
    filter: bytes = b""
    """The program of a filter of system calls; empty for none."""
    read_only_tree: bool = False
    """Whether Landlock lets the program write to `writable` alone."""
    writable: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    """Devices, and directories of them, that may be written to and controlled."""


class ProtectionState(StrEnum):
    """Whether a protection holds."""

    ON = "on"
    OFF = "off"
    """As it was asked for."""
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, kw_only=True)
class Protection:
    """One protection of a run, and what became of it."""

    name: str
    """`seccomp`, `capabilities`, `no_new_privileges`, `files`, `landlock`, `processes`,
    `network` …"""
    state: ProtectionState
    detail: str
    """What it is precisely, or why it is not there."""
