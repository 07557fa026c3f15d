"""The smallest memory or CPU limit in which a command still ends well, by trying."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from sandbox.analysis.bisection import find_border
from sandbox.analysis.headroom import middle_wall_ns, recommend
from sandbox.errors import HostError, SandboxError, SpecError
from sandbox.records.budget import Budget, Quantity, Trial
from sandbox.records.light import dataclass, field, replace
from sandbox.records.result import Outcome, RunResult
from sandbox.records.security import Harden
from sandbox.spec import MIN_MEMORY_BYTES, Capture, Limits, RunSpec
from sandbox.units import format_size

MIB = 1 << 20
MILLI = 1_000
CPU_STEP = 50
"""The usual precision of CPU limits, in thousandths of a CPU."""
_FINE = 50  # memory is found to one part in fifty of what the command uses without a limit
_SHORTEST_NS = 200_000_000  # three times a very short run is less than the noise of starting it


class Runs(Protocol):
    """Runs one spec to its end, as `sandbox.engine` does."""

    def __call__(self, spec: RunSpec) -> RunResult:
        """Return what the run used; a program that fails is a result."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What to look for, and when a run counts as good enough."""

    command: tuple[str, ...]
    limits: Limits = field(default_factory=Limits)
    """The limits that stay as they are in every trial."""
    environment: Mapping[str, str] = field(default_factory=dict)
    workdir: str | None = None
    is_hardened: bool = False
    """Whether each run is held back as by `--harden`."""
    max_wall_ns: int | None = None
    """The longest wall time that is good enough: then the smallest CPU limit is looked for."""
    slowest_ratio: float = 3.0
    """Without `max_wall_ns`: how many times the unlimited wall time is still good enough."""
    step: int | None = None
    """Bytes or thousandths of a CPU; None chooses."""
    proofs: int = 3
    """How often both sides of the border are tried again."""

    @property
    def quantity(self) -> Quantity:
        """What is limited in the trials."""
        return Quantity.MEMORY if self.max_wall_ns is None else Quantity.CPUS


def find_budget(
    question: Question,
    run: Runs,
    *,
    host_cpus: int,
    host_memory_bytes: int,
    on_trial: Callable[[Trial], None] = lambda _trial: None,
) -> Budget:
    """Look for the smallest limit; `on_trial` hears of each run as it ends.

    Args:
        question: What to look for.
        run: Makes the runs; each is recorded like any other.
        host_cpus: How many CPUs may be used here.
        host_memory_bytes: No larger memory limit is tried.
        on_trial: Progress.

    Raises:
        SpecError: the question contradicts itself.
        SandboxError: the command fails without the limit too, or could not be run.
    """
    _check(question)
    tries = _Tries(question, run, on_trial)
    if question.quantity is Quantity.CPUS:
        return _find_cpus(question, tries, host_cpus)
    return _find_memory(question, tries, host_memory_bytes)


def _check(question: Question) -> None:
    limits = question.limits
    if question.quantity is Quantity.MEMORY and limits.memory_bytes is not None:
        raise SpecError(
            "the memory limit is what is looked for, so it cannot be given",
            hint="with `--max-time` the smallest CPU limit is looked for instead",
        )
    if question.quantity is Quantity.CPUS and limits.cpus is not None:
        raise SpecError(
            "the CPU limit is what is looked for, so it cannot be given",
            hint="without `--max-time` the smallest memory limit is looked for instead",
        )
    if limits.timeout_ns is not None:
        raise SpecError(
            "a time limit comes out of the search, so it cannot be given",
            hint="`--max-time` says how long a run may take",
        )
    if question.proofs < 1 or question.slowest_ratio <= 1:
        raise SpecError(
            "a border needs at least one proof, and a slowest ratio above 1",
            hint="such as `--proofs 2 --slower-than 3`",
        )


