"""How flags are declared, without typer: a start that can do without it takes two thirds.

`sandbox.cli.app` makes typer's flags of them, and `sandbox.cli.quick` reads plain command lines.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sandbox.errors import SpecError
from sandbox.records.light import dataclass, field
from sandbox.units import UNLIMITED, parse_cpu_list

if TYPE_CHECKING:
    from sandbox.kernel.leases import Lease

_AUTO = "auto"
_leases: list[Lease] = []
"""Held until this process ends, and by the supervisor of a detached run until it ends."""


@dataclass(frozen=True, kw_only=True)
class Flag:
    """One flag of a command."""

    names: tuple[str, ...]
    """As they are typed; `--yes/--no` for one that can be refused."""
    panel: str
    """Of `--help`."""
    help: str
    metavar: str | None = None
    parser: Callable[[str], Any] | None = None
    """What reads its value, or raises SpecError or ValueError; None: the annotated type does."""
    envvar: str | None = None
    alone: str | None = None
    """The value of one that may stand alone, and takes another only as `--flag=value`."""
    more: dict[str, Any] = field(default_factory=dict)
    """Anything else that typer is to know."""


@dataclass(frozen=True, kw_only=True)
class Words:
    """The words of a command line that are no flags."""

    metavar: str
    help: str


def parse_pids(text: str) -> int:
    """Return a limit on processes; docker has several ways to say that there is none."""
    if text in {"0", "-1", "max", "unlimited"}:
        return UNLIMITED
    if not text.isdecimal():
        raise SpecError(
            f"`{text}` is not a number of processes", hint="write a whole number, or `unlimited`"
        )
    return int(text)


def parse_cpuset(text: str, cpus: float | None) -> tuple[int, ...]:
    """Return the CPUs of a list, or those of a lease: `auto:2`, or `auto` for as many as `cpus`.

    Raises:
        SpecError: it is neither.
        HostError: not as many CPUs are free.
    """
    if text.partition(":")[0] != _AUTO:
        return parse_cpu_list(text)
    from sandbox.kernel.host import read_host
    from sandbox.kernel.leases import lease_cpus
    from sandbox.kernel.place import find_place
    from sandbox.kernel.roots import Roots

    number = text.removeprefix(_AUTO).removeprefix(":") or str(math.ceil(cpus or 1))
    if not (number.isascii() and number.isdecimal()) or int(number) < 1:
        raise SpecError(f"`{text}` is not a number of CPUs", hint="write it as in `auto:2`")
    roots = Roots()
    allowed = read_host(roots, find_place(roots)).cpus_allowed
    lease = lease_cpus(int(number), allowed, roots)
    _leases.append(lease)
    return lease.cpus


def parse_shares(text: str) -> int:
    """Return CPU shares on docker's scale."""
    if not text.isdecimal():
        raise SpecError(f"`{text}` is not a number of CPU shares", hint="1024 is the usual share")
    return int(text)


def option(
    name: str,
    *more: str,
    panel: str,
    help: str,  # noqa: A002
    metavar: str | None = None,
    parser: Callable[[str], Any] | None = None,
    envvar: str | None = None,
    alone: str | None = None,
    **others: Any,
) -> Flag:
    """Declare one flag of a panel of `--help`."""
    return Flag(
        names=(name, *more),
        panel=panel,
        help=help,
        metavar=metavar,
        parser=parser,
        envvar=envvar,
        alone=alone,
        more=others,
    )


def declared_in(function: Callable[..., None]) -> list[tuple[str, Any, Flag | Words]]:
    """Return the name, the type and the declaration of each parameter that has one."""
    return [
        (name, hint.__origin__, declared)
        for name, hint in function.__annotations__.items()
        for declared in getattr(hint, "__metadata__", ())
        if isinstance(declared, (Flag, Words))
    ]
