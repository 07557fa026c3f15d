"""Which limits the kernel holds here, and what stands in the way of the others."""

from __future__ import annotations

from collections.abc import Iterator

from sandbox.doctor.check import Answer, Check, boot_with, fail, ok, skip, warn
from sandbox.doctor.facts import Facts
from sandbox.kernel.hierarchies import Hierarchies
from sandbox.kernel.place import CORE
from sandbox.records.host import Mode
from sandbox.units import format_cpu_list, format_size

_UNIFIED = "systemd.unified_cgroup_hierarchy=1"
_FILES = {
    "cpu": ("cpu.max", "cpu.cfs_quota_us"),
    "memory": ("memory.max", "memory.limit_in_bytes"),
    "pids": ("pids.max", "pids.max"),
    "io": ("io.stat", "blkio.throttle.io_service_bytes"),
    "cpuset": ("cpuset.cpus", "cpuset.cpus"),
}
_INSTEAD = {
    "cpu": "--cpus becomes an affinity to whole CPUs, and throttling is not counted",
    "memory": "--memory is only watched by sampling, and there is no exact peak",
    "pids": "--pids-limit becomes a limit on all processes of the user",
    "io": "bytes of block I/O are sampled from the processes, and devices not told apart",
    "cpuset": "--cpuset-cpus becomes an affinity, which a program may change",
}
DELEGATE = (
    "sudo mkdir -p /etc/systemd/system/user@.service.d && "
    "printf '[Service]\\nDelegate=cpu cpuset io memory pids\\n' | "
    "sudo tee /etc/systemd/system/user@.service.d/50-sandbox-delegate.conf && "
    "sudo systemctl daemon-reload  # then log out everywhere and in again, or reboot"
)


def _mode(facts: Facts) -> Answer:
    place = facts.place
    if place.mode is Mode.NONE:
        return fail(f"{place.mode.value}: {place.reason}", _way_out(facts))
    return ok(f"{place.mode.value}: {place.reason}")


def _way_out(facts: Facts) -> str | None:
    """Return what gives this user a group to make others in."""
    hierarchies = facts.hierarchies
    if facts.features.container:
        if not facts.is_root and _is_for_root(hierarchies):
            return "# start sandbox as root: with cgroup v1, limits are for root alone"
        return _out_of_container(facts.features.container)
    if hierarchies.v2 is None and hierarchies.v1:
        return (
            "sudo mkdir -p /sys/fs/cgroup/unified && "
            "sudo mount -t cgroup2 none /sys/fs/cgroup/unified"
        )
    if facts.is_root:
        return None
    return _unify(facts) if hierarchies.v1 else _ask_systemd(facts)


def _is_for_root(found: Hierarchies) -> bool:
    """Return whether root could make groups here: v1 beside v2, and neither is read-only."""
    sides = (found.v2, *(found.v1.get(name) for name in CORE))
    return all(
        side is not None and side.own is not None and "read-only" not in (side.reason or "")
        for side in sides
    )


def _ask_systemd(facts: Facts) -> str | None:
    sessions = facts.sessions
    if not sessions.is_booted:
        return None
    if sessions.manager_socket is None:
        return f"sudo loginctl enable-linger {sessions.user}"
    return "systemd-run --user --scope --quiet -p Delegate=yes -- sandbox run COMMAND"


def _out_of_container(kind: str) -> str:
    if kind == "podman":
        return "podman run --security-opt unmask=/sys/fs/cgroup --cgroups=split IMAGE"
    if kind == "kubernetes":
        return (
            "kubectl explain pod.spec.containers.securityContext.privileged"
            "  # or let the node's containerd set cgroup_writable = true"
        )
    if kind == "docker":
        return (
            "docker run --security-opt writable-cgroups=true IMAGE"
            "  # before Docker 28: --privileged --cgroupns=private"
        )
    return f"# start the {kind} container with a cgroup of its own that it may write"


def _unify(facts: Facts) -> str | None:
    if facts.features.wsl:
        return (
            "wsl.exe --shutdown  # once %UserProfile%\\.wslconfig has, below [wsl2]: "
            "kernelCommandLine = cgroup_no_v1=all"
        )
    return boot_with(_UNIFIED, facts.features.boot_tool) if facts.sessions.is_booted else None


