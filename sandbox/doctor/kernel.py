"""What the kernel can do for runs: counters, killing, phases, namespaces, confinement."""

from __future__ import annotations

from sandbox.doctor.check import Answer, Check, boot_with, ok, skip, warn
from sandbox.doctor.facts import Facts
from sandbox.kernel.features import CGROUP_KILL, MEMORY_PEAK, PEAK_RESET, Version
from sandbox.records.host import Mode

_V1_PEAK = "memory.max_usage_in_bytes"
_LANDLOCK = (5, 13)


def _is(version: Version) -> str:
    return f"Linux {version[0]}.{version[1]}"


def _version(facts: Facts) -> Answer:
    features = facts.features
    if features.version is None:
        return skip(f"the kernel calls itself {features.release}, which says no version")
    if features.version < CGROUP_KILL:
        return warn(
            f"Linux {features.release}: {_is(CGROUP_KILL)} kills a whole group at once, "
            f"{_is(MEMORY_PEAK)} keeps its exact memory peak"
        )
    return ok(f"Linux {features.release}")


def _memory_peak(facts: Facts) -> Answer:
    if facts.place.mode is Mode.HYBRID and "memory" in facts.place.v1:
        return ok(f"exact: {_V1_PEAK}")
    if facts.place.mode is not Mode.UNIFIED or "memory" not in facts.place.controllers:
        return skip("runs have no memory group here, so their peak is sampled")
    if facts.features.memory_peak:
        return ok("exact: memory.peak")
    return warn(f"sampled: memory.peak needs {_is(MEMORY_PEAK)}")


def _memory_peak_reset(facts: Facts) -> Answer:
    if facts.place.mode is Mode.HYBRID and "memory" in facts.place.v1:
        return ok(f"each phase of a run has its exact peak: {_V1_PEAK} can be started anew")
    if facts.place.mode is not Mode.UNIFIED or "memory" not in facts.place.controllers:
        return skip("runs have no memory group here, so the peaks of phases are sampled")
    if facts.features.peak_reset and facts.features.memory_peak:
        return ok("each phase of a run has its exact peak: memory.peak can be started anew")
    return warn(
        f"the peaks of phases are sampled: starting memory.peak anew needs {_is(PEAK_RESET)}"
    )


def _cgroup_kill(facts: Facts) -> Answer:
    if facts.place.mode is Mode.NONE:
        return skip("runs have no group here: a keeper kills their processes one by one")
    if facts.features.cgroup_kill:
        return ok("a whole run dies at once")
    return warn(
        f"a run's processes are frozen and killed one by one: cgroup.kill needs {_is(CGROUP_KILL)}"
    )


def _pressure(facts: Facts) -> Answer:
    if facts.features.pressure:
        return ok("time spent waiting for CPU, memory and I/O is counted")
    return warn(
        "time spent waiting (PSI) is not counted: boot with psi=1",
        boot_with("psi=1", facts.features.boot_tool),
    )


def _birth(facts: Facts) -> Answer:
    if facts.place.mode is Mode.NONE:
        return skip("there is no group to be born in")
    if facts.features.clone_into_cgroup:
        return ok("programs are born inside their group (clone3)")
    where = (
        f"a filter of this {facts.features.container} container"
        if facts.features.container
        else "this kernel"
    )
    return warn(f"programs join their group before they start: {where} has no clone3 for groups")


def _pidfd(facts: Facts) -> Answer:
    if facts.features.pidfd:
        return ok("processes are named by descriptors, which no other can inherit")
    return warn("processes are named by numbers, which the kernel may give to others (Linux 5.3)")


def _user_namespaces(facts: Facts) -> Answer:
    spaces = facts.features.user_namespaces
    use = "images and --harden without root need them; limits do not"
    if spaces.most is None:
        return warn(f"this kernel has no user namespaces: {use}")
    if spaces.most == 0:
        return warn(
            f"user namespaces are switched off: {use}",
            "sudo sysctl -w user.max_user_namespaces=15000",
        )
    if facts.is_root:
        return ok("root may make them")
    for is_closed, setting, value in (
        (spaces.is_refused, "kernel.unprivileged_userns_clone", 1),
        (spaces.is_restricted, "kernel.apparmor_restrict_unprivileged_userns", 0),
    ):
        if is_closed:
            return warn(
                f"{setting} keeps them from plain users: {use}", f"sudo sysctl -w {setting}={value}"
            )
    return ok("plain users may make them")


def _landlock(facts: Facts) -> Answer:
    abi = facts.features.landlock_abi
    if abi:
        return ok(f"version {abi} of its interface")
    modules = facts.features.security_modules
    if modules is None or (facts.features.version or (0, 0)) < _LANDLOCK:
        return warn(f"files cannot be confined without root: Landlock needs {_is(_LANDLOCK)}")
    return warn(
        "files cannot be confined without root: Landlock is switched off",
        boot_with(f"lsm=landlock,{modules}", facts.features.boot_tool),
    )


def _overlay(facts: Facts) -> Answer:
    if facts.features.overlay == "loaded":
        return ok("layers of images can be stacked")
    if facts.features.overlay == "loadable":
        return warn("the overlay module is not loaded: images are copied", "sudo modprobe overlay")
    return warn("this kernel has no overlay file system: images are copied")


def _seccomp(facts: Facts) -> Answer:
    if facts.features.seccomp is None:
        return warn("this kernel cannot filter system calls")
    if facts.features.seccomp == "filtered":
        return ok("there is a filter on us already, as container engines set it")
    return ok("system calls can be filtered")


def _energy(facts: Facts) -> Answer:
    zones = facts.energy
    if zones.zones:
        names = ", ".join(zone.name for zone in zones.zones)
        return ok(f"the whole machine's: {names}")
    if zones.is_refused:
        return warn(
            "only root may read the machine's energy counters (until the next boot, with the fix)",
            "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj",
        )
    return skip(zones.reason or "there are no energy counters")


CHECKS = (
    Check("version", "How new is the kernel?", _version),
    Check("memory-peak", "Does the kernel keep a run's exact memory peak?", _memory_peak),
    Check("memory-peak-reset", "Has each phase of a run its exact peak?", _memory_peak_reset),
    Check("cgroup-kill", "Can a whole run be killed at once?", _cgroup_kill),
    Check("pressure", "Does the kernel count time spent waiting (PSI)?", _pressure),
    Check("birth", "Can programs be born inside their group (clone3)?", _birth),
    Check("pidfd", "Can processes be named by descriptors?", _pidfd),
    Check("user-namespaces", "May this user make user namespaces?", _user_namespaces),
    Check("landlock", "Can files be confined without root?", _landlock),
    Check("overlay", "Can layers of images be stacked?", _overlay),
    Check("seccomp", "Can system calls be filtered?", _seccomp),
    Check("energy", "Can the machine's energy counters be read?", _energy),
)
