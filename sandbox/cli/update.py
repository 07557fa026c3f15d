"""`sandbox update`: other limits for running sandboxes."""

# Without `from __future__ import annotations`, as in `run`: typer reads the flags' types.

from typing import Annotated, Any

from sandbox.cli.console import say
from sandbox.cli.each import SANDBOXES, for_each
from sandbox.cli.limit_options import LIMITS, MemoryHigh, MemoryReservation, MemorySwap
from sandbox.cli.options import option, parse_pids, parse_shares
from sandbox.errors import SpecError
from sandbox.units import (
    parse_cpu_list,
    parse_cpus,
    parse_size_or_unlimited,
)


def update(
    sandboxes: Annotated[list[str], SANDBOXES],
    cpus: Annotated[
        float | None,
        option("--cpus", panel=LIMITS, metavar="N", parser=parse_cpus, help="CPU bandwidth."),
    ] = None,
    cpuset_cpus: Annotated[
        str | None,
        option("--cpuset-cpus", panel=LIMITS, metavar="LIST", help="Which CPUs: 0-3,6."),
    ] = None,
    cpu_shares: Annotated[
        int | None,
        option(
            "--cpu-shares",
            "-c",
            panel=LIMITS,
            metavar="N",
            parser=parse_shares,
            help="Weight beside others when CPUs are short; 1024 is usual.",
        ),
    ] = None,
    memory: Annotated[
        int | None,
        option(
            "--memory",
            "-m",
            panel=LIMITS,
            metavar="SIZE",
            parser=parse_size_or_unlimited,
            help="Memory limit; -1 for none. Swap stays as it was asked for.",
        ),
    ] = None,
    memory_swap: MemorySwap = None,
    memory_reservation: MemoryReservation = None,
    memory_high: MemoryHigh = None,
    pids_limit: Annotated[
        int | None,
        option(
            "--pids-limit",
            panel=LIMITS,
            metavar="N",
            parser=parse_pids,
            help="Processes and threads; -1 for no limit.",
        ),
    ] = None,
) -> None:
    """Change limits of running sandboxes: all that are given, or none if one cannot be set.

    The kernel's files are written and read back; each change is an event of the run, and a
    warning in its result.
    """
    from sandbox.control.naming import Names
    from sandbox.control.request import ask

    given: dict[str, Any] = {
        "cpus": cpus,
        "cpuset_cpus": None if cpuset_cpus is None else list(parse_cpu_list(cpuset_cpus)),
        "cpu_shares": cpu_shares,
        "memory_bytes": memory,
        "memory_swap_bytes": memory_swap,
        "memory_reservation_bytes": memory_reservation,
        "memory_high_bytes": memory_high,
        "pids": pids_limit,
    }
    limits = {name: value for name, value in given.items() if value is not None}
    if not limits:
        raise SpecError("no limit is given", hint="such as `sandbox update --cpus 0.5 NAME`")
    names = Names()

    def change(asked: str) -> None:
        for warning in ask(names.running(asked), {"act": "update", "limits": limits}):
            say(f"warning: {asked}: {warning}")

    for_each(sandboxes, change)
