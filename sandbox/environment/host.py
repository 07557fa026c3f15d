"""The program as it will run on the host itself: its environment, user, directory and rlimits.

Everything is the caller's own unless asked otherwise. `--workdir` is not created, as docker would
inside a container: on the host a mistyped path would leave a directory behind.
"""

from __future__ import annotations

import math
import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.errors import EXIT_NOT_EXECUTABLE, HostError, LaunchError
from sandbox.records.host import Host
from sandbox.records.light import dataclass, field, replace
from sandbox.records.limits import LimitReport, LimitState
from sandbox.records.program import MARKS_VARIABLE, Program, mark_name
from sandbox.records.result import RootMade, RunWarning
from sandbox.records.security import Protection
from sandbox.spec import RunSpec, Ulimit

if TYPE_CHECKING:
    from pwd import struct_passwd

RUN_ID_VARIABLE = "SANDBOX_RUN_ID"
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "PYTHON_CPU_COUNT",
)

_RLIMIT_LOCKS = 10  # the same number on every architecture; Python does not name it
_CAP_SYS_RESOURCE = 24
_LARGEST_ID = (1 << 32) - 2  # the next one means "leave it"

User = tuple[int, int, tuple[int, ...]]
"""uid, gid and supplementary groups."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A program, and what was decided on the way to it."""

    program: Program
    thread_hints: dict[str, str]
    """The variables that were set to the CPU limit; empty if the user has set any of them."""
    reports: tuple[LimitReport, ...] = ()
    """What becomes of each ulimit: the kernel holds them all."""
    warnings: tuple[RunWarning, ...] = ()
    root_files: dict[str, str] = field(default_factory=dict, repr=False)
    """Contents of the files that a root of its own gets, by name."""
    spec: RunSpec | None = None
    """What was asked for, completed by what the image says; None where there is none."""
    unavailable: dict[str, str] = field(default_factory=dict)
    """Metrics that cannot be measured in what was prepared, and why."""
    images: Path | None = None
    """The store that the layers of an image are in."""
    copies: str | None = None
    """Why the layers are not even tried to be stacked."""
    root_made: RootMade | None = None
    """How the root was made; known once the child is there."""
    protections: tuple[Protection, ...] = ()
    """What keeps the program apart from the host, and what became of it."""
    held: tuple[int, ...] = ()
    """Descriptors to keep open as long as the run lasts."""

    def let_go(self) -> None:
        """Close what was held."""
        for fd in self.held:
            os.close(fd)


def prepare(spec: RunSpec, host: Host, run_id: str, home: Path) -> Prepared:
    """Resolve all names and return what can be executed as it is.

    Args:
        spec: What was asked for.
        host: Where it will run.
        run_id: The run's.
        home: Where images are, among other things of ours.

    Raises:
        LaunchError: the user is unknown, or cannot be switched to (126).
        HostError: a ulimit is above the hard limit that this process has.
    """
    if spec.root is not None:
        from sandbox.environment.rootfs import prepare_in_root

        return prepare_in_root(spec, spec.root, host, run_id, home)
    user, user_home = (None, None) if spec.user is None else find_user(spec.user)
    hints = find_thread_hints(spec, host)
    environment = _environment(spec, run_id=run_id, home=user_home, hints=hints)
    rlimits, reports = prepare_ulimits(spec.limits.ulimits)
    program = Program(
        argv=spec.command,
        environment=environment,
        directory=spec.workdir,
        user=user,
        rlimits=rlimits,
    )
    prepared = Prepared(program=program, thread_hints=hints, reports=reports)
    if spec.harden is not None:
        from sandbox.environment.harden import harden

        return harden(prepared, spec, spec.harden, run_id)
    return prepared if spec.network == "host" else _with_own_network(prepared, spec, run_id)


def _with_own_network(prepared: Prepared, spec: RunSpec, run_id: str) -> Prepared:
    from sandbox.environment.network import find_own_network, warn_of_host_names
    from sandbox.records.enclosure import Network

    kind = Network(spec.network)
    program = replace(
        prepared.program, own_network=find_own_network(kind, run_id, ports=spec.ports)
    )
    return replace(prepared, program=program, warnings=tuple(warn_of_host_names(kind)))


# The environment


def _environment(
    spec: RunSpec, *, run_id: str, home: str | None, hints: dict[str, str]
) -> dict[bytes, bytes]:
    environment = dict(os.environb)
    if spec.venv is not None:
        from sandbox.environment.venv import venv_variables

        environment.pop(b"PYTHONHOME", None)  # it would lead the environment's Python astray
        environment |= venv_variables(spec.venv, environment)
    for name in spec.environment_unset:
        environment.pop(os.fsencode(name), None)
    ours = {**hints, RUN_ID_VARIABLE: run_id, MARKS_VARIABLE: f"@{mark_name(run_id)}"}
    if home is not None:
        # As docker: caches below another user's HOME could not be written. USER and LOGNAME stay
        # what they are, which docker does not set either.
        ours["HOME"] = home
    for name, value in {**ours, **spec.environment}.items():
        environment[os.fsencode(name)] = os.fsencode(value)
    return environment