class _Tries:
    """Makes the runs, and remembers them."""

    def __init__(self, question: Question, run: Runs, on_trial: Callable[[Trial], None]) -> None:
        self.made: list[Trial] = []
        self._question = question
        self._run = run
        self._on_trial = on_trial

    def without_limit(self, times: int) -> tuple[Trial, ...]:
        """Run without the limit in question.

        Raises:
            SandboxError: the command does not end well.
        """
        found = []
        for _ in range(times):
            trial, result = self._one(None, self._question.limits)
            if not trial.is_enough:
                raise SandboxError(
                    f"`{self._question.command[0]}` fails without a "
                    f"{self._question.quantity} limit too: {result.reason or trial.why}",
                    hint=f"`sandbox runs show {result.run_id}` shows what it printed",
                )
            found.append(trial)
        return tuple(found)

    def at(self, limit: int, max_wall_ns: int) -> bool:
        """Return whether the command ends well, and in time, under one limit."""
        fixed = self._question.limits
        if self._question.quantity is Quantity.MEMORY:
            limits = replace(fixed, memory_bytes=limit, timeout_ns=max_wall_ns)
        else:
            limits = replace(fixed, cpus=limit / MILLI, timeout_ns=max_wall_ns)
        trial, _ = self._one(limit, limits)
        self.made.append(trial)
        return trial.is_enough

    def _one(self, limit: int | None, limits: Limits) -> tuple[Trial, RunResult]:
        question = self._question
        result = self._run(
            RunSpec(
                command=question.command,
                limits=limits,
                environment=dict(question.environment),
                workdir=question.workdir,
                harden=Harden() if question.is_hardened else None,
                network="none" if question.is_hardened else "host",
                capture=Capture.FILE,
                strict=limit is not None,  # a limit that is not in force would prove nothing
            )
        )
        if result.outcome is Outcome.KILLED:
            raise SandboxError(f"the search was ended: {result.reason}")
        trial = Trial(
            limit=limit,
            is_enough=result.outcome.is_success(result.exit_code),
            why=_why(result),
            wall_ns=result.wall_ns,
            memory_peak_bytes=result.totals.memory_peak_bytes,
            run_id=result.run_id,
        )
        self._on_trial(trial)
        return trial, result


def _why(result: RunResult) -> str:
    if result.outcome is Outcome.EXITED:
        return f"exited {result.exit_code}"
    return {
        Outcome.OOM_KILLED: "out of memory",
        Outcome.TIMED_OUT: "too slow",
    }.get(result.outcome, result.reason or result.outcome.replace("_", " "))


def _find_memory(question: Question, tries: _Tries, most_bytes: int) -> Budget:
    unlimited = tries.without_limit(3)
    peaks = [trial.memory_peak_bytes for trial in unlimited if trial.memory_peak_bytes is not None]
    if not peaks:
        raise HostError(
            "the smallest memory limit cannot be looked for: this host does not tell a run's peak",
            hint="`sandbox doctor` says what it takes",
        )
    step = question.step or max(MIB, max(peaks) // _FINE // MIB * MIB)
    unlimited_ns = middle_wall_ns(unlimited)
    max_wall_ns = max(round(unlimited_ns * question.slowest_ratio), _SHORTEST_NS)

    passing = max(-(-max(peaks) // step) * step, MIN_MEMORY_BYTES)
    while not tries.at(passing, max_wall_ns):
        if passing >= most_bytes:
            raise SandboxError(
                f"`{question.command[0]}` ends well without a memory limit, but not in "
                f"{format_size(passing)}: {tries.made[-1].why}",
                hint=f"`sandbox runs show {tries.made[-1].run_id}`",
            )
        passing = min(2 * passing, -(-most_bytes // step) * step)
    border = find_border(
        lambda limit: tries.at(limit, max_wall_ns),
        floor=MIN_MEMORY_BYTES,
        passing=passing,
        step=step,
        proofs=question.proofs,
    )
    return Budget(
        quantity=Quantity.MEMORY,
        command=question.command,
        step=step,
        max_wall_ns=max_wall_ns,
        unlimited=unlimited,
        trials=tuple(tries.made),
        smallest=border.smallest,
        largest_failing=border.largest_failing,
        is_sharp=border.is_sharp,
        recommended=recommend(
            tries.made, smallest=border.smallest, step=step, unlimited_ns=unlimited_ns
        ),
    )


def _find_cpus(question: Question, tries: _Tries, host_cpus: int) -> Budget:
    max_wall_ns = question.max_wall_ns or 0
    step, most = question.step or CPU_STEP, host_cpus * MILLI
    unlimited = tries.without_limit(1)
    plain = Budget(
        quantity=Quantity.CPUS,
        command=question.command,
        step=step,
        max_wall_ns=max_wall_ns,
        unlimited=unlimited,
        trials=(),
        smallest=None,
        largest_failing=None,
        is_sharp=True,
        recommended=None,
    )
    if not tries.at(most, max_wall_ns):
        return replace(plain, trials=tuple(tries.made), largest_failing=most)
    border = find_border(
        lambda limit: tries.at(min(limit, most), max_wall_ns),
        floor=step,
        passing=most,
        step=step,
        proofs=question.proofs,
    )
    advice = recommend(tries.made, smallest=border.smallest, step=step, unlimited_ns=None)
    return replace(
        plain,
        trials=tuple(tries.made),
        smallest=min(border.smallest, most),
        largest_failing=border.largest_failing,
        is_sharp=border.is_sharp,
        recommended=min(advice, most),
    )
