"""A sweep: every model in every budget, several times, and what came of it."""

from __future__ import annotations

from sandbox.records.benchmark import Repeat
from sandbox.records.light import dataclass


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One combination; None where that is not varied and not limited."""

    model: str | None
    cpus: float | None
    memory_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class SweepPlan:
    """What a sweep is to run; it never changes, so that a sweep can be taken up again."""

    sweep_id: str
    started_utc_ns: int
    command: tuple[str, ...]
    """`{model}` stands for the model; it is the last argument where no word has it."""
    models: tuple[str, ...] = ()
    cpus: tuple[float, ...] = ()
    memory_bytes: tuple[int, ...] = ()
    runs: int = 3
    timeout_ns: int | None = None
    workdir: str = "."
    """Where it was started."""
    is_hardened: bool = False
    """Whether each run is held back as by `--harden`."""


@dataclass(frozen=True, kw_only=True)
class SweepTrial:
    """One run of one cell."""

    cell: Cell
    round: int
    """From 1 on: all cells are run once before any is run twice."""
    repeat: Repeat
    reason: str = ""
    """What ended it, in a word for people."""

    @property
    def is_good(self) -> bool:
        """Whether the program ended by itself with status 0."""
        return self.repeat.outcome.is_success(self.repeat.exit_code)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A plan and the runs that were made so far."""

    plan: SweepPlan
    trials: tuple[SweepTrial, ...] = ()
    unavailable: tuple[tuple[Cell, str], ...] = ()
    """Cells that this host cannot give, and why."""
