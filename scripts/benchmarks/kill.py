"""How soon a whole tree is dead: after a limit was hit, and after its supervisor was killed."""

from __future__ import annotations

import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from _cli import Cli, cli
from _measure import HERE, Options, Result, SkippedError, bootstrap, progress, skipped

LIMIT_BAR_MS = 100.0
SUPERVISOR_BAR_MS = 1_000.0
_LIMIT_MS = 400
_PATIENCE_SEC = 30.0
_PEER_ROUNDS = 3
_PEER_LIMIT_SEC = 1


class Tree:
    """A tree that somebody starts, watched through a FIFO that all of it holds open."""

    def __init__(self, behaviour: str) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="sandbox-bench-")
        path = f"{self._directory.name}/alive"
        os.mkfifo(path)
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self.command = [sys.executable, str(HERE / "_tree.py"), path, behaviour]
        self._said = b""

    def __enter__(self) -> Self:
        """Be closed at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        """Forget the tree, whatever has become of it."""
        os.close(self._fd)
        self._directory.cleanup()

    def wait_ready(self) -> int:
        """Return the CLOCK_MONOTONIC at the start of its first process, once all of it lives."""
        while not self._said.endswith(b"\n"):
            self._wait(select.POLLIN)
            self._said += os.read(self._fd, 4096)
        return int(self._said.split()[2])

    def wait_dead(self) -> int:
        """Return the CLOCK_MONOTONIC at the death of its last process."""
        while not self._wait(select.POLLIN) & select.POLLHUP:
            os.read(self._fd, 4096)
        return time.monotonic_ns()

    def _wait(self, mask: int) -> int:
        poll = select.poll()
        poll.register(self._fd, mask)
        ready = poll.poll(_PATIENCE_SEC * 1_000)
        if not ready:
            raise SkippedError(f"nothing happened to the tree for {_PATIENCE_SEC:g} s")
        return ready[0][1]


def measure(options: Options) -> Iterator[Result]:
    """Yield the three ends of a tree."""
    try:
        yield _series("time limit hit to the whole tree dead", _wall, LIMIT_BAR_MS, options.pairs)
        yield _series(
            "CPU time limit hit to the whole tree dead", _cpu, LIMIT_BAR_MS, options.pairs
        )
        dead: list[float] = []
        gone = _series(
            "supervisor killed to the whole tree dead and its groups gone",
            lambda ours: _supervisor(ours, dead),
            SUPERVISOR_BAR_MS,
            options.pairs,
        )
        yield gone
        yield Result(
            benchmark="kill",
            what="of which to the whole tree dead",
            unit="ms",
            ours=statistics.median(dead),
        )
    except SkippedError as reason:
        yield skipped("kill", "a tree's end", reason)
        return
    try:
        values = [_runexec_wall() for _ in range(_PEER_ROUNDS)]
        yield Result(
            benchmark="kill",
            what="peer: runexec, time limit hit to the whole tree dead",
            unit="ms",
            ours=statistics.median(values),
            details={"ms": values},
        )
    except SkippedError as reason:
        yield skipped("kill", "peer: runexec", reason)


def _series(what: str, once: Callable[[Cli], float], bar_ms: float, rounds: int) -> Result:
    """Return the median of several ends, and judge the worst of them."""
    values = []
    for number in range(rounds):
        progress(f"{what}: {number + 1} of {rounds}")
        with cli() as ours:
            values.append(once(ours))
    progress("")
    return Result(
        benchmark="kill",
        what=what,
        unit="ms",
        ours=statistics.median(values),
        interval=bootstrap(values, statistics.median),
        bar=f"{bar_ms:g} ms",
        ok=max(values) <= bar_ms,
        note=f"worst of {rounds}: {max(values):.3g} ms",
        details={"ms": values},
    )


def _wall(ours: Cli) -> float:
    with Tree("sleep") as tree:
        command = ours.run("-q", "--timeout", f"{_LIMIT_MS}ms", "--", *tree.command)
        supervisor = _start(command, ours.environment)
        tree.wait_ready()
        dead_ns = tree.wait_dead()
        supervisor.wait(_PATIENCE_SEC)
    limit_ns = _result(ours)["started_ns"] + _LIMIT_MS * 1_000_000
    return _positive((dead_ns - limit_ns) / 1e6)


def _cpu(ours: Cli) -> float:
    """Return the CPU time beyond the limit: with one process that burns, that is the wall time."""
    with Tree("burn") as tree:
        command = ours.run("-q", "--cpu-time", f"{_LIMIT_MS}ms", "--", *tree.command)
        supervisor = _start(command, ours.environment)
        tree.wait_ready()
        tree.wait_dead()
        supervisor.wait(_PATIENCE_SEC)
    used_usec = _result(ours)["totals"]["cpu_usage_usec"]
    return _positive(used_usec / 1e3 - _LIMIT_MS)


def _supervisor(ours: Cli, dead_ms: list[float]) -> float:
    with Tree("sleep") as tree:
        supervisor = _start(ours.run("-q", "--", *tree.command), ours.environment)
        tree.wait_ready()
        groups = [Path(path) for path in _result(ours)["groups"]]
        killed_ns = time.monotonic_ns()
        supervisor.send_signal(signal.SIGKILL)
        dead_ms.append((tree.wait_dead() - killed_ns) / 1e6)
        supervisor.wait(_PATIENCE_SEC)
        deadline = time.monotonic() + _PATIENCE_SEC
        while any(group.exists() for group in groups):
            if time.monotonic() > deadline:
                raise SkippedError(f"{groups[0]} was not removed in {_PATIENCE_SEC:g} s")
            time.sleep(0.000_2)
        return (time.monotonic_ns() - killed_ns) / 1e6


def _runexec_wall() -> float:
    runexec = Path(sys.executable).with_name("runexec")
    if not runexec.exists():
        raise SkippedError("BenchExec is not installed")
    progress("runexec")
    with Tree("sleep") as tree:
        limit = ("--walltimelimit", str(_PEER_LIMIT_SEC), "--output", "/dev/null")
        process = _start([str(runexec), "--no-container", *limit, "--", *tree.command], None)
        limit_ns = tree.wait_ready() + _PEER_LIMIT_SEC * 1_000_000_000
        dead_ns = tree.wait_dead()
        process.wait(_PATIENCE_SEC)
    progress("")
    return (dead_ns - limit_ns) / 1e6


def _start(command: list[str], environment: dict[str, str] | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _result(ours: Cli) -> dict[str, Any]:
    """Return the record of the only run in this home."""
    records = list(ours.home.glob("runs/*/run.json"))
    if len(records) != 1:
        raise SkippedError(f"{len(records)} runs were recorded instead of one")
    record: dict[str, Any] = json.loads(records[0].read_text())
    return record


def _positive(value_ms: float) -> float:
    if value_ms <= 0:
        raise SkippedError(f"the tree was dead {-value_ms:.3g} ms before the limit was hit")
    return value_ms