def _hierarchies(facts: Facts) -> Answer:
    found = facts.hierarchies
    v1 = sorted(name for name in found.v1 if "=" not in name)
    if found.v2 is None and not v1:
        return fail("no cgroup hierarchy is mounted", "sudo mount -t cgroup2 none /sys/fs/cgroup")
    if not v1 and found.v2 is not None:
        return ok(f"cgroup v2 alone, at {found.v2.mount}")
    side = "without v2" if found.v2 is None else f"with v2 beside it, at {found.v2.mount}"
    return warn(
        f"cgroup v1 ({', '.join(v1)}) {side}: block I/O is counted in part, "
        "limits are for root alone",
        _unify(facts),
    )


def _controller(name: str) -> Check:
    unified, v1 = _FILES[name]

    def judge(facts: Facts) -> Answer:
        place = facts.place
        if name in place.controllers:
            file = v1 if place.mode is Mode.HYBRID else unified
            what = "counted by device" if name == "io" else "enforced by the kernel"
            return ok(f"{what}: {file}")
        reason = place.missing.get(name) or place.missing.get("blkio" if name == "io" else name)
        if reason is None and place.needs_scope:
            reason = f"systemd was not given the {name} controller to hand on"
        if reason is None:
            reason = "no group can be made" if place.mode is Mode.NONE else "it is not to be had"
        is_core = name in {"cpu", "memory", "pids"}
        answer = fail if is_core else warn
        return answer(f"{reason}: {_INSTEAD[name]}", _controller_fix(facts))

    return Check(name, f"Does the kernel hold limits of the {name} controller?", judge)


def _controller_fix(facts: Facts) -> str | None:
    if facts.place.mode is Mode.NONE:
        return _way_out(facts)
    if facts.is_root or facts.features.container or not facts.sessions.is_booted:
        return None
    return DELEGATE


def _swap(facts: Facts) -> Answer:
    if not facts.host.swap_total_bytes:
        return ok("the host has no swap")
    if "memory" not in facts.place.controllers:
        return skip("runs have no memory group here")
    if facts.features.swap_accounting is None:
        return skip("no group is there yet that would show it")
    if facts.features.swap_accounting:
        return ok("runs get no swap unless asked for")
    return warn(
        "swap is not limited by group, so a run may swap where it should end: boot with "
        "swapaccount=1",
        boot_with("swapaccount=1", facts.features.boot_tool),
    )


def _container(facts: Facts) -> Answer:
    kind = facts.features.container
    if kind is None:
        return ok("not inside a container")
    if facts.place.mode is Mode.NONE:
        return fail(f"inside a {kind} container: {facts.place.reason}", _way_out(facts))
    return ok(f"inside a {kind} container that may make groups")


def _nsdelegate(facts: Facts) -> Answer:
    if facts.features.nsdelegate is None or facts.place.mode is not Mode.UNIFIED:
        return skip("it concerns cgroup v2 alone")
    if facts.features.nsdelegate:
        return ok("containers cannot lift their own limits")
    return warn(
        "a container with a writable cgroup could lift its own limits",
        "sudo mount -o remount,nsdelegate /sys/fs/cgroup",
    )


def _nested(facts: Facts) -> Answer:
    if facts.place.outer_run is None:
        return ok("not inside another sandbox")
    return ok(f"inside {facts.place.outer_run}: its limits hold for what is run here")


def _outer(facts: Facts) -> Answer:
    limits = list(_outer_limits(facts))
    if not limits:
        return ok("no group around us is limited")
    return warn(f"a group around us is limited to {', '.join(limits)}; a run cannot have more")


def _outer_limits(facts: Facts) -> Iterator[str]:
    outer, host = facts.place.outer, facts.host
    if outer.cpus is not None:
        yield f"{outer.cpus:g} CPUs"
    if outer.cpuset_cpus is not None and set(outer.cpuset_cpus) < set(host.cpus_online):
        yield f"CPU {format_cpu_list(outer.cpuset_cpus)}"
    for size, what in (
        (outer.memory_bytes, "memory"),
        (outer.swap_bytes, "swap"),
        (outer.memory_swap_bytes, "memory and swap"),
    ):
        if size is not None and not (what == "swap" and not host.swap_total_bytes):
            yield f"{format_size(size)} of {what}"
    if outer.pids is not None:
        yield f"{outer.pids} processes"


CHECKS = (
    Check("mode", "How are limits set and counters read here?", _mode),
    Check("hierarchies", "Which cgroup hierarchies are mounted?", _hierarchies),
    *(_controller(name) for name in _FILES),
    Check("swap-limit", "Can a run be kept from swapping?", _swap),
    Check("container", "Are we inside a container, and may it make groups?", _container),
    Check("nsdelegate", "Is a cgroup namespace a border of delegation?", _nsdelegate),
    Check("nested", "Are we inside another sandbox?", _nested),
    Check("outer-limits", "Do groups around us have limits?", _outer),
)
