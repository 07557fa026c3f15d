"""A root file system of a program's own, with all names resolved: what the child has to mount."""

from __future__ import annotations

from enum import StrEnum

from sandbox.records.light import dataclass, field
from sandbox.records.ports import PublishedPort
from sandbox.records.security import Confinement, Device, DeviceRule, Security, Sharing

EMPTIED = ("/run", "/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - of the run's own
"""Where other programs leave sockets and files: a hardened run gets its own, in memory."""


class Network(StrEnum):
    """Which network a program finds."""

    HOST = "host"
    NONE = "none"
    """A loopback of its own, and nothing else."""
    PRIVATE = "private"
    """Interfaces of its own, and a way out of the host behind the host's address."""


class MountKind(StrEnum):
    """What is put at a place of the root file system."""

    BIND = "bind"
    """A directory or file of the host, with all that is mounted below it."""
    TMPFS = "tmpfs"
    VOLUME = "volume"
    """The place itself, writable even if the rest is not; it goes with the run."""


@dataclass(frozen=True, kw_only=True)
class Mount:
    """One mount that the user asked for."""

    kind: MountKind
    target: str
    """Absolute, and resolved inside the root file system."""
    source: str | None = None
    """For a bind: an absolute path of the host."""
    read_only: bool = False
    size_bytes: int | None = None
    """For a tmpfs; None leaves it to the memory limit."""
    mode: int = 0o1777
    """For a tmpfs."""
    executable: bool = True


@dataclass(frozen=True, kw_only=True)
class GpuPlan:
    """What a run with GPUs is shown."""

    devices: tuple[Device, ...] = ()
    mounts: tuple[Mount, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    """What is put before the values of variables, for its loader and its shell to find them."""


@dataclass(frozen=True, kw_only=True)
class CgroupMount:
    """A hierarchy to show below /sys/fs/cgroup."""

    name: str
    """The directory there; empty for the place itself."""
    kind: str
    """`cgroup2` or `cgroup`."""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class IdMap:
    """Which ids of a user namespace stand for which of the host's."""

    uids: tuple[tuple[int, int, int], ...]
    """`(inside, outside, count)`."""
    gids: tuple[tuple[int, int, int], ...]

    @property
    def is_single(self) -> bool:
        """Return whether there is one user only: then no helper is needed to write the map."""
        return sum(count for _, _, count in self.uids) == 1

    def holds(self, uid: int, gid: int) -> bool:
        """Return whether both ids exist inside."""
        return _holds(self.uids, uid) and _holds(self.gids, gid)


def _holds(ranges: tuple[tuple[int, int, int], ...], number: int) -> bool:
    return any(inside <= number < inside + count for inside, _, count in ranges)


@dataclass(frozen=True, kw_only=True)
class OwnNetwork:
    """A network namespace of a program's own."""

    kind: Network
    """Not the host's."""
    ids: IdMap | None = None
    """The ids of the user namespace that it takes; None: none, or the root file system's."""
    lease: str = ""
    """What whoever ends the run has to release (`kernel.forwarding`); empty: nothing."""
    ports: tuple[PublishedPort, ...] = ()
    """Of the host, that are to lead inside."""


@dataclass(frozen=True, kw_only=True)
class TerminalEnds:
    """How a child passes the other end of its own terminal on to the supervisor."""

    socket_fd: int
    fds: tuple[int, ...]
    """Which of stdin, stdout and stderr are the terminal."""


@dataclass(frozen=True, kw_only=True)
class InPlace:
    """A hardened run on the host's own root."""

    is_apart: bool
    """Whether it has namespaces of its own; without, Landlock alone holds it back."""
    writable: tuple[str, ...] = ()
    """Absolute paths of the host that can be written to."""
    kept: tuple[str, ...] = ()
    """Paths below places that are emptied, which stay to be read."""

    def emptied_above(self, path: str) -> str | None:
        """Return the emptied place that keeps a path of the host's from the program, if one does.

        Args:
            path: Absolute, without links.
        """
        if not self.is_apart or _is_below(path, (*self.writable, *self.kept)):
            return None
        return next((place for place in EMPTIED if _is_below(path, (place,))), None)


def _is_below(path: str, directories: tuple[str, ...]) -> bool:
    return any(path == top or path.startswith(f"{top}/") for top in directories)


@dataclass(frozen=True, kw_only=True)
class Enclosure:
    """Namespaces and mounts of one run."""

    layers: tuple[str, ...] = ()
    """Directories to stack, bottom first; never written to."""
    in_place: InPlace | None = None
    """Set: there is no other root, and the host's is made read-only."""
    confinement: Confinement = field(default_factory=Confinement)
    """What is given up before the program starts."""
    devices: tuple[Device, ...] = ()
    """Those of the host that are shown beside the usual six."""
    device_rules: tuple[DeviceRule, ...] | None = None
    """What may be used of all devices; None leaves it to their modes, as with a plain user."""
    is_open: bool = False
    """Whether /proc, /sys and devices are the host's, as with docker's `--privileged`."""
    ipc: Sharing = Sharing.PRIVATE
    pid: Sharing = Sharing.PRIVATE
    scratch: str = ""
    """A directory of the run's own for what is written; known once the run directory is."""
    writes_to: str | None = None
    """A directory with `upper` and `work` that outlives the run; None: what is written goes."""
    copy: str | None = None
    """A directory that holds what the layers show; None stacks them."""
    copy_is_shared: bool = False
    """Whether other runs use that directory too, so that nothing may be written to it."""
    files: tuple[tuple[str, str], ...] = ()
    """Places of the root file system and the file names in `scratch` that are put there."""
    mounts: tuple[Mount, ...] = ()
    """In the order in which they are made: what is above comes first."""
    cgroups: tuple[CgroupMount, ...] = ()
    ids: IdMap | None = None
    """None: no user namespace, ids are the host's."""
    hostname: str
    network: Network = Network.HOST
    read_only: bool = False
    writes_to_memory: bool = False
    """Whether what is written goes to memory, because no disk can hold it."""
    userxattr: bool = False
    """Whether the marks of the layers are in `user.` attributes."""
    shm_bytes: int | None = None
    """Size of /dev/shm; None leaves it to the kernel."""
    terminal: TerminalEnds | None = None
    """None leaves the program what we have."""
    workdir: str = "/"
    """Resolved inside, and made if it is not there."""
    has_init: bool = False
    """Whether a process of ours is PID 1, which reaps and passes signals on."""
    waits_for_all: bool = False
    """Whether that one stays until no process is left, not only until the program has ended."""

    @property
    def has_own_processes(self) -> bool:
        """Return whether the child is the first process of a namespace."""
        if self.in_place is not None and not self.in_place.is_apart:
            return False
        return self.pid is not Sharing.HOST


@dataclass(frozen=True, kw_only=True)
class RootSpec:
    """What a user can ask of a run in a root file system of its own."""

    rootfs: str | None = None
    """A directory that holds one; nothing is written to it."""
    image: str | None = None
    """The name or id of an image of this machine."""
    layers: tuple[str, ...] = ()
    """Directories in overlay form, bottom first; one of the three is given."""
    userxattr: bool = False
    """Whether opaque directories of `layers` are marked in `user.` attributes."""
    writes_to: str | None = None
    """An empty directory, on a disk that an overlay can write to: its `upper` holds what the run
    has changed, in overlay form. It stays, and is its maker's to remove."""
    platform: str | None = None
    """`os/architecture`, as the image must be."""
    mounts: tuple[Mount, ...] = ()
    read_only: bool = False
    entrypoint: str | None = None
    """What is executed, with the command as its arguments; empty takes the command alone."""
    hostname: str | None = None
    """None takes the run's id."""
    add_hosts: tuple[tuple[str, str], ...] = ()
    """Names and addresses for /etc/hosts."""
    network: Network = Network.HOST
    shm_bytes: int | None = None
    """Size of /dev/shm; None takes the memory limit."""
    has_init: bool = False
    security: Security = field(default_factory=Security)
    """Docker's flags about privileges."""
