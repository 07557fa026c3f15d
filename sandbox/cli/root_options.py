"""The flags of `sandbox run` that have a meaning in a root file system of its own only."""

# Without `from __future__ import annotations`, as in the command itself.

from typing import TYPE_CHECKING, Annotated

from sandbox.cli.options import option
from sandbox.cli.security_options import SecurityFlags
from sandbox.errors import SpecError
from sandbox.records.light import dataclass
from sandbox.units import parse_size

if TYPE_CHECKING:
    from sandbox.records.enclosure import RootSpec
    from sandbox.records.ports import PublishedPort
    from sandbox.records.security import Harden

_PANEL = "Root file system"
_ALSO_ON_THE_HOST = frozenset({"network", "security"})

Rootfs = Annotated[
    str | None,
    option(
        "--rootfs",
        panel=_PANEL,
        metavar="DIR",
        help="Run it in the root file system in DIR; what it writes goes with the run.",
    ),
]
Image = Annotated[
    str | None,
    option(
        "--image",
        panel=_PANEL,
        metavar="NAME",
        help="Run it in an image of this machine; without a command, the image's own.",
    ),
]
Platform = Annotated[
    str | None,
    option(
        "--platform", panel=_PANEL, metavar="OS/ARCH", help="Refuse an image of another platform."
    ),
]
Volume = Annotated[
    list[str] | None,
    option(
        "--volume",
        "-v",
        panel=_PANEL,
        metavar="SOURCE:TARGET[:ro]",
        help="Show a file or directory of the host inside.",
    ),
]
MountFlag = Annotated[
    list[str] | None,
    option(
        "--mount",
        panel=_PANEL,
        metavar="type=bind,source=…,target=…",
        help="The same in docker's longer way; also type=tmpfs and type=volume.",
    ),
]
Tmpfs = Annotated[
    list[str] | None,
    option(
        "--tmpfs",
        panel=_PANEL,
        metavar="TARGET[:size=SIZE,mode=MODE]",
        help="An empty directory in memory, which counts as the run's.",
    ),
]
ShmSize = Annotated[
    int | None,
    option(
        "--shm-size",
        panel=_PANEL,
        metavar="SIZE",
        parser=parse_size,
        help="Size of /dev/shm; the memory limit unless given.",
    ),
]
ReadOnly = Annotated[
    bool,
    option("--read-only", panel=_PANEL, help="Let nothing be written but to mounts."),
]
Entrypoint = Annotated[
    str | None,
    option(
        "--entrypoint",
        panel=_PANEL,
        metavar="PROGRAM",
        help="Execute this, with the command as its arguments.",
    ),
]
Hostname = Annotated[
    str | None,
    option("--hostname", panel=_PANEL, metavar="NAME", help="Its host name; the run's id if not."),
]
AddHost = Annotated[
    list[str] | None,
    option("--add-host", panel=_PANEL, metavar="NAME:ADDRESS", help="A line for its /etc/hosts."),
]
NetworkFlag = Annotated[
    str | None,
    option(
        "--network",
        panel=_PANEL,
        metavar="host|private|none",
        help="The host's network, one of its own, or none; also without --image and --rootfs.",
    ),
]
Publish = Annotated[
    list[str] | None,
    option(
        "--publish",
        "-p",
        panel=_PANEL,
        metavar="[[IP:]HOSTPORT:]PORT[/udp]",
        help="Let a port of the host lead to one of a private network; a free one if none is said.",
    ),
]
InitFlag = Annotated[
    bool,
    option(
        "--init",
        panel=_PANEL,
        help="Put a process of ours before it, which reaps orphans and passes signals on.",
    ),
]


def parse_ports(texts: list[str] | None) -> "tuple[PublishedPort, ...]":
    """Return what --publish asks for.

    Raises:
        SpecError: one of them is no port.
    """
    if not texts:
        return ()
    from sandbox.environment.port_flags import parse_all

    return parse_all(texts)


@dataclass(frozen=True, kw_only=True)
class RootFlags:
    """What was given of them."""

    rootfs: str | None
    image: str | None
    platform: str | None
    volume: list[str] | None
    mount: list[str] | None
    tmpfs: list[str] | None
    shm_size: int | None
    read_only: bool
    entrypoint: str | None
    hostname: str | None
    add_host: list[str] | None
    network: str | None
    init: bool
    security: SecurityFlags

    def build(self) -> "RootSpec | None":
        """Return what they ask for; None if the program is to run on the host's root.

        Raises:
            SpecError: one is given without a root file system, or cannot be meant.
        """
        if self.rootfs is None and self.image is None:
            self._refuse_alone()
            return None
        security = self.security.build()
        if self.rootfs == "":
            raise SpecError("--rootfs names no directory", hint="is a variable of it empty?")
        if self.rootfs is not None and (self.image is not None or self.platform is not None):
            raise SpecError(
                "--rootfs is a directory: --image and --platform do not go with it",
                hint="leave out `--rootfs`, or the others",
            )
        from sandbox.environment.root_flags import (
            parse_add_host,
            parse_hostname,
            parse_mount,
            parse_network,
            parse_tmpfs,
            parse_volume,
        )
        from sandbox.records.enclosure import RootSpec

        mounts = (
            *map(parse_volume, self.volume or ()),
            *map(parse_mount, self.mount or ()),
            *map(parse_tmpfs, self.tmpfs or ()),
        )
        return RootSpec(
            rootfs=self.rootfs,
            image=self.image,
            platform=self.platform,
            mounts=mounts,
            shm_bytes=self.shm_size,
            read_only=self.read_only,
            entrypoint=self.entrypoint,
            hostname=None if self.hostname is None else parse_hostname(self.hostname),
            add_hosts=tuple(map(parse_add_host, self.add_host or ())),
            network=parse_network(self.network or "host"),
            has_init=self.init,
            security=security,
        )

    def build_harden(self) -> "Harden | None":
        """Return how a program on the host's own root is held back; None if it is not.

        Raises:
            SpecError: a flag has no meaning there.
        """
        if self.rootfs is not None or self.image is not None:
            return None
        return self.security.build_harden(self.volume)

    def network_name(self) -> str:
        """Return the network of a program on the host's root, by the words of `RunSpec`.

        Raises:
            SpecError: there is no such one.
        """
        if self.rootfs is not None or self.image is not None:
            return "host"
        if self.network is None:
            return "none" if self.security.harden else "host"
        from sandbox.environment.root_flags import parse_network

        return parse_network(self.network).value

    def _refuse_alone(self) -> None:
        for name, value in vars(self).items():
            is_meant = name in _ALSO_ON_THE_HOST or (name == "volume" and self.security.harden)
            if value not in (None, False, []) and not is_meant:
                flag = "--" + name.replace("_", "-")
                raise SpecError(
                    f"{flag} has no meaning on the host's own root file system",
                    hint="it goes with --image NAME or --rootfs DIR",
                )
