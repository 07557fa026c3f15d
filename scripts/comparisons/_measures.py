"""What is measured of each tool: each function returns a cell of the table, or says why not."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from _peers import (
    PATIENCE_SEC,
    SHARED,
    Asked,
    Tool,
    UnavailableError,
    Used,
    clear,
    said_by_runexec,
    said_by_sandbox,
    said_by_systemd_run,
)

LOADS = ["/usr/bin/python3", "-I", "-S", str(Path(__file__).resolve().with_name("_loads.py"))]
CGROUP = Path("/sys/fs/cgroup")
MIB = 1 << 20
LIMIT_MIB = 64
KNOWN_MIB = 128
LONG = "713.31"  # seconds; nobody else sleeps as long
# Three processes, one of them in a session of its own; first says when it began.
TREE = f"""
read -r now rest </proc/uptime; echo $now >{SHARED}/started
setsid sleep {LONG} & sleep {LONG} & exec sleep {LONG}
"""
TOO_LATE_SEC = 30
STATS_SEC = 10
LAUNCHES = 5
CPU_RUNS = 3
SETTLE_SEC = 4.0


@dataclass(frozen=True)
class Done:
    """A run that has ended."""

    status: int
    stdout: str
    """The program's, wherever the tool has put it."""
    said: Used


_count = 0


def new_name() -> str:
    """Return a name for one run."""
    global _count  # noqa: PLW0603 - one process, one thread
    _count += 1
    return f"comparison-{_count}"


def run(tool: Tool, words: list[str], **asked: float) -> Done:
    """Run a command with limits until it ends."""
    name = new_name()
    done = subprocess.run(
        tool.command(Asked(**asked), name, words),  # type: ignore[arg-type]
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SEC,
        check=False,
    )
    return _finished(tool, name, done.returncode, done.stdout, done.stderr)


def _finished(tool: Tool, name: str, status: int, stdout: str, stderr: str) -> Done:
    said = Used()
    if tool.name == "sandbox":
        said = said_by_sandbox(tool, name)
    elif tool.name == "runexec":
        said = said_by_runexec(stdout)
        output = SHARED / f"{name}.output"
        # Before the program's own lines stand its command line and a rule.
        stdout = output.read_text().split("\n\n\n", 1)[-1].lstrip("-\n") if output.exists() else ""
    elif tool.name == "systemd-run":
        said = said_by_systemd_run(stderr)
    return Done(status, stdout, said)


def load(*words: object) -> list[str]:
    """Return the command of a known load."""
    return [*LOADS, *map(str, words)]


# --- limits


def memory_limit(tool: Tool) -> str:
    """How far a program that wants 200 MiB came with 64 MiB."""
    done, reached = _out_of_memory(tool)
    if "touched" in done.stdout:
        return "not held"
    if reached == 0:
        raise UnavailableError("the program did not start")
    over = max(0, reached - LIMIT_MIB)
    return f"held, {over} MiB over"


_short_of_memory: dict[str, tuple[Done, int]] = {}


def _out_of_memory(tool: Tool) -> tuple[Done, int]:
    """Return how a program ended that wants more than it may have, and how many MiB it reached."""
    if tool.name not in _short_of_memory:
        progress = SHARED / "progress"
        progress.unlink(missing_ok=True)
        done = run(tool, load("touch", 200, 0), memory_bytes=LIMIT_MIB * MIB)
        _short_of_memory[tool.name] = done, int(progress.read_text())
    return _short_of_memory[tool.name]


def cpu_limit(tool: Tool) -> str:
    """How much CPU time two busy processes got for half a CPU, in the best of three runs.

    A guest whose host is busy gets its clock's ticks late, and so does whatever ends a turn.
    """
    rates = (float(run(tool, load("crowd", 2, 4), cpus=0.5).stdout) for _ in range(CPU_RUNS))
    rate = min(rates)
    return f"{'held' if rate < 0.6 else 'not held'}, {rate / 0.5 - 1:+.0%}"


def process_limit(tool: Tool) -> str:
    """How many processes a program that wants 101 had at once with a limit of 50."""
    allowed = int(run(tool, load("fork", 100), pids=50).stdout) + 1
    return f"{'held' if allowed <= 50 else 'not held'}, {allowed} of 50"


def time_to_dead(tool: Tool) -> str:
    """How long after a wall-clock limit of a second the last of three processes was gone."""
    started = SHARED / "started"
    started.unlink(missing_ok=True)
    with running(tool, ["sh", "-c", TREE], wall_sec=1):
        _wait_for(lambda: started.exists() and started.read_text().endswith("\n"))
        try:
            _wait_for(lambda: not sleepers(), TOO_LATE_SEC)
        except TimeoutError:
            return f"not held: alive after {TOO_LATE_SEC} s"
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        late_sec = now - float(started.read_text()) - 1
    return f"{late_sec * 1_000:.0f} ms"