def find_thread_hints(spec: RunSpec, host: Host, *, inherits: bool = True) -> dict[str, str]:
    """Return the variables that keep libraries from starting a thread for every CPU of the host.

    A CPU limit does not change what the program sees of the host, so a library would start too
    many threads and be throttled. Who has set one of the variables has thought of it: then none
    is set.

    Args:
        spec: What was asked for.
        host: Where it will run.
        inherits: Whether the program gets our own variables.
    """
    if not spec.thread_hints or spec.limits.cpus is None:
        return {}
    seen = {*(os.environ if inherits else ()), *spec.environment} - set(spec.environment_unset)
    if not seen.isdisjoint(THREAD_VARIABLES):
        return {}
    allowed = spec.limits.cpuset_cpus or host.cpus_allowed
    count = max(1, min(math.ceil(spec.limits.cpus), len(allowed)))
    return dict.fromkeys(THREAD_VARIABLES, str(count))


# The user


def find_user(text: str) -> tuple[User | None, str | None]:
    """Return who `name`, `uid`, `user:group` is, and his home; None for both if it is ourselves.

    As docker: an explicit group leaves no supplementary ones. Other than docker, a uid that has no
    entry needs a group beside it: docker's answer, group 0, owns files on a host.

    Raises:
        LaunchError: unknown, or not to be switched to (126).
    """
    name, _, group = text.partition(":")
    entry = _find_entry(name)
    uid = entry.pw_uid if entry is not None else _number(name, "user")
    if group:
        gid = _find_gid(group)
        groups: tuple[int, ...] = ()
    elif entry is not None:
        gid = entry.pw_gid
        groups = tuple(os.getgrouplist(entry.pw_name, gid))
    else:
        raise LaunchError(
            f"user {name} has no entry in the user database, so its group is not known",
            exit_code=EXIT_NOT_EXECUTABLE,
            hint=f"name the group too: `{name}:GROUP`",
        )
    if os.geteuid() != 0:
        if (uid, gid) == (os.geteuid(), os.getegid()):
            return None, None
        raise LaunchError(
            f"cannot run as user {text}: only root can become another user",
            exit_code=EXIT_NOT_EXECUTABLE,
            hint="leave out --user, or run as root",
        )
    return (uid, gid, groups), (entry.pw_dir if entry is not None else "/")


def _find_entry(name: str) -> struct_passwd | None:
    import pwd

    try:
        return pwd.getpwuid(int(name)) if _is_number(name) else pwd.getpwnam(name)
    except (KeyError, OverflowError):
        return None


def _find_gid(name: str) -> int:
    if _is_number(name):
        return _number(name, "group")
    from grp import getgrnam

    try:
        return getgrnam(name).gr_gid
    except KeyError:
        return _number(name, "group")


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal()


def _number(name: str, what: str) -> int:
    if not _is_number(name) or int(name) > _LARGEST_ID:
        raise LaunchError(
            f"there is no {what} `{name}` on this host",
            exit_code=EXIT_NOT_EXECUTABLE,
            hint=f"write a name that `getent {'passwd' if what == 'user' else what}` knows, "
            "or a number",
        )
    return int(name)


# Resource limits


def find_rlimit(name: str) -> int:
    """Return the kernel's number of docker's name for a resource limit."""
    if name == "locks":
        return _RLIMIT_LOCKS
    number: int = getattr(resource, f"RLIMIT_{name.upper()}")
    return number


def prepare_ulimits(
    ulimits: tuple[Ulimit, ...],
) -> tuple[tuple[tuple[int, int, int], ...], tuple[LimitReport, ...]]:
    """Return the resource limits as a program carries them, and what becomes of each.

    Raises:
        HostError: one is above the hard limit that this process has.
    """
    return tuple(map(_rlimit, ulimits)), tuple(map(_report, ulimits))


def _rlimit(ulimit: Ulimit) -> tuple[int, int, int]:
    which = find_rlimit(ulimit.name)
    soft = resource.RLIM_INFINITY if ulimit.soft == -1 else ulimit.soft
    hard = resource.RLIM_INFINITY if ulimit.hard == -1 else ulimit.hard
    ours = resource.getrlimit(which)[1]
    if _is_above(hard, ours) and not _may_raise():
        raise HostError(
            f"ulimit {ulimit.name}={_words(ulimit)} is above the hard limit of {ours}",
            hint="raising a hard limit needs CAP_SYS_RESOURCE, as root usually has",
        )
    return which, soft, hard


def _is_above(asked: int, ours: int) -> bool:
    if ours == resource.RLIM_INFINITY:
        return False
    return asked == resource.RLIM_INFINITY or asked > ours


def _may_raise() -> bool:
    """Return whether this process may raise hard limits; being root alone does not suffice."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:  # noqa: PTH123
            for line in file:
                if line.startswith("CapEff:"):
                    return bool(int(line.split()[1], 16) >> _CAP_SYS_RESOURCE & 1)
    except OSError:
        pass
    return os.geteuid() == 0


def _report(ulimit: Ulimit) -> LimitReport:
    return LimitReport(
        name=f"ulimit_{ulimit.name}",
        asked=_words(ulimit),
        state=LimitState.ENFORCED,
        file=f"RLIMIT_{ulimit.name.upper()}",
        value=_words(ulimit),
    )


def _words(ulimit: Ulimit) -> str:
    soft, hard = (
        "unlimited" if value == -1 else str(value) for value in (ulimit.soft, ulimit.hard)
    )
    return soft if soft == hard else f"{soft}:{hard}"
