"""What a user can ask of a run: frozen values, ranges checked once, before anything is created."""

from __future__ import annotations

import math
import os
import re
import signal
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from sandbox.errors import SpecError
from sandbox.records.codec import to_plain
from sandbox.records.light import dataclass, field, replace
from sandbox.records.ports import PublishedPort, check_ports
from sandbox.records.venv import Venv
from sandbox.units import UNLIMITED, format_size, parse_size

if TYPE_CHECKING:
    from sandbox.records.enclosure import RootSpec
    from sandbox.records.security import Harden

MIN_MEMORY_BYTES = 6 << 20  # docker's minimum
MIN_CPUS = 0.01  # the kernel's smallest quota, 1 ms of 100 ms
MIN_INTERVAL_NS = 1_000_000
DEFAULT_INTERVAL_NS = 10_000_000
DEFAULT_PIDS = 4096
NETWORKS = ("host", "none", "private")

_MOST_DIGITS = 9
_ULIMIT = r"(?a)-1|\d{1,18}|unlimited"
ULIMIT_NAMES = (
    "core",
    "cpu",
    "data",
    "fsize",
    "locks",
    "memlock",
    "msgqueue",
    "nice",
    "nofile",
    "nproc",
    "rss",
    "rtprio",
    "rttime",
    "sigpending",
    "stack",
)


@dataclass(frozen=True, kw_only=True)
class Ulimit:
    """One resource limit of every process, as docker's `--ulimit name=soft[:hard]`."""

    name: str
    soft: int
    """-1 is unlimited, as in docker and the kernel."""
    hard: int

    def __post_init__(self) -> None:
        """Refuse a name that the kernel lacks and a soft limit above the hard one."""
        if self.name not in ULIMIT_NAMES:
            raise SpecError(
                f"`{self.name}` is not a resource limit",
                hint=f"use one of {', '.join(ULIMIT_NAMES)}",
            )
        if self.soft < -1 or self.hard < -1:
            raise SpecError(f"ulimit {self.name}: a limit cannot be negative", hint="0 or more")
        if self.hard != -1 and (self.soft == -1 or self.soft > self.hard):
            raise SpecError(
                f"ulimit {self.name}: the soft limit is above the hard limit", hint="swap them"
            )

    @classmethod
    def parse(cls, text: str) -> Ulimit:
        """Return the limit of `nofile=1024` or `nofile=1024:4096`.

        Raises:
            SpecError: the text is not a resource limit.
        """
        name, equals, values = text.partition("=")
        soft, colon, hard = values.partition(":")
        parts = (soft, hard if colon else soft)
        if not equals or not all(re.fullmatch(_ULIMIT, part) for part in parts):
            raise SpecError(
                f"`{text}` is not a ulimit", hint="write `name=soft` or `name=soft:hard`"
            )
        numbers = [-1 if part == "unlimited" else int(part) for part in parts]
        return cls(name=name, soft=numbers[0], hard=numbers[1])


class RateKind(StrEnum):
    """What is limited of the I/O with one disk, each second."""

    READ_BPS = "read_bps"
    WRITE_BPS = "write_bps"
    READ_IOPS = "read_iops"
    WRITE_IOPS = "write_iops"


