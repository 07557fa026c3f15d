"""What is compared: how each tool is told to run a command, and where it says what was used."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

SHARED = Path("/tmp/comparison")
"""A directory that every program can write, in a container too."""
IMAGE = "comparison"
PATIENCE_SEC = 120
_MACHINE = [f"--volume=/{name}:/{name}:ro" for name in ("usr", "opt", "project")]
_BUSYBOX = Path("/bin/busybox")


class UnavailableError(Exception):
    """A tool cannot do it; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Limits; None is not asked for."""

    memory_bytes: int | None = None
    cpus: float | None = None
    pids: int | None = None
    wall_sec: int | None = None


@dataclass(frozen=True, kw_only=True)
class Used:
    """What a tool said; None where it does not say."""

    peak_bytes: int | None = None
    cpu_usec: int | None = None


@dataclass(frozen=True)
class Tool:
    """One tool."""

    name: str
    version: tuple[str, ...]
    build: Callable[[Asked, str, list[str]], list[str]]
    """From limits, a name for the run and the command: the command line."""
    lacks: dict[str, str] = field(default_factory=dict)
    """Why what is named cannot be had of it."""

    def command(self, asked: Asked, name: str, words: list[str]) -> list[str]:
        """Return the command line.

        Raises:
            UnavailableError: a limit that is asked for does not exist there.
        """
        for limit, why in self.lacks.items():
            if getattr(asked, limit, None) is not None:
                raise UnavailableError(why)
        return self.build(asked, name, words)

    def report(self, name: str) -> Path:
        """Return the file in which a run's report ends up, where the tool writes one."""
        return SHARED / f"{name}.json"


def options(asked: Asked, names: dict[str, str]) -> list[str]:
    """Return options for the limits that are asked for; `{}` stands for the value."""
    found = []
    for limit, option in names.items():
        value = getattr(asked, limit)
        if value is not None:
            found.append(option.format(value))
    return found


def _sandbox(asked: Asked, name: str, words: list[str]) -> list[str]:
    names = {
        "memory_bytes": "--memory={}",
        "cpus": "--cpus={}",
        "pids": "--pids-limit={}",
        "wall_sec": "--timeout={}s",
    }
    report = ["-o", f"{SHARED}/{name}.json"]
    return ["sandbox", "run", "-q", *report, *options(asked, names), "--", *words]


def _runexec(asked: Asked, name: str, words: list[str]) -> list[str]:
    names = {"memory_bytes": "--memlimit={}B", "wall_sec": "--walltimelimit={}"}
    own = ["systemd-run", "--quiet", "--scope", "--slice=benchexec", "-p", "Delegate=yes"]
    place = ["--read-only-dir", "/", "--full-access-dir", str(SHARED), "--hidden-dir", "/home"]
    output = ["--output", f"{SHARED}/{name}.output"]
    return [*own, "runexec", *place, *output, *options(asked, names), "--", *words]


def _container(engine: str, more: dict[str, str]) -> Callable[[Asked, str, list[str]], list[str]]:
    names = {"cpus": "--cpus={}", "pids": "--pids-limit={}", **more}

    def build(asked: Asked, name: str, words: list[str]) -> list[str]:
        place = [*_MACHINE, f"--volume={SHARED}:{SHARED}"]
        limits = options(asked, names)
        if asked.memory_bytes is not None:
            limits += [f"--memory={asked.memory_bytes}", f"--memory-swap={asked.memory_bytes}"]
        head = [engine, "run", "--rm", "--network=none", f"--name={name}"]
        return [*head, *place, *limits, IMAGE, *words]

    return build


def _systemd_run(asked: Asked, name: str, words: list[str]) -> list[str]:
    names = {
        "memory_bytes": "--property=MemoryMax={0} --property=MemorySwapMax=0",
        "pids": "--property=TasksMax={}",
        "wall_sec": "--property=RuntimeMaxSec={}",
    }
    limits = [word for option in options(asked, names) for word in option.split()]
    if asked.cpus is not None:
        limits.append(f"--property=CPUQuota={asked.cpus:.0%}")
    head = ["systemd-run", "--pipe", "--wait", "--collect", f"--unit={name}"]
    return [*head, "--property=CPUAccounting=yes", *limits, "--", *words]


