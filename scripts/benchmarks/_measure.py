"""Interleaved pairs, medians, ratios with their uncertainty, and how a result is written down."""

from __future__ import annotations

import os
import platform
import random
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

BOOTSTRAP_ROUNDS = 2_000
CONFIDENCE = 0.95

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent

T = TypeVar("T")

Side = Callable[[], float]


class SkippedError(Exception):
    """A peer that is not here or does not run on this host; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What every benchmark is told."""

    pairs: int = 15
    seconds: float = 2.0
    """Length of one measurement, where the benchmark can choose it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One figure beside its peer, against its bar."""

    benchmark: str
    what: str
    unit: str = ""
    ours: float | None = None
    peer_name: str | None = None
    peer: float | None = None
    ratio: float | None = None
    """Ours over the peer's."""
    interval: tuple[float, float] | None = None
    """The 95 % confidence interval of the ratio (or of `ours`, where there is no ratio)."""
    bar: str | None = None
    ok: bool | None = None
    """None where no bar applies, or where it could not be measured."""
    pairs: int = 0
    note: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        """Return one line for people."""
        verdict = {True: "ok", False: "OVER", None: "-"}[self.ok]
        figure = "" if self.ours is None else f": {_number(self.ours)} {self.unit}".rstrip()
        parts = [self.what + figure]
        if self.peer is not None:
            parts.append(f"{self.peer_name} {_number(self.peer)} {self.unit}".rstrip())
        if self.ratio is not None:
            parts.append(f"ratio {self.ratio:.3g}")
        if self.interval is not None:
            parts.append(f"95 % interval {self.interval[0]:.3g} to {self.interval[1]:.3g}")
        if self.bar:
            parts.append(f"bar {self.bar}")
        if self.pairs:
            parts.append(f"{self.pairs} pairs")
        if self.note:
            parts.append(self.note)
        return f"{verdict:>4}  {'; '.join(parts)}"


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1_000 else f"{value:.3g}"


def skipped(benchmark: str, what: str, reason: object) -> Result:
    """Return the line of something that could not be measured here."""
    return Result(benchmark=benchmark, what=what, note=f"skipped: {reason}")


@dataclass(frozen=True, slots=True)
class Pairs:
    """Two series that were measured in turns, so that the machine's moods meet both."""

    ours: tuple[float, ...]
    peer: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The median of ours over the median of the peer's."""
        return statistics.median(self.ours) / statistics.median(self.peer)

    def interval(self) -> tuple[float, float]:
        """Return the confidence interval of the ratio, by resampling whole pairs."""
        pairs = list(zip(self.ours, self.peer, strict=True))

        def ratio(sample: Sequence[tuple[float, float]]) -> float:
            return statistics.median(o for o, _ in sample) / statistics.median(p for _, p in sample)

        return bootstrap(pairs, ratio)

    def result(self, *, bar: float | None = None, **words: Any) -> Result:
        """Return the two medians and their ratio; `bar` is the largest ratio that is allowed."""
        return Result(
            ours=statistics.median(self.ours),
            peer=statistics.median(self.peer),
            ratio=self.ratio,
            interval=self.interval(),
            bar=None if bar is None else f"{bar:g} x",
            ok=None if bar is None else self.ratio <= bar,
            pairs=len(self.ours),
            **words,
        )


def in_pairs(ours: Side, peer: Side, pairs: int) -> Pairs:
    """Measure both sides `pairs` times, one after the other, each going first in turn."""
    ours_values: list[float] = []
    peer_values: list[float] = []
    for number in range(pairs):
        progress(f"pair {number + 1} of {pairs}")
        if number % 2:
            peer_values.append(peer())
            ours_values.append(ours())
        else:
            ours_values.append(ours())
            peer_values.append(peer())
    progress("")
    return Pairs(tuple(ours_values), tuple(peer_values))


def in_turns(sides: Mapping[str, Side], rounds: int) -> dict[str, tuple[float, ...]]:
    """Measure every side in every round, each round starting with the next side."""
    names = list(sides)
    values: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        for step in range(len(names)):
            name = names[(number + step) % len(names)]
            progress(f"round {number + 1} of {rounds}: {name}")
            values[name].append(sides[name]())
    progress("")
    return {name: tuple(series) for name, series in values.items()}


def bootstrap(
    values: Sequence[T], statistic: Callable[[Sequence[T]], float]
) -> tuple[float, float]:
    """Return the confidence interval of a statistic; the same values give the same interval."""
    generator = random.Random(0)
    found = sorted(
        statistic(generator.choices(values, k=len(values))) for _ in range(BOOTSTRAP_ROUNDS)
    )
    edge = (1 - CONFIDENCE) / 2
    return found[round(edge * BOOTSTRAP_ROUNDS)], found[round((1 - edge) * BOOTSTRAP_ROUNDS) - 1]


def progress(text: str) -> None:
    """Show on a terminal what is being measured."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()


def measuring_cpu() -> int:
    """Return the CPU for what is measured: the last one that we may use."""
    return max(os.sched_getaffinity(0))


def other_cpu() -> int:
    """Return a CPU for the load beside it; the same one where there is no second."""
    return min(os.sched_getaffinity(0))


@contextmanager
def pinned(cpu: int) -> Iterator[None]:
    """Stay on one CPU, and so what is started meanwhile."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def host() -> dict[str, Any]:
    """Return what a figure depends on and is published with."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model")):
            model = line.partition(":")[2].strip()
            break
    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": model,
        "cpus": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }


def host_line() -> str:
    """Return the host in one line."""
    facts = host()
    return (
        f"{facts['cpu']}, {facts['cpus']} CPUs, Linux {facts['kernel']} {facts['machine']}, "
        f"Python {facts['python']}, load {facts['load']:.2f}"
    )