@dataclass(frozen=True, kw_only=True)
class DeviceRate:
    """How fast one disk may be read or written, as docker's `--device-read-bps PATH:RATE`."""

    kind: RateKind
    path: str
    rate: int
    """Bytes, or operations, per second."""

    def __post_init__(self) -> None:
        """Refuse what no disk can have."""
        if not self.path.startswith("/") or self.rate < 1:
            raise SpecError(
                f"`{self.path}:{self.rate}` is not a rate of a device",
                hint="write it as in `/dev/sda:1mb`, or `/dev/sda:100` for operations",
            )

    @classmethod
    def parse(cls, kind: RateKind, text: str) -> DeviceRate:
        """Return the rate of `/dev/sda:1mb` or, for operations, `/dev/sda:100`.

        Raises:
            SpecError: the text is not one.
        """
        path, _, amount = text.rpartition(":")
        if not path:
            raise SpecError(f"`{text}` names no device", hint="write it as in `/dev/sda:1mb`")
        if kind in {RateKind.READ_BPS, RateKind.WRITE_BPS}:
            return cls(kind=kind, path=path, rate=parse_size(amount))
        if not (amount.isascii() and amount.isdecimal() and len(amount) <= _MOST_DIGITS):
            raise SpecError(
                f"`{text}`: `{amount}` is not a number of operations per second",
                hint="write a whole number, as in `/dev/sda:1000`",
            )
        return cls(kind=kind, path=path, rate=int(amount))


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a run may use. None means no limit asked for; `UNLIMITED` asks for none by name."""

    cpus: float | None = None
    """CPU bandwidth: 1.5 is one and a half CPUs."""
    cpuset_cpus: tuple[int, ...] | None = None
    """Which CPUs, ascending."""
    cpu_shares: int | None = None
    """Relative weight, docker's scale: 2 to 262144, 1024 is the usual share; 0 leaves it."""
    memory_bytes: int | None = None
    memory_swap_bytes: int | None = None
    """Memory plus swap, as docker's `--memory-swap`; None beside a memory limit means no swap."""
    memory_reservation_bytes: int | None = None
    memory_high_bytes: int | None = None
    """Above it the kernel slows the run and reclaims, instead of killing."""
    pids: int | None = None
    """Processes and threads; None takes the default of 4096."""
    blkio_weight: int | None = None
    """Relative weight of block I/O, docker's scale: 10 to 1000, 500 is usual; 0 leaves it."""
    device_rates: tuple[DeviceRate, ...] = ()
    ulimits: tuple[Ulimit, ...] = ()
    timeout_ns: int | None = None
    """Wall-clock time from the start of the program."""
    cpu_time_usec: int | None = None
    """CPU time of the whole tree."""

    def __post_init__(self) -> None:
        """Check every range; no host is asked here."""
        _check_cpu(self)
        _check_memory(self)
        if self.pids is not None and self.pids < 1:
            raise SpecError(
                f"a limit of {self.pids} processes leaves none for the program", hint="ask for 1"
            )
        for name, value in (("timeout", self.timeout_ns), ("CPU time limit", self.cpu_time_usec)):
            if value is not None and value <= 0:
                raise SpecError(f"the {name} must be longer than nothing", hint="such as `10s`")
        _check_io(self)
        names = [ulimit.name for ulimit in self.ulimits]
        if len(set(names)) != len(names):
            raise SpecError("a ulimit is given twice", hint="give each name once")

    def with_defaults(self) -> Limits:
        """Return what is really applied: 4096 processes, and no swap beside a memory limit."""
        swap = self.memory_swap_bytes
        if swap is None and self.memory_bytes not in {None, UNLIMITED}:
            swap = self.memory_bytes
        return replace(
            self,
            pids=DEFAULT_PIDS if self.pids is None else self.pids,
            memory_swap_bytes=swap,
        )

    @property
    def swap_bytes(self) -> int | None:
        """Swap alone, as the kernel's v2 file wants it; None when no limit applies."""
        if self.memory_swap_bytes is None or self.memory_bytes is None:
            return None
        if self.memory_swap_bytes == UNLIMITED:
            return UNLIMITED
        return self.memory_swap_bytes - self.memory_bytes


def _check_cpu(limits: Limits) -> None:
    cpus = limits.cpus
    if cpus is not None:
        if not math.isfinite(cpus) or cpus <= 0:
            raise SpecError(
                f"a limit of {cpus:g} CPUs cannot be set", hint="write a number above 0, like `0.5`"
            )
        if cpus < MIN_CPUS:
            raise SpecError(f"the smallest CPU limit is {MIN_CPUS}", hint="the kernel's own bound")
    if limits.cpuset_cpus is not None and not limits.cpuset_cpus:
        raise SpecError("the list of CPUs is empty", hint="write numbers and ranges: `0-3,6`")
    shares = limits.cpu_shares
    if shares is not None and shares != 0 and not 2 <= shares <= 262_144:  # noqa: PLR2004
        raise SpecError(
            f"{shares} CPU shares cannot be set", hint="the range is 2 to 262144; 1024 is usual"
        )


def _check_io(limits: Limits) -> None:
    weight = limits.blkio_weight
    if weight is not None and weight != 0 and not 10 <= weight <= 1000:  # noqa: PLR2004
        raise SpecError(f"an I/O weight of {weight} cannot be set", hint="the range is 10 to 1000")
    places = [(rate.kind, rate.path) for rate in limits.device_rates]
    if len(set(places)) != len(places):
        raise SpecError("the rate of a device is given twice", hint="give each once")


def _check_memory(limits: Limits) -> None:
    memory, swap = limits.memory_bytes, limits.memory_swap_bytes
    for name, value in (
        ("memory limit", memory),
        ("memory reservation", limits.memory_reservation_bytes),
        ("high memory mark", limits.memory_high_bytes),
    ):
        if value is not None and value < MIN_MEMORY_BYTES:
            raise SpecError(
                f"the {name} of {format_size(value)} is too small for a process",
                hint="the minimum is 6 MiB",
            )
        if value is not None and memory is not None and value > memory:
            raise SpecError(
                f"the {name} of {format_size(value)} is above the memory limit of "
                f"{format_size(memory)}",
                hint="ask for less of it, or for more memory",
            )
    if swap is None:
        return
    if memory is None:
        raise SpecError("--memory-swap needs --memory", hint="it is the sum of memory and swap")
    if swap < memory:
        raise SpecError(
            f"memory and swap together ({format_size(swap)}) are less than the memory limit "
            f"({format_size(memory)})",
            hint="--memory-swap is the sum of memory and swap; equal to --memory it means no swap",
        )