# --- what is left


def survivors(tool: Tool) -> str:
    """How many of three processes outlive a SIGKILL of what the user has started."""
    return f"{_killed(tool)[0]} of 3"


def groups_after_kill(tool: Tool) -> str:
    """How many groups are left of that, once its processes have been ended."""
    return str(_killed(tool)[1])


_remembered: dict[str, tuple[int, int]] = {}


def _killed(tool: Tool) -> tuple[int, int]:
    if tool.name in _remembered:
        return _remembered[tool.name]
    before = groups()
    started = SHARED / "started"
    started.unlink(missing_ok=True)
    with running(tool, ["sh", "-c", TREE]) as process:
        _wait_for(lambda: len(sleepers()) == 3)
        time.sleep(1)
        process.kill()
        process.wait()
        with contextlib.suppress(TimeoutError):
            _wait_for(lambda: not sleepers(), SETTLE_SEC)
        alive = len(sleepers())
    _remembered[tool.name] = (alive, _left(before))
    return _remembered[tool.name]


def groups_after_runs(tool: Tool) -> str:
    """How many groups ten runs leave."""
    before = groups()
    for _ in range(10):
        run(tool, ["true"])
    return str(_left(before))


def _left(before: set[str]) -> int:
    with contextlib.suppress(TimeoutError):
        _wait_for(lambda: not groups() - before, SETTLE_SEC)
    return len(groups() - before)


def exit_status(tool: Tool) -> str:
    """What becomes of a program's own exit status, and of its being out of memory."""
    own = run(tool, ["sh", "-c", "exit 42"]).status
    killed = _out_of_memory(tool)[0].status
    return f"{'kept' if own == 42 else f'lost: {own}'}; out of memory is {killed}"


# --- what is told


def peak_error(tool: Tool) -> str:
    """What 128 MiB more of touched memory add to the peak that is told."""
    if "peak" in tool.lacks:
        raise UnavailableError(tool.lacks["peak"])
    most, least = (_told(tool, load("touch", size, 6)).peak_bytes for size in (KNOWN_MIB, 0))
    if most is None or least is None:
        raise UnavailableError("not told")
    return f"{(most - least) / (KNOWN_MIB * MIB) - 1:+.2%}"


def cpu_error(tool: Tool) -> str:
    """What is told beyond the CPU time that the program itself has counted."""
    name = new_name()
    with running(tool, load("burn", 2, 6), name=name) as process:
        told = _sample(tool, name, process) if tool.name in {"docker", "podman"} else None
        stdout, stderr = process.communicate(timeout=PATIENCE_SEC)
    done = _finished(tool, name, process.returncode, stdout, stderr)
    said = (told or done.said).cpu_usec
    if said is None:
        raise UnavailableError("not told")
    return f"{said / int(done.stdout) - 1:+.1%}"


def _told(tool: Tool, words: list[str]) -> Used:
    name = new_name()
    with running(tool, words, name=name) as process:
        told = _sample(tool, name, process) if tool.name in {"docker", "podman"} else None
        stdout, stderr = process.communicate(timeout=PATIENCE_SEC)
    return told or _finished(tool, name, process.returncode, stdout, stderr).said


def _sample(tool: Tool, name: str, process: subprocess.Popen[str]) -> Used:
    """Ask an engine for its statistics again and again while a container runs."""
    largest = Used()
    while process.poll() is None:
        try:
            now = _of_docker(name) if tool.name == "docker" else _of_podman(name)
        except (OSError, ValueError, KeyError, http.client.HTTPException):
            time.sleep(0.1)  # not yet, or no more
            continue
        largest = Used(
            peak_bytes=max(now.peak_bytes or 0, largest.peak_bytes or 0) or None,
            cpu_usec=max(now.cpu_usec or 0, largest.cpu_usec or 0) or None,
        )
    return largest


class _Docker(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE_SEC)
        self.sock.connect("/run/docker.sock")


def _of_docker(name: str) -> Used:
    """Ask the daemon, which keeps what `docker stats` turns into percentages."""
    asked = _Docker("localhost")
    try:
        asked.request("GET", f"/containers/{name}/stats?stream=false&one-shot=true")
        found = json.loads(asked.getresponse().read())
    finally:
        asked.close()
    memory = found["memory_stats"]
    return Used(
        peak_bytes=memory["usage"] - memory["stats"]["inactive_file"],
        cpu_usec=found["cpu_stats"]["cpu_usage"]["total_usage"] // 1_000,
    )


