"""The order of runs and hooks, with runs that are played back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from sandbox.bench.plan import Hooks, Plan
from sandbox.bench.session import Around, Order, StoppedError, run_session
from sandbox.errors import HostError
from sandbox.records.benchmark import Benchmark
from sandbox.records.result import Outcome, RunResult
from sandbox.spec import RunSpec

HOOKS = Hooks(setup="setup", prepare="prepare", cleanup="cleanup")


class Played:
    """Notes the order of what is done."""

    def __init__(self, make_result: Callable[..., RunResult], **changes: Any) -> None:
        self.make_result = make_result
        self.log: list[str] = []
        self.finished: list[list[Benchmark]] = []
        self.changes = changes
        self.fails: Callable[[str], int] = lambda _text: 0

    def around(self) -> Around:
        return Around(
            execute=self._execute,
            shell=self._shell,
            output_of=lambda _result: "Traceback\nValueError: 3\n",
            progress=lambda _text: None,
            finished=self.finished.append,
        )

    def _execute(self, spec: RunSpec) -> RunResult:
        self.log.append(spec.command[0])
        return self.make_result(command=spec.command, **self.changes)

    def _shell(self, text: str) -> int:
        self.log.append(text)
        return self.fails(text)


Play = Callable[..., Played]


@pytest.fixture
def play(make_result: Callable[..., RunResult]) -> Play:
    """`play(exit_code=1)` makes a session whose runs end so."""
    return partial(Played, make_result)


def plan(name: str, hooks: Hooks | None = None) -> Plan:
    return Plan(text=name, spec=RunSpec(command=(name,)), hooks=hooks or Hooks())


def test_setup_once_prepare_before_each_run_cleanup_at_the_end(play: Play) -> None:
    played = play()

    (benchmark,) = run_session([plan("a", HOOKS)], played.around(), Order(runs=2, warmup=1))

    assert played.log == ["setup", *["prepare", "a"] * 3, "cleanup"]
    assert len(benchmark.repeats) == 2


def test_one_command_after_the_other_or_in_turns(play: Play) -> None:
    apart, turns = play(), play()
    commands = [plan("a"), plan("b")]

    run_session(commands, apart.around(), Order(runs=2, warmup=1))
    run_session(commands, turns.around(), Order(runs=2, warmup=1, interleave=True))

    assert apart.log == ["a", "a", "a", "b", "b", "b"]
    assert turns.log == ["a", "b"] * 3


def test_what_is_whole_is_told_before_a_later_command_fails(play: Play) -> None:
    played = play()
    played.fails = lambda text: int(text == "broken")

    with pytest.raises(HostError, match="--prepare command `broken` ended with status 1"):
        run_session([plan("a"), plan("b", Hooks(prepare="broken"))], played.around(), Order(runs=1))

    assert [one.command for one in played.finished[-1]] == ["a"]


def test_a_failing_command_ends_it_with_what_it_said(play: Play) -> None:
    played = play(exit_code=1, reason="exited 1")

    with pytest.raises(HostError, match=r"`a` failed in warm-up 1/1: exited 1") as caught:
        run_session([plan("a", HOOKS)], played.around(), Order())

    assert "ValueError: 3" in str(caught.value)
    assert "--ignore-failure" in str(caught.value.hint)
    assert played.log[-1] == "cleanup"


def test_failures_can_be_measured_too(play: Play) -> None:
    played = play(exit_code=1)

    (benchmark,) = run_session([plan("a")], played.around(), Order(ignore_failure=True))

    assert [one.exit_code for one in benchmark.repeats] == [1] * 5


def test_a_signal_ends_it_even_if_failures_are_measured(play: Play) -> None:
    played = play(outcome=Outcome.KILLED, exit_code=130)

    with pytest.raises(StoppedError) as caught:
        run_session([plan("a", HOOKS)], played.around(), Order(ignore_failure=True, warmup=0))

    assert caught.value.exit_code == 130
    assert played.log == ["setup", "prepare", "a", "cleanup"]
