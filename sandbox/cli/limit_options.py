"""The flags of limits that several commands have, each declared once."""

from __future__ import annotations

from typing import Annotated, Any

from sandbox.cli.options import option
from sandbox.spec import DeviceRate, RateKind
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
BlkioWeight = Annotated[
    int | None,
    option(
        "--blkio-weight",
        panel=LIMITS,
        metavar="N",
        help="Weight beside others when disks are busy: 10 to 1000.",
    ),
]


def _rate(name: str, text: str, metavar: str = "DEVICE:SIZE") -> Any:
    return Annotated[list[str] | None, option(name, panel=LIMITS, metavar=metavar, help=text)]


DeviceReadBps = _rate("--device-read-bps", "Bytes read from a disk each second.")
DeviceWriteBps = _rate("--device-write-bps", "Bytes written to a disk each second.")
DeviceReadIops = _rate("--device-read-iops", "Reads from a disk each second.", "DEVICE:N")
DeviceWriteIops = _rate("--device-write-iops", "Writes to a disk each second.", "DEVICE:N")


def parse_rates(
    read_bps: list[str] | None,
    write_bps: list[str] | None,
    read_iops: list[str] | None,
    write_iops: list[str] | None,
) -> tuple[DeviceRate, ...]:
    """Return what the four flags say of disks.

    Raises:
        SpecError: one is not `DEVICE:RATE`.
    """
    given = (
        (RateKind.READ_BPS, read_bps),
        (RateKind.WRITE_BPS, write_bps),
        (RateKind.READ_IOPS, read_iops),
        (RateKind.WRITE_IOPS, write_iops),
    )
    return tuple(DeviceRate.parse(kind, text) for kind, texts in given for text in texts or ())
