"""The grammar of control files: bytes or text in, integers out; no file is opened here.

Every function raises KernelError for content that its file cannot have, and nothing else. A key,
a device or a line that a kernel leaves out is None or missing, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import wraps
from typing import ParamSpec, TypeVar

from sandbox.errors import KernelError, SpecError
from sandbox.records.light import dataclass
from sandbox.units import UNLIMITED, parse_cpu_list

P = ParamSpec("P")
T = TypeVar("T")

# v1 writes "unlimited" as the largest multiple of a page, which differs with the page size.
_UNLIMITED_FROM = 1 << 62
_SHOWN_CHARACTERS = 60
_OCTAL = rb"\\([0-3][0-7]{2})"
_MOUNT_FIELDS_MIN = 6
_NAMED_HIERARCHY = "name="


def grammar(what: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a parser raise KernelError that names `what` and shows the text, whatever is wrong."""

    def decorate(parser: Callable[P, T]) -> Callable[P, T]:
        @wraps(parser)
        def parse(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return parser(*args, **kwargs)
            except (ValueError, IndexError, SpecError) as exc:
                shown = repr(args[0])[:_SHOWN_CHARACTERS]
                raise KernelError(
                    f"cannot understand {what}: {shown}",
                    hint="this kernel writes it in a way that is not known; please report it",
                ) from exc

        return parse

    return decorate


def to_bytes(data: bytes | str) -> bytes:
    """Return the bytes that the kernel wrote."""
    return data if isinstance(data, bytes) else data.encode("utf-8", "surrogateescape")


def to_number(word: bytes) -> int:
    """Return a plain decimal number; int() alone would take signs, blanks and underscores.

    Raises:
        ValueError: it is none.
    """
    if not word.isdigit():
        raise ValueError(word)
    return int(word)


@grammar("a number")
def parse_number(data: bytes | str) -> int:
    """Return the number of a file with one value, such as `memory.current`."""
    return to_number(to_bytes(data).strip())


@grammar("a limit")
def parse_limit(data: bytes | str) -> int:
    """Return a limit; `UNLIMITED` for `max`, for -1 and for v1's largest multiple of a page."""
    return _limit(to_bytes(data).strip())


def _limit(word: bytes) -> int:
    if word in {b"max", b"-1"}:
        return UNLIMITED
    value = to_number(word)
    return UNLIMITED if value >= _UNLIMITED_FROM else value


@grammar("cpu.max")
def parse_cpu_max(data: bytes | str) -> tuple[int, int]:
    """Return quota and period in microseconds; the quota may be `UNLIMITED`."""
    quota, period = to_bytes(data).split()
    return _limit(quota), to_number(period)


@grammar("a file of keys and numbers")
def parse_flat(data: bytes | str) -> dict[str, int]:
    """Return the numbers of a flat keyed file by key.

    For `cpu.stat`, `memory.stat`, `memory.events`, `cgroup.events`, `/proc/vmstat`, and v1's
    `memory.stat`, `memory.oom_control`, `cpuacct.stat`.
    """
    values: dict[str, int] = {}
    for line in to_bytes(data).splitlines():
        key, value = line.split()
        values[key.decode("ascii")] = to_number(value)
    return values


@grammar("a file of keys and numbers")
def find_flat(data: bytes | str, keys: Iterable[str]) -> dict[str, int]:
    """Return the numbers of a few keys of a flat keyed file that is long; others are not read."""
    lines = b"\n" + to_bytes(data) + b"\n"
    values: dict[str, int] = {}
    for key in keys:
        start = lines.find(b"\n%s " % key.encode("ascii"))
        if start >= 0:
            start += len(key) + 2
            values[key] = to_number(lines[start : lines.index(b"\n", start)])
    return values


@grammar("io.stat")
def parse_io_stat(data: bytes | str) -> dict[str, dict[str, int]]:
    """Return what `io.stat` says of each device: `rbytes wbytes rios wios dbytes dios`.

    Keys that a device lacks are missing. Kernels write devices without any I/O as a bare `8:0`,
    some without ending the line; those give an empty dict. Values that are no whole numbers
    (the I/O cost model's) are left out.
    """
    devices: dict[str, dict[str, int]] = {}
    for line in to_bytes(data).splitlines():
        values: dict[str, int] | None = None
        for word in line.split():
            if _is_device(word):
                values = devices.setdefault(word.decode("ascii"), {})
                continue
            key, equals, value = word.partition(b"=")
            if values is None or not key or not equals:
                raise ValueError(line)
            if value.isdigit():
                values[key.decode("ascii")] = int(value)
    return devices


def _is_device(word: bytes) -> bool:
    """Tell `8:0`."""
    major, colon, minor = word.partition(b":")
    return bool(colon) and major.isdigit() and minor.isdigit()


@grammar("a blkio file")
def parse_blkio(data: bytes | str) -> dict[str, dict[str, int]]:
    """Return what a v1 `blkio.throttle.*` file says of each device, by operation.

    `Read`, `Write`, `Sync`, `Async`, `Discard`, `Total`. The closing `Total` of all devices is
    left out: it counts a stacked device and those below it.
    """
    devices: dict[str, dict[str, int]] = {}
    for line in to_bytes(data).splitlines():
        head, *rest = line.split()
        if head == b"Total" and len(rest) == 1:
            to_number(rest[0])
            continue
        operation, value = rest
        if not _is_device(head):
            raise ValueError(line)
        values = devices.setdefault(head.decode("ascii"), {})
        values[operation.decode("ascii")] = to_number(value)
    return devices


@grammar("a pressure file")
def parse_pressure(data: bytes | str) -> tuple[int | None, int | None]:
    """Return the stalled microseconds of a pressure file: `some`, `full`; None for a lacking line.

    `cpu.pressure` has no `full` before Linux 5.13, `irq.pressure` has no `some`.
    """
    totals: dict[bytes, int] = {}
    for line in to_bytes(data).splitlines():
        kind, *pairs = line.split()
        if kind not in {b"some", b"full"}:
            raise ValueError(line)
        key, _, value = pairs[-1].partition(b"=")
        if key != b"total":
            raise ValueError(line)
        totals[kind] = to_number(value)
    return totals.get(b"some"), totals.get(b"full")


@grammar("a list of CPUs")
def parse_cpuset(data: bytes | str) -> tuple[int, ...]:
    """Return the CPUs of `cpuset.cpus`, `Cpus_allowed_list` or `/sys/devices/system/cpu/online`."""
    return parse_cpu_list(to_bytes(data).decode("ascii"))


@grammar("a list of processes")
def parse_pids(data: bytes | str) -> tuple[int, ...]:
    """Return the processes of `cgroup.procs`.

    A process of another PID namespace is written as 0: it is there but cannot be named, so it is
    left out.
    """
    return tuple(pid for line in to_bytes(data).splitlines() if (pid := to_number(line.strip())))


@grammar("a list of controllers")
def parse_controllers(data: bytes | str) -> frozenset[str]:
    """Return the controllers of `cgroup.controllers` or `cgroup.subtree_control`."""
    return frozenset(word.decode("ascii") for word in to_bytes(data).split())


@grammar("/proc/PID/cgroup")
def parse_own_groups(data: bytes | str) -> dict[str, str]:
    """Return a process's group in each hierarchy, by controller.

    The unified hierarchy's key is the empty text; a named v1 hierarchy keeps its `name=`.
    """
    groups: dict[str, str] = {}
    for line in to_bytes(data).split(b"\n"):
        if not line:
            continue
        number, controllers, path = line.split(b":", 2)
        to_number(number)
        if not path.startswith(b"/"):
            raise ValueError(line)
        for controller in controllers.decode("ascii").split(","):
            groups[controller] = path.decode("utf-8", "surrogateescape")
    return groups


@dataclass(frozen=True, kw_only=True)
class CgroupMount:
    """One mounted cgroup hierarchy."""

    point: str
    """Where it is mounted."""
    root: str
    """Which group of the hierarchy is seen there; `/` unless in a container."""
    controllers: tuple[str, ...]
    """v1: what it is for (`cpu`, `cpuacct` …, or `name=systemd`); empty for v2."""
    unified: bool
    writable: bool


@grammar("mountinfo")
def parse_cgroup_mounts(data: bytes | str) -> tuple[CgroupMount, ...]:
    """Return the cgroup mounts of `/proc/PID/mountinfo`, in the order of mounting."""
    mounts = []
    for line in to_bytes(data).split(b"\n"):
        if b" - cgroup" not in line:
            continue
        head, _, tail = line.partition(b" - ")
        fields, rest = head.split(b" "), tail.split(b" ")
        if rest[0] not in {b"cgroup", b"cgroup2"}:
            continue
        if len(fields) < _MOUNT_FIELDS_MIN:
            raise ValueError(line)
        options = rest[2].decode("utf-8", "surrogateescape").split(",")
        unified = rest[0] == b"cgroup2"
        mounts.append(
            CgroupMount(
                point=_unescape(fields[4]),
                root=_unescape(fields[3]),
                controllers=() if unified else tuple(filter(_is_controller, options)),
                unified=unified,
                writable=b"rw" in fields[5].split(b",") and "rw" in options,
            )
        )
    return tuple(mounts)


def _is_controller(option: str) -> bool:
    """Tell a v1 mount's controllers and name from its flags."""
    flags = {
        "rw",
        "ro",
        "none",
        "all",
        "xattr",
        "noprefix",
        "clone_children",
        "cpuset_v2_mode",
        "seclabel",
    }
    if option.startswith(_NAMED_HIERARCHY):
        return True
    return bool(option) and option not in flags and "=" not in option


def _unescape(field: bytes) -> str:
    """Undo the kernel's octal escapes of blanks, tabs, line feeds and backslashes."""
    if b"\\" in field:
        field = re.sub(_OCTAL, lambda match: bytes([int(match[1], 8)]), field)
    return field.decode("utf-8", "surrogateescape")
