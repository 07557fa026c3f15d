"""`--gpus`: the devices and libraries of NVIDIA's driver, shown inside by a list of our own.

An image has the CUDA libraries; what belongs to the driver is the host's, of its very version. It
goes to the directory that NVIDIA's images look into.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from sandbox.errors import HostError, SpecError
from sandbox.kernel.roots import Roots
from sandbox.records.enclosure import GpuPlan, Mount, MountKind
from sandbox.records.security import Device, Gpus

LIBRARIES = "/usr/local/nvidia/lib64"
_PROGRAMS = "/usr/local/nvidia/bin"
_OF_ALL = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
_GPU = re.compile(r"nvidia(\d+)")
_LIBRARY = re.compile(r"^\s*(lib(?:cuda|nvidia|nvcuvid|vdpau_nvidia)[\w.+-]*\.so\S*) .*=> (/\S+)$")
_TOOLS = ("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced")
_OTHER_GPUS = ("dri", "kfd")


def plan_gpus(gpus: Gpus, roots: Roots, cache: str | None = None) -> GpuPlan:
    """Return what to show inside for the GPUs that were asked for.

    Args:
        gpus: Which.
        roots: The host's file systems.
        cache: What `ldconfig -p` prints; None asks it.

    Raises:
        HostError: there is no such GPU, or no driver's library.
        SpecError: a GPU is named by its UUID.
    """
    dev = roots.top / "dev"
    numbers = _choose(gpus, dev)
    names = [*_OF_ALL, *(f"nvidia{number}" for number in numbers)]
    devices = [
        Device(source=f"/dev/{name}", target=f"/dev/{name}")
        for name in names
        if (dev / name).exists()
    ]
    libraries = [*_find_libraries(_read_cache() if cache is None else cache)]
    if not libraries:
        raise HostError(
            "there is an NVIDIA GPU, but no library of its driver",
            hint="`ldconfig -p | grep libcuda` shows whether the driver's user part is installed",
        )
    mounts = [_bind(source, f"{LIBRARIES}/{name}") for name, source in libraries]
    for tool in _TOOLS:
        path = roots.top / "usr/bin" / tool
        if path.exists():
            mounts.append(_bind(f"/usr/bin/{tool}", f"{_PROGRAMS}/{tool}"))
    return GpuPlan(
        devices=tuple(devices),
        mounts=tuple(mounts),
        variables=(("LD_LIBRARY_PATH", LIBRARIES), ("PATH", _PROGRAMS)),
    )


def _bind(source: str, target: str) -> Mount:
    return Mount(kind=MountKind.BIND, source=source, target=target, read_only=True)


def _choose(gpus: Gpus, dev: Path) -> list[int]:
    there = sorted(
        int(found[1]) for name in _list(dev) if (found := _GPU.fullmatch(name)) is not None
    )
    if not there or not (dev / "nvidiactl").exists():
        others = [name for name in _OTHER_GPUS if (dev / name).exists()]
        raise HostError(
            "there is no NVIDIA GPU on this host: no /dev/nvidiactl and /dev/nvidia0",
            hint="other GPUs are given by "
            + ", ".join(f"`--device /dev/{name}`" for name in others)
            if others
            else "`nvidia-smi` on the host shows whether its driver is loaded",
        )
    wanted = [_number(name) for name in gpus.devices] or there[: gpus.count]
    if missing := [number for number in wanted if number not in there]:
        raise HostError(f"there is no GPU {missing[0]}: this host has {_words(there)}")
    if gpus.count is not None and gpus.count > len(there):
        raise HostError(f"{gpus.count} GPUs were asked for: this host has {len(there)}")
    return wanted


def _list(dev: Path) -> list[str]:
    try:
        return os.listdir(dev)  # noqa: PTH208 - names, not paths
    except OSError:
        return []


def _number(name: str) -> int:
    if not (name.isascii() and name.isdecimal()):
        raise SpecError(f"GPU `{name}`: they are named by number here", hint="`nvidia-smi -L`")
    return int(name)


def _words(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _find_libraries(cache: str) -> Iterable[tuple[str, str]]:
    """Yield name and place of the driver's libraries, those of 64 bits alone."""
    seen = set()
    for line in cache.splitlines():
        found = _LIBRARY.match(line)
        if found and "(libc6,x86-64" not in line and "(libc6,AArch64" not in line:
            continue
        if found and found[1] not in seen:
            seen.add(found[1])
            yield found[1], os.path.realpath(found[2])


def _read_cache() -> str:
    for program in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
        try:
            done = subprocess.run(  # noqa: PLW1510 - its output is all that counts
                [program, "-p"], capture_output=True, text=True, timeout=10
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        return done.stdout
    return ""