def _of_podman(name: str) -> Used:
    asked = subprocess.run(
        ["podman", "stats", "--no-stream", "--format={{.MemUsageBytes}} {{.CPUNano}}", name],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SEC,
        check=False,
    )
    found = re.match(r"([\d.]+)([kKMG]i?B|B) / \S+ (\d+)", asked.stdout)
    if found is None:
        raise ValueError(asked.stdout + asked.stderr)
    units = {"B": 1, "KiB": 1 << 10, "MiB": MIB, "GiB": 1 << 30}
    return Used(
        peak_bytes=round(float(found[1]) * units[found[2]]), cpu_usec=int(found[3]) // 1_000
    )


# --- what it costs


def launch_ratio(tool: Tool) -> str:
    """How long a run of `true` takes, by a bare start of Python with typer."""
    ratios = []
    for _ in range(LAUNCHES):
        times = []
        for command in (
            tool.command(Asked(), new_name(), ["true"]),
            [sys.executable, "-c", "import typer"],
        ):
            began = time.monotonic()
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=True,
                timeout=PATIENCE_SEC,
            )
            times.append(time.monotonic() - began)
        ratios.append(times[0] / times[1])
    return f"{statistics.median(ratios):.1f} x"


def sampling_cost(tool: Tool) -> str:
    """CPU time of one sample of one run, in our loop or in the engine with its client."""
    if "sampling" in tool.lacks:
        raise UnavailableError(tool.lacks["sampling"])
    if tool.name == "sandbox":
        costs = [_overhead(tool, seconds) for seconds in (2, 8)]
        (usec, ticks), (more_usec, more_ticks) = costs
        return f"{(more_usec - usec) / (more_ticks - ticks) / 1_000:.2f} ms"
    services = [f"system.slice/{unit}.service" for unit in ("docker", "containerd")]
    engines = services if tool.name == "docker" else []
    name = new_name()
    with running(tool, ["sleep", LONG], name=name):
        _wait_for(lambda: len(sleepers()) == 1)
        time.sleep(3)
        idle_usec = _used_in(engines, None)
        client = subprocess.Popen(
            [tool.name, "stats", name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            time.sleep(4)  # its start is no sample
            usec = _used_in(engines, client.pid)
        finally:
            client.kill()
            client.wait()
    interval_sec = {"docker": 1, "podman": 5}[tool.name]
    return f"{(usec - idle_usec) * interval_sec / STATS_SEC / 1_000:.0f} ms"


def _overhead(tool: Tool, seconds: int) -> tuple[int, int]:
    name = new_name()
    command = tool.command(Asked(), name, ["sleep", str(seconds)])
    subprocess.run(command, check=True, timeout=PATIENCE_SEC, stdin=subprocess.DEVNULL)
    overhead = json.loads(tool.report(name).read_text())["overhead"]
    return overhead["cpu_usec"], overhead["ticks"]


def _used_in(engines: list[str], client: int | None) -> int:
    """Return the CPU time that engines and a client use in STATS_SEC."""

    def now() -> int:
        stats = ((CGROUP / engine / "cpu.stat").read_text() for engine in engines)
        usec = sum(int(text.split()[1]) for text in stats)
        if client is not None:
            words = Path(f"/proc/{client}/stat").read_text().rpartition(")")[2].split()
            ticks = int(words[11]) + int(words[12])
            usec += ticks * 1_000_000 // os.sysconf("SC_CLK_TCK")
        return usec

    before = now()
    time.sleep(STATS_SEC)
    return now() - before


# --- looking


@contextlib.contextmanager
def running(
    tool: Tool, words: list[str], *, name: str | None = None, **asked: float
) -> Iterator[subprocess.Popen[str]]:
    """Run a command for as long as the block lasts, and remove what is left then."""
    name = name or new_name()
    command = tool.command(Asked(**asked), name, words)  # type: ignore[arg-type]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        clear(tool, name)
        for pid in sleepers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=10)
        process.kill()
        process.communicate()


def sleepers() -> list[int]:
    """Return the processes of a tree that are alive."""
    wanted = f"sleep\0{LONG}\0".encode()
    found = []
    for entry in os.listdir("/proc"):  # noqa: PTH208 - often
        if entry.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{entry}/cmdline", "rb") as file:  # noqa: PTH123
                if file.read() == wanted:
                    found.append(int(entry))
    return found


def groups() -> set[str]:
    """Return every group of this machine."""
    return {path for path, _, _ in os.walk(CGROUP)}


def _wait_for(condition: Callable[[], object], seconds: float = PATIENCE_SEC) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so after {seconds:g} s")
        time.sleep(0.01)