_NO_STATS_LEFT = "its statistics end with the container"
TOOLS = (
    Tool("sandbox", ("sandbox", "--version"), _sandbox),
    Tool(
        "runexec",
        ("runexec", "--version"),
        _runexec,
        lacks={
            "cpus": "limits whole cores only",
            "pids": "has no such option",
            "sampling": "takes no samples",
        },
    ),
    Tool(
        "docker",
        ("docker", "--version"),
        _container("docker", {}),
        lacks={"wall_sec": "has no such option"},
    ),
    Tool("podman", ("podman", "--version"), _container("podman", {"wall_sec": "--timeout={}"})),
    Tool(
        "systemd-run",
        ("systemd-run", "--version"),
        _systemd_run,
        lacks={"peak": "this version keeps none", "sampling": "takes no samples"},
    ),
)


def prepare() -> None:
    """Start Docker, and give both engines an image with the links that a program needs."""
    shutil.rmtree(SHARED, ignore_errors=True)
    SHARED.mkdir(mode=0o777)
    SHARED.chmod(0o777)
    archive = SHARED / "image.tar"
    with tarfile.open(archive, "w") as tar:
        for name in ("usr", "opt", "tmp", "proc", "sys", "dev", "project", "box"):
            directory = tarfile.TarInfo(name)
            directory.type, directory.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(directory)
        for name in ("lib", "lib64", "bin"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(link)
        content = _BUSYBOX.read_bytes()
        program = tarfile.TarInfo("box/busybox")
        program.size, program.mode = len(content), 0o755
        tar.addfile(program, io.BytesIO(content))
    must("systemctl", "start", "docker.service")
    must("docker", "import", str(archive), IMAGE)
    must("podman", "import", str(archive), IMAGE)


def must(*words: str) -> str:
    """Run a command that has to succeed, and return what it printed."""
    return subprocess.run(
        words,
        check=True,
        timeout=PATIENCE_SEC,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def clear(tool: Tool, name: str) -> None:
    """Remove what a killed client has left of a run, as its user would."""
    ends = {
        "docker": ("docker", "rm", "--force", name),
        "podman": ("podman", "rm", "--force", "--time=0", name),
        "systemd-run": ("systemctl", "kill", "--signal=KILL", f"{name}.service"),
    }
    if tool.name in ends:
        subprocess.run(ends[tool.name], check=False, capture_output=True, timeout=PATIENCE_SEC)


# --- what they say


def said_by_sandbox(tool: Tool, name: str) -> Used:
    """Return what the result says."""
    totals = json.loads(tool.report(name).read_text())["totals"]
    return Used(peak_bytes=totals["memory_peak_bytes"], cpu_usec=totals["cpu_usage_usec"])


def said_by_runexec(stdout: str) -> Used:
    """Return what runexec has printed: `memory=123B`, `cputime=1.23s`."""
    memory = re.search(r"^memory=(\d+)B", stdout, re.MULTILINE)
    cpu = re.search(r"^cputime=([\d.]+)s", stdout, re.MULTILINE)
    return Used(
        peak_bytes=int(memory[1]) if memory else None,
        cpu_usec=round(float(cpu[1]) * 1e6) if cpu else None,
    )


def said_by_systemd_run(stderr: str) -> Used:
    """Return what systemd-run has printed: `CPU time consumed: 1min 1.234s`."""
    found = re.search(r"CPU time consumed: (.*)", stderr)
    if found is None:
        return Used()
    units = {"min": 60e6, "s": 1e6, "ms": 1e3, "us": 1.0}
    parts = re.findall(r"([\d.]+)(min|ms|us|s)", found[1])
    return Used(cpu_usec=round(sum(float(number) * units[unit] for number, unit in parts)))
