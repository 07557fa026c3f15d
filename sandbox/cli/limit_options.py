"""The flags of limits that several commands have, each declared once."""

from __future__ import annotations

from typing import Annotated

from sandbox.cli.options import option
from sandbox.units import parse_cpus, parse_size, parse_size_or_unlimited

LIMITS = "Limits"
"""Their panel in `--help`."""

Cpus = Annotated[
    float | None,
    option(
        "--cpus",
        panel=LIMITS,
        metavar="N",
        parser=parse_cpus,
        envvar="SANDBOX_CPUS",
        help="CPU bandwidth: 1.5 is one and a half CPUs.",
    ),
]
CpusetCpus = Annotated[
    str | None,
    option(
        "--cpuset-cpus",
        panel=LIMITS,
        metavar="LIST|auto:N",
        help="Which CPUs: 0-3,6; or N that no other run with auto has.",
    ),
]
MemorySwap = Annotated[
    int | None,
    option(
        "--memory-swap",
        panel=LIMITS,
        metavar="SIZE",
        parser=parse_size_or_unlimited,
        help="Memory and swap together; -1 for unlimited swap.",
    ),
]
MemoryReservation = Annotated[
    int | None,
    option(
        "--memory-reservation",
        panel=LIMITS,
        metavar="SIZE",
        parser=parse_size,
        help="Memory that is reclaimed last when the host is short.",
    ),
]
MemoryHigh = Annotated[
    int | None,
    option(
        "--memory-high",
        panel=LIMITS,
        metavar="SIZE",
        parser=parse_size,
        help="Above it the run is slowed down instead of killed.",
    ),
]
