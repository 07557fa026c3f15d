"""One sampling tick: CPU time of our process beside a C loop that reads the same files.

The record is included on our side; in C the text of the files is appended to memory and never
looked at. Beside it, what Docker's own sampling costs for one container.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import _docker
from _group import light_work, live_group
from _measure import (
    HERE,
    Options,
    Pairs,
    Result,
    SkippedError,
    in_turns,
    measuring_cpu,
    pinned,
    progress,
    skipped,
)

INTERVAL_NS = 10_000_000
BAR = 2.5
DOCKER_BAR = 1 / 20
_DOCKER = "a tick beside `docker stats`, one container, one sample a second"


def measure(options: Options) -> Iterator[Result]:
    """Yield the fast set beside C, what else we can do, and ours beside docker stats."""
    run_id = f"bench-{os.getpid()}"
    try:
        with tempfile.TemporaryDirectory(prefix="sandbox-bench-") as directory:
            program = compile_c(Path(directory))
            with live_group(run_id, light_work), pinned(measuring_cpu()):
                results = _beside_c(options, program, run_id)
    except SkippedError as reason:
        yield skipped("tick", "one sampling tick", reason)
        return
    yield from results
    try:
        yield _beside_docker(options, results[0].ours or 0)
    except SkippedError as reason:
        yield skipped("tick", _DOCKER, reason)


def compile_c(directory: Path) -> Path:
    """Return the peer in C.

    Raises:
        SkippedError: there is no compiler.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SkippedError("no C compiler is installed")
    program = directory / "tick"
    subprocess.run([compiler, "-O2", "-o", program, HERE / "tick.c"], check=True)
    return program


def sampling(*arguments: str, is_recorded: bool = True) -> dict[str, float]:
    """Run the process that is measured and return what it says."""
    command = [sys.executable, HERE / "_sampling.py", *arguments]
    with tempfile.TemporaryDirectory(prefix="sandbox-bench-") as home:
        output = subprocess.run(
            [*command, "--home", home] if is_recorded else command,
            check=True,
            stdout=subprocess.PIPE,
            timeout=300,
        ).stdout
    said: dict[str, float] = json.loads(output)
    return said


def _beside_c(options: Options, program: Path, run_id: str) -> list[Result]:
    ticks = max(round(options.seconds * 1e9 / INTERVAL_NS), 1)
    command = [sys.executable, HERE / "_sampling.py", run_id, "--files"]
    files = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)

    def in_c() -> float:
        words = [program, str(INTERVAL_NS), str(ticks), *files["fast"]]
        return float(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout) / 1e3

    def ours(*more: str, is_recorded: bool = True) -> float:
        grid = ("--interval-ns", str(INTERVAL_NS), "--ticks", str(ticks))
        return sampling(run_id, *grid, *more, is_recorded=is_recorded)["cpu_ns_per_tick"] / 1e3

    found = in_turns(
        {
            "C": in_c,
            "fast": ours,
            "unrecorded": lambda: ours(is_recorded=False),
            "both": lambda: ours("--slow"),
        },
        options.pairs,
    )
    about = {"benchmark": "tick", "unit": "µs", "peer_name": "C loop"}
    return [
        Pairs(found["fast"], found["C"]).result(
            what="CPU time of one tick at 100 Hz, fast set, recorded",
            bar=BAR,
            details={"files": files},
            **about,
        ),
        Pairs(found["unrecorded"], found["C"]).result(what="the same without the record", **about),
        Pairs(found["both"], found["C"]).result(
            what="the same with the slow table ten times a second (C: fast set)", **about
        ),
    ]


def _beside_docker(options: Options, tick_usec: float) -> Result:
    """Return our tick beside the CPU time of docker stats, its idle time subtracted."""
    length_sec = max(4 * options.seconds, 5.0)
    with _docker.daemon() as docker:
        name = f"bench-{os.getpid()}"
        start = docker.run_command("sleep", "600")
        start[start.index("--rm") : start.index("--rm")] = ["-d", "--name", name]
        subprocess.run(start, check=True, capture_output=True, timeout=60)
        time.sleep(1)
        values = [_docker_stats_usec(docker, name, length_sec) for _ in range(3)]
        # Left alone, it would hold up the end of the daemon for ten seconds.
        subprocess.run(docker.command("kill", name), check=True, capture_output=True, timeout=60)
    sample_usec = statistics.median(values)
    ratio = tick_usec / sample_usec
    return Result(
        benchmark="tick",
        what=_DOCKER,
        unit="µs",
        ours=tick_usec,
        peer_name="docker stats",
        peer=sample_usec,
        ratio=ratio,
        bar=f"{DOCKER_BAR:g} x",
        ok=ratio <= DOCKER_BAR,
        details={"docker_usec": values},
    )


def _docker_stats_usec(docker: _docker.Docker, name: str, length_sec: float) -> float:
    """Return the CPU time of daemon, helpers and client for one sample."""
    progress("docker stats")
    before_usec = docker.cpu_usec()
    time.sleep(length_sec)
    idle_usec = docker.cpu_usec() - before_usec
    client = subprocess.Popen(docker.command("stats", name), stdout=subprocess.DEVNULL)
    try:
        time.sleep(2)  # past its start, which is no sample's cost
        before_usec = docker.cpu_usec() + _cpu_usec(client.pid)
        time.sleep(length_sec)
        used_usec = docker.cpu_usec() + _cpu_usec(client.pid) - before_usec
    finally:
        client.kill()  # it heeds nothing less
        client.wait()
        progress("")
    return (used_usec - idle_usec) / length_sec


def _cpu_usec(pid: int) -> float:
    """Return the CPU time of a live process, all threads, to the nanosecond."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e3
