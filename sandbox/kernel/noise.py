"""What makes times and peaks differ from run to run: settings and load of the machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from sandbox.errors import KernelError
from sandbox.kernel.features import find_number
from sandbox.kernel.files import find_text
from sandbox.kernel.host import read_load
from sandbox.kernel.parse_proc import parse_loadavg, parse_meminfo
from sandbox.kernel.roots import Roots
from sandbox.records.light import dataclass

_CHOSEN = re.compile(r"\[(\w+)\]")
_MOST_CPUS_ASKED = 64  # they share their settings; of a larger host these tell enough
_TURBO_OFF = "intel_pstate/no_turbo"  # 1 is off
_BOOST = "cpufreq/boost"  # 1 is on


@dataclass(frozen=True, kw_only=True)
class Turbo:
    """Whether CPUs may run above their nominal frequency for a while, and what changes it."""

    is_on: bool
    file: Path
    off: str
    """What to write to the file to keep them from it."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """The machine's settings and load; None where it does not tell."""

    governors: tuple[str, ...]
    """How frequencies are chosen, each kind once; empty where the machine does not tell."""
    turbo: Turbo | None
    smt: bool | None
    """Whether two hardware threads share a core."""
    swap_total_bytes: int
    swap_used_bytes: int
    huge_pages: str | None
    """When memory is given in huge pages: `always`, `madvise` or `never`."""
    randomized: int | None
    """kernel.randomize_va_space: 2 is all of it."""
    load: float | None
    """Tasks that ran or waited, on average over the last minute."""
    cpus: int
    steal_ratio: float | None
    """Share of the CPU time since boot that a hypervisor gave to others."""
    thermal_throttles: int | None
    """Times that CPUs were slowed for their temperature since boot."""


def read_noise(roots: Roots, cpus: int) -> Noise:
    """Return the settings and the load of a machine with so many CPUs."""
    cpu_settings = roots.sys / "devices" / "system" / "cpu"
    memory = _meminfo(roots)
    total = memory.get("SwapTotal", 0)
    host = read_load(roots)
    steal = None
    if host.steal_usec is not None and host.total_usec:
        steal = host.steal_usec / host.total_usec
    huge_pages = find_text(roots.sys / "kernel" / "mm" / "transparent_hugepage" / "enabled")
    chosen = _CHOSEN.search(huge_pages or "")
    smt = find_number(cpu_settings / "smt" / "active")
    return Noise(
        governors=tuple(dict.fromkeys(_governors(cpu_settings))),
        turbo=_turbo(cpu_settings),
        smt=None if smt is None else smt == 1,
        swap_total_bytes=total,
        swap_used_bytes=total - memory.get("SwapFree", total),
        huge_pages=None if chosen is None else chosen[1],
        randomized=find_number(roots.proc / "sys" / "kernel" / "randomize_va_space"),
        load=_load(roots),
        cpus=cpus,
        steal_ratio=steal,
        thermal_throttles=host.thermal_throttles,
    )


def _meminfo(roots: Roots) -> dict[str, int]:
    text = find_text(roots.proc / "meminfo")
    return {} if text is None else parse_meminfo(text)


def _governors(settings: Path) -> Iterator[str]:
    for cpu in range(_MOST_CPUS_ASKED):
        governor = find_text(settings / f"cpu{cpu}" / "cpufreq" / "scaling_governor")
        if governor and governor.strip():
            yield governor.strip()


def _turbo(settings: Path) -> Turbo | None:
    no_turbo = find_number(settings / _TURBO_OFF)
    if no_turbo is not None:
        return Turbo(is_on=no_turbo == 0, file=settings / _TURBO_OFF, off="1")
    boost = find_number(settings / _BOOST)
    if boost is not None:
        return Turbo(is_on=boost == 1, file=settings / _BOOST, off="0")
    return None


def _load(roots: Roots) -> float | None:
    text = find_text(roots.proc / "loadavg")
    try:
        return None if text is None else parse_loadavg(text).one
    except KernelError:
        return None
