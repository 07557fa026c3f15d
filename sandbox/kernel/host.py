"""What the machine is, and what it does meanwhile: a few small files, no library."""

from __future__ import annotations

import os
import time
from pathlib import Path

from sandbox.errors import KernelError
from sandbox.kernel.files import find_text
from sandbox.kernel.parse import find_flat, parse_cpuset, parse_number
from sandbox.kernel.parse_proc import (
    find_status,
    parse_cpu_model,
    parse_loadavg,
    parse_meminfo,
    parse_stat,
)
from sandbox.kernel.place import Place
from sandbox.kernel.roots import Roots
from sandbox.records.host import Host, HostLoad
from sandbox.units import USEC_PER_SEC

_USEC_PER_TICK = USEC_PER_SEC // os.sysconf("SC_CLK_TCK")
# A page of cpuinfo names the CPUs of a board; whole it costs a server milliseconds.
_CPUINFO_BYTES = 4_096
_ONLINE = "devices/system/cpu/online"
_THROTTLE = "thermal_throttle/core_throttle_count"
_VMSTAT_KEYS = ("pswpin", "pswpout", "oom_kill")
_ENERGY = "class/powercap"
NO_ENERGY = "this machine has no powercap energy counters, as most virtual machines"
_MOST_CPUS_ASKED = 64  # of a larger host some CPUs tell enough, for a warning


def read_host(roots: Roots, place: Place) -> Host:
    """Return the machine that a run happens on.

    Raises:
        KernelError: `/proc` is not mounted, or makes no sense.
    """
    memory = parse_meminfo(_must(roots.proc / "meminfo"))
    online = _online(roots)
    system = os.uname()
    return Host(
        mode=place.mode,
        mode_reason=place.reason,
        controllers=place.controllers,
        cpus_online=online,
        cpus_allowed=_allowed(roots, online, place.outer.cpuset_cpus),
        memory_total_bytes=memory.get("MemTotal", 0),
        swap_total_bytes=memory.get("SwapTotal", 0),
        kernel=system.release,
        machine=system.machine,
        cpu_model=_cpu_model(roots.proc / "cpuinfo"),
        hostname=system.nodename or None,
        unavailable={} if has_energy_counters(roots) else {"energy_uj": NO_ENERGY},
    )


def has_energy_counters(roots: Roots) -> bool:
    """Return whether powercap is there; `energy.py` tells whether it can be read."""
    return os.path.isdir(f"{roots.sys}/{_ENERGY}")  # noqa: PTH112 - on the way of every start


def _must(path: Path) -> str:
    text = find_text(path)
    if text is None:
        raise KernelError(f"cannot read {path}", hint="is /proc mounted?")
    return text


def _online(roots: Roots) -> tuple[int, ...]:
    text = find_text(roots.sys / _ONLINE)
    if text and text.strip():
        return parse_cpuset(text)
    # No /sys, as in some containers: /proc/stat still counts them.
    return tuple(range(parse_stat(_must(roots.proc / "stat")).cpus))


def _allowed(
    roots: Roots, online: tuple[int, ...], outer: tuple[int, ...] | None
) -> tuple[int, ...]:
    """Return the CPUs that are online, in our affinity and in the groups around us."""
    text = find_text(roots.proc / "self" / "status")
    affinity = None if text is None else find_status(text, "Cpus_allowed_list")
    allowed = set(online)
    for limit in (parse_cpuset(affinity) if affinity else None, outer):
        if limit is not None and allowed & set(limit):
            allowed &= set(limit)
    return tuple(sorted(allowed))


def _cpu_model(path: Path) -> str | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return parse_cpu_model(os.read(fd, _CPUINFO_BYTES).rpartition(b"\n")[0])
    except (OSError, KernelError):
        return None
    finally:
        os.close(fd)


def read_load(roots: Roots) -> HostLoad:
    """Return what the whole machine has done since its start; what it does not tell is None."""
    stat = find_text(f"{roots.proc}/stat")
    # The first line is the sum of all CPUs; the rest is long on a large host.
    ticks = (
        None if stat is None else parse_stat(stat[: stat.index("\n") + 1] if "\n" in stat else stat)
    )
    vmstat = find_text(f"{roots.proc}/vmstat")
    pages = {} if vmstat is None else find_flat(vmstat, _VMSTAT_KEYS)
    loadavg = find_text(f"{roots.proc}/loadavg")
    total = idle = steal = None
    if ticks is not None:
        total = (ticks.docker_total + (ticks.steal or 0)) * _USEC_PER_TICK
        idle = (ticks.idle + ticks.iowait) * _USEC_PER_TICK
        steal = None if ticks.steal is None else ticks.steal * _USEC_PER_TICK
    return HostLoad(
        time_ns=time.monotonic_ns(),
        total_usec=total,
        idle_usec=idle,
        steal_usec=steal,
        swap_in_pages=pages.get("pswpin"),
        swap_out_pages=pages.get("pswpout"),
        oom_kills=pages.get("oom_kill"),
        thermal_throttles=_thermal_throttles(roots),
        load_average=None if loadavg is None else parse_loadavg(loadavg).one,
    )


def _thermal_throttles(roots: Roots) -> int | None:
    total = None
    for cpu in range(_MOST_CPUS_ASKED):
        text = find_text(f"{roots.sys}/devices/system/cpu/cpu{cpu}/{_THROTTLE}")
        if text is None:
            break
        total = (total or 0) + parse_number(text)
    return total
