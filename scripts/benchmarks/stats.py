"""`sandbox stats` beside `docker stats`, on the same containers; and how soon it shows anything.

What is compared is everything that works for it: our one process; on docker's side the daemon,
containerd, a helper for each container and the client. What the engine does anyway is subtracted.
Podman is asked too, where it runs.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import _docker
import _podman
from _group import live_group, rare_work
from _measure import Options, Result, SkippedError, progress, skipped

COUNTS = (1, 10, 50)
RATES_HZ = (1, 10, 100)
BAR = 1 / 20
BARRED = 10
"""How many containers the bar is about, at one sample a second."""
FIRST_BAR_MSEC = 150
MANY = (50, 200)
MANY_HZ = 10
LINEAR_BAR = 1.2
_START_SEC = 2.0  # past imports and the first look
_BATCH = 10


def measure(options: Options) -> Iterator[Result]:
    """Yield the cost of a container and sample by count and rate, then how soon and how many."""
    seconds = max(2 * options.seconds, 0.5)
    try:
        with _docker.daemon() as docker:
            yield from _beside_docker(docker, options, seconds)
    except SkippedError as reason:
        yield skipped("stats", "sandbox stats beside docker stats", reason)
    try:
        yield from _beside_podman(options, seconds)
    except SkippedError as reason:
        yield skipped("stats", "sandbox stats beside podman stats", reason)
    yield _first_number(options)
    try:
        yield from _many(options, seconds)
    except SkippedError as reason:
        yield skipped("stats", f"{MANY[-1]} sandboxes at {MANY_HZ} Hz", reason)


# --- beside docker --------------------------------------------------------------------------------


def _beside_docker(docker: _docker.Docker, options: Options, seconds: float) -> Iterator[Result]:
    groups: list[str] = []
    counts = COUNTS if options.pairs > 1 else COUNTS[:2]
    with _ending_with(docker, groups):
        for count in counts:
            groups += _start_containers(docker, count - len(groups))
            time.sleep(1)
            dockers = _docker_usec(docker, max(seconds, 3.0))
            for rate in RATES_HZ:
                ours = _ours_usec(groups, rate, seconds)
                yield _result(count, rate, ours, dockers)


@contextmanager
def _ending_with(docker: _docker.Docker, groups: Sequence[str]) -> Iterator[None]:
    try:
        yield
    finally:
        ids = [Path(group).name for group in groups]
        if ids:  # left alone, they would hold up the end of the daemon
            subprocess.run(docker.command("kill", *ids), check=False, capture_output=True)


def _start_containers(docker: _docker.Docker, count: int) -> list[str]:
    """Start so many containers that do nothing, and return their groups."""
    started = []
    for number in range(count):
        progress(f"container {number + 1} of {count}")
        command = docker.run_command("sleep", "3600")
        command[command.index("--rm")] = "-d"
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
        started.append(f"{docker.parent}/{done.stdout.strip()}")
    progress("")
    return started


def _docker_usec(docker: _docker.Docker, seconds: float) -> float:
    """Return the CPU time a second of daemon, helpers and client for all containers at 1 Hz."""
    before_usec = docker.cpu_usec()
    time.sleep(seconds)
    idle_usec = docker.cpu_usec() - before_usec
    client = subprocess.Popen(docker.command("stats"), stdout=subprocess.DEVNULL)
    try:
        time.sleep(_START_SEC)
        before_usec = docker.cpu_usec() + _cpu_usec(client.pid)
        time.sleep(seconds)
        used_usec = docker.cpu_usec() + _cpu_usec(client.pid) - before_usec
    finally:
        client.kill()  # it heeds nothing less
        client.wait()
    return (used_usec - idle_usec) / seconds


def _ours_usec(groups: Sequence[str], rate: int, seconds: float) -> float:
    """Return the CPU time a second of `sandbox stats` that prints docker's columns."""
    words = [word for group in groups for word in ("--cgroup", group)]
    command = [sys.executable, "-m", "sandbox", "stats", "--interval", f"{1000 // rate}ms"]
    process = subprocess.Popen([*command, "--format", "json", *words], stdout=subprocess.DEVNULL)
    try:
        time.sleep(_START_SEC)
        before_usec = _cpu_usec(process.pid)
        time.sleep(seconds)
        used_usec = _cpu_usec(process.pid) - before_usec
        if process.poll() is not None:
            raise SkippedError("sandbox stats has ended early")
    finally:
        process.terminate()
        process.wait(timeout=20)
    return used_usec / seconds


def _result(count: int, rate: int, ours_usec: float, dockers_usec: float) -> Result:
    per_sample, dockers = ours_usec / count / rate, dockers_usec / count
    is_barred = (count, rate) == (BARRED, 1)
    ratio = per_sample / dockers
    return Result(
        benchmark="stats",
        what=f"a sample of one of {count} containers at {rate} Hz",
        unit="µs",
        ours=per_sample,
        peer_name="docker stats at 1 Hz",
        peer=dockers,
        ratio=ratio,
        bar=f"{BAR:g} x" if is_barred else None,
        ok=ratio <= BAR if is_barred else None,
        note=f"{ours_usec / 1e4:.2f} % of a CPU; docker {dockers_usec / 1e4:.2f} %",
        details={
            "containers": count,
            "rate_hz": rate,
            "ours_usec_per_sec": ours_usec,
            "docker_usec_per_sec": dockers_usec,
        },
    )


