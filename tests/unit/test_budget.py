"""The smallest limit, looked for among runs that a fake plays back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.analysis.headroom import middle_wall_ns, recommend, slowdowns
from sandbox.budget import Question, find_budget
from sandbox.errors import SandboxError, SpecError
from sandbox.records.budget import Budget, Quantity, Trial
from sandbox.records.codec import from_plain, to_plain
from sandbox.records.result import Outcome, RunResult, Totals
from sandbox.report.budget import limit_text, render_budget
from sandbox.spec import Limits, RunSpec

GOLDEN = Path(__file__).parents[1] / "golden"
MIB, MS = 1 << 20, 1_000_000
HOST = {"host_cpus": 2, "host_memory_bytes": 1024 * MIB}
Play = Callable[[RunSpec], RunResult]


@pytest.fixture
def play(make_result: Callable[..., RunResult]) -> Callable[..., Play]:
    """A program that needs so much memory; below twice that it thrashes, and needs CPU time."""

    def program(need_bytes: int, cpu_ms: int = 100) -> Play:
        def run(spec: RunSpec) -> RunResult:
            memory, cpus = spec.limits.memory_bytes, spec.limits.cpus or 2.0
            wall_ns = round(cpu_ms * MS / min(cpus, 1.0))
            if memory is not None and memory < 1.2 * need_bytes:
                wall_ns *= 2
            changes: dict[str, Any] = {"outcome": Outcome.EXITED, "exit_code": 0}
            if memory is not None and memory < need_bytes:
                changes = {"outcome": Outcome.OOM_KILLED, "exit_code": 137}
            elif spec.limits.timeout_ns is not None and wall_ns > spec.limits.timeout_ns:
                changes = {"outcome": Outcome.TIMED_OUT, "exit_code": 124}
                wall_ns = spec.limits.timeout_ns
            peak = need_bytes if memory is None else min(need_bytes, memory)
            totals = Totals(memory_peak_bytes=peak)
            return make_result(wall_ns=wall_ns, totals=totals, **changes)

        return run

    return program


def find(question: Question, run: Play, **host: int) -> Budget:
    return find_budget(question, run, **{**HOST, **host})


def test_the_smallest_memory_is_found_proven_and_given_headroom(play: Callable[..., Play]) -> None:
    found = find(Question(command=("infer",)), play(100 * MIB))

    assert (found.smallest, found.largest_failing) == (100 * MIB, 98 * MIB)
    assert found.step == 2 * MIB
    assert found.is_sharp
    assert [trial.limit for trial in found.trials].count(100 * MIB) == 4
    assert [trial.limit for trial in found.trials].count(98 * MIB) == 4
    # 100 MiB is enough, but twice as slow, and nothing faster was tried: headroom on it alone.
    assert found.recommended == 110 * MIB


def test_the_recommendation_is_not_slow_where_a_faster_limit_was_seen() -> None:
    trials = [
        Trial(limit=limit, is_enough=True, why="", wall_ns=wall, memory_peak_bytes=1, run_id="r")
        for limit, wall in ((400, 100), (200, 105), (100, 200), (100, 300))
    ]

    assert slowdowns(trials, 100) == {100: 3.0, 200: 1.05, 400: 1.0}
    assert recommend(trials, smallest=100, step=10, unlimited_ns=100) == 220
    assert recommend(trials, smallest=100, step=10, unlimited_ns=None) == 110


def test_a_limit_that_failed_once_has_no_slowdown() -> None:
    good = Trial(limit=1, is_enough=True, why="", wall_ns=9, memory_peak_bytes=1, run_id="a")
    bad = Trial(limit=1, is_enough=False, why="", wall_ns=9, memory_peak_bytes=1, run_id="b")

    assert slowdowns([good, bad], 9) == {}


def test_slower_than_asked_for_is_not_enough(play: Callable[..., Play]) -> None:
    question = Question(command=("infer",), slowest_ratio=1.5)

    found = find(question, play(100 * MIB, cpu_ms=1000))

    assert found.smallest == 120 * MIB
    assert {trial.why for trial in found.trials if trial.limit == 118 * MIB} == {"too slow"}


def test_the_smallest_cpu_limit_for_a_time(play: Callable[..., Play]) -> None:
    question = Question(
        command=("infer",), max_wall_ns=400 * MS, limits=Limits(memory_bytes=1 << 30)
    )

    found = find(question, play(100 * MIB))

    assert found.quantity is Quantity.CPUS
    assert (found.smallest, found.largest_failing, found.recommended) == (250, 200, 300)
    assert found.max_wall_ns == 400 * MS


def test_a_time_that_all_cpus_cannot_keep_is_no_answer(play: Callable[..., Play]) -> None:
    found = find(Question(command=("infer",), max_wall_ns=40 * MS), play(100 * MIB))

    assert (found.smallest, found.recommended, found.largest_failing) == (None, None, 2000)
    text = render_budget(found, width=80, color=False, unicode=True)
    assert text.startswith("no CPU limit is enough for infer\nwith 2 CPUs it was too slow")


def test_a_command_that_fails_anyway_is_an_error(make_result: Callable[..., RunResult]) -> None:
    def failing(_spec: RunSpec) -> RunResult:
        return make_result(outcome=Outcome.EXITED, exit_code=3, reason="exited 3")

    with pytest.raises(SandboxError, match=r"fails without a memory limit too: exited 3") as caught:
        find(Question(command=("infer",)), failing)

    assert "sandbox runs show" in (caught.value.hint or "")


def test_more_than_its_peak_is_tried_up_to_the_host(make_result: Callable[..., RunResult]) -> None:
    asked: list[int] = []

    def needs_more_than_it_shows(spec: RunSpec) -> RunResult:
        limit = spec.limits.memory_bytes
        asked.append(limit or 0)
        killed = limit is not None and limit < 300 * MIB
        return make_result(
            outcome=Outcome.OOM_KILLED if killed else Outcome.EXITED,
            exit_code=137 if killed else 0,
            wall_ns=100 * MS,
            totals=Totals(memory_peak_bytes=100 * MIB),
        )

    found = find(Question(command=("infer",), step=10 * MIB), needs_more_than_it_shows)
    assert found.smallest == 300 * MIB

    with pytest.raises(SandboxError, match="not in 200 MiB: out of memory"):
        find(Question(command=("infer",)), needs_more_than_it_shows, host_memory_bytes=200 * MIB)
    assert max(asked) < 1024 * MIB


@pytest.mark.parametrize(
    ("question", "why"),
    [
        (Question(command=("x",), limits=Limits(memory_bytes=1 << 30)), "memory limit is what"),
        (Question(command=("x",), limits=Limits(cpus=1.0), max_wall_ns=1), "CPU limit is what"),
        (Question(command=("x",), limits=Limits(timeout_ns=1)), "time limit comes out"),
        (Question(command=("x",), proofs=0), "at least one proof"),
        (Question(command=("x",), slowest_ratio=1.0), "above 1"),
    ],
)
def test_a_question_that_contradicts_itself_is_refused(
    play: Callable[..., Play], question: Question, why: str
) -> None:
    with pytest.raises(SpecError, match=why):
        find(question, play(100 * MIB))


def test_every_limited_run_is_strict_and_keeps_its_output(
    play: Callable[..., Play],
) -> None:
    specs: list[RunSpec] = []
    inner = play(100 * MIB)

    def run(spec: RunSpec) -> RunResult:
        specs.append(spec)
        return inner(spec)

    found = find(Question(command=("infer",), environment={"A": "1"}, workdir="/"), run)

    limited = [spec for spec in specs if spec.limits.memory_bytes is not None]
    assert len(limited) == len(found.trials)
    assert all(spec.strict and spec.limits.timeout_ns == 300 * MS for spec in limited)
    assert {spec.capture for spec in specs} == {"file"}
    assert {(spec.environment["A"], spec.workdir) for spec in specs} == {("1", "/")}


def test_the_answer_and_the_way_to_it_are_shown(play: Callable[..., Play]) -> None:
    found = find(Question(command=("python", "infer.py"), step=8 * MIB), play(100 * MIB))

    text = render_budget(found, width=80, color=False, unicode=False)

    assert text + "\n" == (GOLDEN / "budget_memory_ascii.txt").read_text()
    assert from_plain(Budget, to_plain(found)) == found


def test_limits_are_written_as_the_flags_take_them() -> None:
    assert limit_text(Quantity.MEMORY, 96 * MIB) == "96 MiB"
    assert limit_text(Quantity.CPUS, 250) == "0.25 CPUs"
    assert limit_text(Quantity.CPUS, 1000) == "1 CPU"
    assert limit_text(Quantity.CPUS, None) == "none"


def test_the_first_run_may_be_cold() -> None:
    def took(wall_ns: int) -> Trial:
        return Trial(
            limit=None, is_enough=True, why="", wall_ns=wall_ns, memory_peak_bytes=1, run_id="r"
        )

    assert middle_wall_ns([took(900), took(110), took(100)]) == 100
    assert middle_wall_ns([took(900)]) == 900
