"""How the flags of `sandbox run` are declared and read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from sandbox.errors import SpecError
from sandbox.units import UNLIMITED, parse_cpu_list

if TYPE_CHECKING:
    from sandbox.kernel.leases import Lease

_AUTO = "auto"
_leases: list[Lease] = []
"""Held until this process ends, and by the supervisor of a detached run until it ends."""


class RunCommand(TyperCommand):
    """Lets `--capture` stand alone as well as with `=tee`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give a bare `--capture` its usual value, left of the command only."""
        takes_value = {
            name
            for param in self.params
            if not getattr(param, "is_flag", False)
            for name in param.opts
            if name.startswith("-")
        }
        position = 0
        while position < len(args) and args[position].startswith("-") and args[position] != "--":
            if args[position] == "--capture":
                args[position] = "--capture=file"
            elif args[position] in takes_value:
                position += 1
            position += 1
        return super().parse_args(ctx, args)


def parse_pids(text: str) -> int:
    """Return a limit on processes; docker has several ways to say that there is none."""
    if text in {"0", "-1", "max", "unlimited"}:
        return UNLIMITED
    if not text.isdecimal():
        raise SpecError(f"`{text}` is not a number of processes")
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


def option(name: str, *more: str, panel: str, help: str, **kw: Any) -> Any:  # noqa: A002
    """Declare one flag of a panel of `--help`."""
    return typer.Option(name, *more, help=help, rich_help_panel=panel, show_default=False, **kw)
