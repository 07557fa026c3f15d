"""What makes the same run take another time, or another peak, the next time."""

from __future__ import annotations

from sandbox.doctor.check import Answer, Check, ok, skip, warn
from sandbox.doctor.facts import Facts
from sandbox.units import format_size

_STEADY_GOVERNOR = "performance"
_BUSY_SHARE = 0.25  # of the host's CPUs; below that, a desktop at rest
_STEAL_RATIO = 0.01
_ALL_RANDOMIZED = 2
_SETTINGS = "/sys/devices/system/cpu"


def _governor(facts: Facts) -> Answer:
    governors = facts.noise.governors
    if not governors:
        return skip("the machine does not tell how frequencies are chosen, as most virtual ones")
    if governors == (_STEADY_GOVERNOR,):
        return ok(f"{_STEADY_GOVERNOR}: frequencies stay high")
    return warn(
        f"{', '.join(governors)}: frequencies follow the load, so short runs look slower",
        f"echo {_STEADY_GOVERNOR} | sudo tee {_SETTINGS}/cpu*/cpufreq/scaling_governor",
    )


def _turbo(facts: Facts) -> Answer:
    turbo = facts.noise.turbo
    if turbo is None:
        return skip("the machine does not tell whether it has a turbo")
    if not turbo.is_on:
        return ok("off: CPUs keep to their nominal frequency")
    return warn(
        "on: CPUs are faster while they are cool and few are busy",
        f"echo {turbo.off} | sudo tee {turbo.file}",
    )


def _smt(facts: Facts) -> Answer:
    if facts.noise.smt is None:
        return skip("the machine does not tell whether CPUs share cores")
    if not facts.noise.smt:
        return ok("each CPU is a core of its own, as far as this machine shows")
    return warn(
        "two CPUs share a core: what runs on one slows the other",
        f"echo off | sudo tee {_SETTINGS}/smt/control",
    )


def _swap(facts: Facts) -> Answer:
    noise = facts.noise
    if not noise.swap_total_bytes:
        return ok("the host has none")
    if not noise.swap_used_bytes:
        return ok(f"{format_size(noise.swap_total_bytes)}, not in use")
    return warn(
        f"{format_size(noise.swap_used_bytes)} in use: memory was short, and may have to be "
        "fetched back during a run",
        "sudo swapoff -a && sudo swapon -a",
    )


def _load(facts: Facts) -> Answer:
    noise = facts.noise
    if noise.load is None:
        return skip("the host does not tell its load")
    text = f"{noise.load:g} tasks on {noise.cpus} CPUs in the last minute"
    if noise.load <= _BUSY_SHARE * noise.cpus:
        return ok(text)
    return warn(
        f"{text}: others take CPU time from a run", "ps -eo pcpu,pid,user,args --sort=-pcpu | head"
    )


def _steal(facts: Facts) -> Answer:
    ratio = facts.noise.steal_ratio
    if ratio is None:
        return skip("the host does not tell what its hypervisor gives to others")
    if ratio <= _STEAL_RATIO:
        return ok(f"{ratio:.1%} of the CPU time since boot went to other machines")
    return warn(
        f"{ratio:.1%} of the CPU time since boot went to other machines: times differ with theirs"
    )


def _huge_pages(facts: Facts) -> Answer:
    chosen = facts.noise.huge_pages
    if chosen is None:
        return skip("this kernel has no transparent huge pages")
    if chosen != "always":
        return ok(f"{chosen}: only programs that ask get them")
    return warn(
        "always: memory peaks grow in steps of 2 MiB, by chance",
        "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
    )


def _addresses(facts: Facts) -> Answer:
    if facts.noise.randomized is None:
        return skip("this kernel does not tell whether addresses are random")
    if facts.noise.randomized == _ALL_RANDOMIZED:
        return ok("random: repeats average over layouts, a single run has one by chance")
    return warn(
        "not all random: every repeat has the same layout, which may be a lucky or a bad one",
        f"sudo sysctl -w kernel.randomize_va_space={_ALL_RANDOMIZED}",
    )


def _thermal(facts: Facts) -> Answer:
    count = facts.noise.thermal_throttles
    if count is None:
        return skip("the machine does not count it")
    if not count:
        return ok("no CPU was slowed for its temperature since boot")
    return warn(
        f"CPUs were slowed for their temperature {count} times since boot: let the machine cool, "
        "and look at its fans"
    )


CHECKS = (
    Check("governor", "Do CPU frequencies follow the load?", _governor),
    Check("turbo", "Do CPUs run faster while they are cool?", _turbo),
    Check("smt", "Do CPUs share cores?", _smt),
    Check("swap", "Is swap in use?", _swap),
    Check("load", "Are others busy on this machine?", _load),
    Check("steal", "Does a hypervisor give CPU time to others?", _steal),
    Check("huge-pages", "Do memory peaks come in steps?", _huge_pages),
    Check("addresses", "Are addresses random (ASLR)?", _addresses),
    Check("thermal", "Were CPUs slowed for their temperature?", _thermal),
)