def _cpu_usec(pid: int) -> float:
    """Return the CPU time of a live process, all threads, to the nanosecond."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e3


# --- beside podman --------------------------------------------------------------------------------


def _beside_podman(options: Options, seconds: float) -> Iterator[Result]:
    """Yield the same for containers of podman, which has no daemon to subtract."""
    count = BARRED if options.pairs > 1 else 1
    with _podman.engine() as podman:
        for number in range(count):
            progress(f"podman's container {number + 1} of {count}")
            _podman.must(podman.run_command("sleep", "3600", detached=True))
        progress("")
        names = podman.command("ps", "--quiet", "--no-trunc")
        groups = [f"{podman.parent}/libpod-{name}" for name in _podman.must(names).split()]
        ours = _ours_usec(groups, 1, seconds)
        theirs = _podman_usec(podman, max(seconds, 5.0))
    yield Result(
        benchmark="stats",
        what=f"{count} containers of podman's at 1 Hz: CPU time of a container and sample",
        unit="µs",
        ours=ours / count,
        peer_name="podman stats",
        peer=theirs / count,
        ratio=ours / theirs,
        note=f"{ours / 1e4:.2f} % of a CPU; podman {theirs / 1e4:.2f} %",
    )


def _podman_usec(podman: _podman.Podman, seconds: float) -> float:
    """Return the CPU time a second of `podman stats` that prints all containers once a second."""
    command = podman.command("stats", "--interval=1", "--format=json")
    client = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(_START_SEC)
        before_usec = _cpu_usec(client.pid)
        time.sleep(seconds)
        if client.poll() is not None:
            raise SkippedError(f"`podman stats` exits {client.returncode}")
        return (_cpu_usec(client.pid) - before_usec) / seconds
    finally:
        client.kill()
        client.wait()


# --- how soon -------------------------------------------------------------------------------------


def _first_number(options: Options) -> Result:
    """Return the time from the start of the process to the first row, beside an empty one."""
    python = [sys.executable, "-c", "pass"]
    stats = [sys.executable, "-m", "sandbox", "stats", "--interval", "1h", "--format", "json"]
    bare: list[float] = []
    ours: list[float] = []
    with tempfile.TemporaryDirectory(prefix="sandbox-bench-") as home:
        environment = {**os.environ, "SANDBOX_HOME": home}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed is compiled, too
        sandbox = [sys.executable, "-m", "sandbox"]
        started = subprocess.run(
            [*sandbox, "run", "-d", "--timeout", "10m", "--", "sleep", "600"],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
        run_id = started.stdout.strip()
        try:
            _until_output([*stats, run_id], environment)  # compiles
            for _ in range(max(options.pairs, 3)):
                bare.append(_until_output(python, environment))
                ours.append(_until_output([*stats, run_id], environment))
        finally:
            subprocess.run(
                [*sandbox, "kill", run_id],
                env=environment,
                check=False,
                capture_output=True,
                timeout=60,
            )
            subprocess.run(
                [*sandbox, "wait", run_id],
                env=environment,
                check=False,
                capture_output=True,
                timeout=60,
            )
    first = statistics.median(ours) - statistics.median(bare)
    return Result(
        benchmark="stats",
        what="first figures of a running sandbox, after Python's own start",
        unit="ms",
        ours=first,
        bar=f"{FIRST_BAR_MSEC} ms",
        ok=first <= FIRST_BAR_MSEC,
        details={"bare_msec": bare, "stats_msec": ours},
    )


def _until_output(command: Sequence[str], environment: dict[str, str]) -> float:
    """Return the milliseconds until a command prints its first line, or ends without one."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    line = process.stdout.readline()
    elapsed = time.perf_counter() - started
    process.terminate()
    process.wait(timeout=20)
    process.stdout.close()
    if "stats" in command and '%"' not in line:
        raise SkippedError(f"there were no figures in the first row: {line!r}")
    return elapsed * 1e3


# --- how many -------------------------------------------------------------------------------------


def _many(options: Options, seconds: float) -> Iterator[Result]:
    """Yield what the command itself takes for many groups, and whether that is linear."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    counts = MANY if options.pairs > 1 else tuple(count // _BATCH for count in MANY)
    found: dict[int, float] = {}
    groups: list[str] = []
    with ExitStack() as stack:
        for number in range(counts[-1]):
            group = stack.enter_context(live_group(f"bench-{os.getpid()}-{number}", rare_work))
            groups.append(str(group.directories[0]))
        for count in counts:
            found[count] = _ours_usec(groups[:count], MANY_HZ, max(seconds, 2.0))
    fewest, most = (found[count] / count / MANY_HZ for count in (counts[0], counts[-1]))
    yield Result(
        benchmark="stats",
        what=f"{counts[-1]} groups at {MANY_HZ} Hz, printed as JSON: share of a CPU",
        unit="%",
        ours=found[counts[-1]] / 1e4,
    )
    yield Result(
        benchmark="stats",
        what=f"a sample among {counts[-1]} groups beside one among {counts[0]}",
        unit="µs",
        ours=most,
        peer_name=f"among {counts[0]}",
        peer=fewest,
        ratio=most / fewest,
        bar=f"{LINEAR_BAR:g} x",
        ok=most / fewest <= LINEAR_BAR,
    )