class Capture(StrEnum):
    """Where the program's output goes."""

    NONE = "none"
    FILE = "file"
    TEE = "tee"


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One command to run, in which limits, watched how."""

    command: tuple[str, ...]
    limits: Limits = field(default_factory=Limits)
    environment: dict[str, str] = field(default_factory=dict, repr=False)
    """Variables to set on top of the caller's own; values never reach a file."""
    environment_unset: tuple[str, ...] = ()
    user: str | None = None
    """`name`, `uid`, `user:group`; None keeps the caller's."""
    workdir: str | None = None
    venv: Venv | None = None
    """The virtual environment to run in; it is ready before the run begins."""
    interval_ns: int = DEFAULT_INTERVAL_NS
    name: str | None = None
    capture: Capture = Capture.NONE
    detach: bool = False
    strict: bool = False
    """Refuse to start when a limit that was asked for cannot be enforced."""
    oom_continue: bool = False
    """Let the kernel kill one process for memory and the run go on."""
    wait_all: bool = False
    """Wait for every process of the run, not for the main one alone."""
    root: RootSpec | None = None
    """A root file system of its own; None runs it on the host's."""
    network: str = "host"
    """`host`, `none` or `private`, on the host's own root; a `root` has its own word for it."""
    ports: tuple[PublishedPort, ...] = ()
    """Of the host, that lead into a private network."""
    harden: Harden | None = None
    """What holds the program back on the host's own root; None leaves it the user's."""
    thread_hints: bool = True
    """Set OMP_NUM_THREADS and the like to the CPU limit, unless the user set them."""
    stop_signal: int = signal.SIGTERM
    stop_timeout_ns: int | None = None
    """Time between the stop signal and SIGKILL; None is 10 s after a signal that asks the run to
    end, and nothing after a limit: a limit ends the tree at once."""

    def __post_init__(self) -> None:
        """Check what can be checked without a host."""
        if not self._has_command():
            raise SpecError(
                "no command was given", hint="write it after `--`: `-- python infer.py`"
            )
        if self.root is not None:
            self._check_beside_root()
        if self.network not in NETWORKS:
            raise SpecError(f"there is no network `{self.network}`", hint=" or ".join(NETWORKS))
        check_ports(self.ports, self.network_name)
        if any("\0" in part for part in self.command):
            raise SpecError("a command cannot hold a NUL character", hint="put it into a file")
        for key, value in self.environment.items():
            if not key or "=" in key or "\0" in key + value:
                raise SpecError(
                    f"`{key}` cannot name an environment variable", hint="no `=`, not empty"
                )
        if self.interval_ns < MIN_INTERVAL_NS:
            raise SpecError("the shortest sampling interval is 1 ms", hint="such as `10ms`")
        if self.stop_timeout_ns is not None and self.stop_timeout_ns < 0:
            raise SpecError("the stop timeout cannot be negative", hint="0 kills at once")
        if self.stop_signal not in signal.valid_signals():
            raise SpecError(f"there is no signal {self.stop_signal}", hint="`kill -l` lists them")

    def _check_beside_root(self) -> None:
        if self.venv is not None:
            raise SpecError(
                "a virtual environment means nothing in another root", hint="install into the image"
            )
        if self.network != "host":
            raise SpecError(
                "a root file system has a word of its own for the network",
                hint="in Python `root=RootSpec(image=…, network=Network.PRIVATE)`",
            )
        if self.harden is not None:
            raise SpecError(
                "--harden is for the host's own root", hint="an image has its own protections"
            )

    @property
    def network_name(self) -> str:
        """Return which network the program finds: `host`, `none` or `private`."""
        return self.network if self.root is None else self.root.network.value

    def _has_command(self) -> bool:
        if self.command or self.root is None:
            return bool(self.command and self.command[0])
        return bool(self.root.image or self.root.entrypoint)

    def public(self) -> dict[str, Any]:
        """Return the spec as plain values; of the environment only the names, never values."""
        plain: dict[str, Any] = to_plain(self)
        plain["environment"] = sorted(self.environment)
        return plain


def parse_signal(text: str) -> int:
    """Return the number of `TERM`, `SIGTERM` or `15`.

    Raises:
        SpecError: there is no such signal.
    """
    name = text.strip().upper()
    try:
        if name.isdecimal() and name.isascii():
            return int(signal.Signals(int(name)))
        return int(signal.Signals[name if name.startswith("SIG") else f"SIG{name}"])
    except (ValueError, KeyError):
        raise SpecError(
            f"there is no signal `{text}`", hint="write a name such as `TERM`"
        ) from None


def parse_environment(entries: tuple[str, ...]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return what `-e K=V` sets and what `-e K` drops, as docker: `K` alone keeps the host's value.

    A name without a value that the caller has not set is left out of the program's environment.
    """
    values: dict[str, str] = {}
    unset: dict[str, None] = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not name:
            raise SpecError(f"`{entry}` is not `NAME=VALUE`", hint="the name alone takes our own")
        values.pop(name, None)  # the last word about a name holds
        unset.pop(name, None)
        if equals:
            values[name] = value
        elif name in os.environ:
            values[name] = os.environ[name]
        else:
            unset[name] = None
    return values, tuple(unset)
