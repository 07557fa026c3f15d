"""Whether this host can hold what was asked for: looked at before anything is created."""

from __future__ import annotations

from sandbox.errors import HostError
from sandbox.records.host import Host
from sandbox.records.result import RunWarning
from sandbox.spec import Limits
from sandbox.units import UNLIMITED, format_cpu_list, format_size


def check(limits: Limits, host: Host) -> tuple[RunWarning, ...]:
    """Return what is possible but surprising; `limits` are those of `Limits.with_defaults()`.

    Raises:
        HostError: more CPUs than may be used here, CPUs that are not among them, or no such disk.
    """
    _check_cpus(limits, host)
    if limits.device_rates:
        from sandbox.kernel.io_limits import find_disk
        from sandbox.kernel.roots import Roots

        for rate in limits.device_rates:
            find_disk(rate.path, Roots())
    return (*_cpu_warnings(limits), *_memory_warnings(limits, host))


def _check_cpus(limits: Limits, host: Host) -> None:
    allowed = host.cpus_allowed
    described = _describe_cpus(host)
    if limits.cpus is not None and limits.cpus > len(allowed):
        raise HostError(
            f"{limits.cpus:g} CPUs were asked for, but {described}",
            hint=f"ask for at most {len(allowed)}, as in `--cpus {len(allowed)}`",
        )
    foreign = sorted(set(limits.cpuset_cpus or ()) - set(allowed))
    if foreign:
        raise HostError(
            f"CPU {format_cpu_list(foreign)} was asked for, but {described}",
            hint=f"choose among them, as in `--cpuset-cpus {format_cpu_list(allowed)}`",
        )


def _describe_cpus(host: Host) -> str:
    online, allowed = host.cpus_online, host.cpus_allowed
    if set(online) == set(allowed):
        return f"this host has {len(online)} ({format_cpu_list(online)})"
    return (
        f"of this host's {len(online)} CPUs only {len(allowed)} "
        f"({format_cpu_list(allowed)}) may be used here"
    )


def _cpu_warnings(limits: Limits) -> tuple[RunWarning, ...]:
    if limits.cpus is None or limits.cpuset_cpus is None:
        return ()
    if limits.cpus <= len(limits.cpuset_cpus):
        return ()
    return (
        RunWarning(
            code="cpus_above_cpuset",
            text=f"the limit of {limits.cpus:g} CPUs cannot be reached on "
            f"CPU {format_cpu_list(limits.cpuset_cpus)} alone",
        ),
    )


def _memory_warnings(limits: Limits, host: Host) -> tuple[RunWarning, ...]:
    memory, swap = limits.memory_bytes, limits.swap_bytes
    warnings = []
    if memory not in {None, UNLIMITED} and 0 < host.memory_total_bytes < (memory or 0):
        warnings.append(
            RunWarning(
                code="memory_above_host",
                text=f"the memory limit of {format_size(memory or 0)} is above the host's "
                f"{format_size(host.memory_total_bytes)}: the host runs short first",
            )
        )
    if swap not in {None, 0, UNLIMITED} and host.swap_total_bytes == 0:
        warnings.append(
            RunWarning(
                code="no_swap_on_host",
                text=f"{format_size(swap or 0)} of swap was asked for, but the host has none",
            )
        )
    return tuple(warnings)
