"""The order of a benchmark: setup, warm-up, prepare and run, again and again, cleanup."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

from sandbox.bench.plan import Plan
from sandbox.errors import HostError, SandboxError
from sandbox.records.benchmark import Benchmark, Repeat, repeat_of
from sandbox.records.light import dataclass, replace
from sandbox.records.result import Outcome, RunResult
from sandbox.spec import RunSpec

_SHOWN_LINES = 8


class StoppedError(SandboxError):
    """A signal asked to end; what was measured before is in `benchmarks`."""

    def __init__(self, benchmarks: list[Benchmark], exit_code: int) -> None:
        """Keep what there is, and the status to leave with."""
        super().__init__("stopped by a signal")
        self.benchmarks = benchmarks
        self.exit_code = exit_code


@dataclass(frozen=True, kw_only=True)
class Around:
    """What a session does its work with; tests pass their own."""

    execute: Callable[[RunSpec], RunResult]
    shell: Callable[[str], int]
    """Runs a hook and returns its status."""
    output_of: Callable[[RunResult], str]
    """The end of what a run has written."""
    progress: Callable[[str], None]
    finished: Callable[[list[Benchmark]], None]
    """Told after every command, or with interleaving after every round."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """How often, and in which order."""

    runs: int = 5
    warmup: int = 1
    interleave: bool = False
    """One run of each command in turn, instead of all runs of one after the other."""
    ignore_failure: bool = False


def run_session(plans: Sequence[Plan], around: Around, order: Order) -> list[Benchmark]:
    """Run all plans and return their repeats.

    Raises:
        HostError: a command or a hook failed; `finished` has had what was whole before.
        StoppedError: a signal asked to end.
    """
    return _Session(plans, around, order).run()


class _Session:
    """The repeats so far."""

    def __init__(self, plans: Sequence[Plan], around: Around, order: Order) -> None:
        self._plans = plans
        self._around = around
        self._order = order
        self._repeats: list[list[Repeat]] = [[] for _ in plans]

    def run(self) -> list[Benchmark]:
        everything = range(len(self._plans))
        for places in [everything] if self._order.interleave else [[place] for place in everything]:
            with ExitStack() as undo:
                for place in places:
                    self._hook(place, "setup")
                    undo.callback(self._cleanup, place)
                for place, number in _turns(places, self._order.warmup):
                    self._one(place, f"warm-up {number}/{self._order.warmup}")
                for place, number in _turns(places, self._order.runs):
                    repeat = self._one(place, f"run {number}/{self._order.runs}")
                    self._repeats[place].append(repeat)
                    if place == places[-1]:
                        self._around.finished(self._benchmarks())
        return self._benchmarks()

    def _one(self, place: int, what: str) -> Repeat:
        plan = self._plans[place]
        self._hook(place, "prepare")
        self._around.progress(f"{what} of `{plan.text}`")
        result = self._around.execute(plan.spec)
        if result.outcome is Outcome.KILLED:
            raise StoppedError(self._benchmarks(), result.exit_code or SandboxError.exit_code)
        if not (self._order.ignore_failure or result.outcome.is_success(result.exit_code)):
            raise HostError(
                f"`{plan.text}` failed in {what}: {result.reason}{self._said(result)}",
                hint=f"`sandbox runs show {result.run_id}`; "
                "-i/--ignore-failure measures it all the same",
            )
        return repeat_of(result)

    def _said(self, result: RunResult) -> str:
        lines = self._around.output_of(result).rstrip().splitlines()[-_SHOWN_LINES:]
        return "".join(f"\n  {line}" for line in lines)

    def _hook(self, place: int, kind: str) -> None:
        text: str | None = getattr(self._plans[place].hooks, kind)
        if text is None:
            return
        self._around.progress(f"{kind}: {text}")
        status = self._around.shell(text)
        if status != 0:
            raise HostError(
                f"the --{kind} command `{text}` ended with status {status}",
                hint=f"end it with `; true` if that is no failure: --{kind} '{text}; true'",
            )

    def _cleanup(self, place: int) -> None:
        self._hook(place, "cleanup")

    def _benchmarks(self) -> list[Benchmark]:
        return [
            replace(
                Benchmark(command=plan.text, parameters=plan.parameters), repeats=tuple(repeats)
            )
            for plan, repeats in zip(self._plans, self._repeats, strict=True)
            if repeats
        ]


def _turns(places: Sequence[int], count: int) -> Iterator[tuple[int, int]]:
    for number in range(1, count + 1):
        for place in places:
            yield place, number
