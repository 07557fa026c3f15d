"""The order of a profile, with runs that are played back: go on, keep, resume."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import LaunchError, SpecError, StoreError
from sandbox.profiler.models import Model
from sandbox.profiler.session import (
    Around,
    append_summary,
    check_paths,
    run_profile,
    sample_path,
    spec_of,
)
from sandbox.profiler.settings import Settings
from sandbox.records.result import Outcome, RunResult
from sandbox.spec import Capture, Limits, RunSpec

MODELS = (Model("a.onnx", "a"), Model("b.onnx", "b"), Model("c.onnx", "c"))


class Played:
    """Runs that end as they are told to, by model."""

    def __init__(self, make_result: Callable[..., RunResult], **ends: Any) -> None:
        self.make_result = make_result
        self.ends = ends
        self.ran: list[str] = []
        self.said: list[str] = []

    def around(self) -> Around:
        return Around(
            execute=self._execute,
            blocks_of=lambda _result: (),
            output_of=lambda _result: "ValueError: no such layer\n",
            say=self.said.append,
        )

    def _execute(self, spec: RunSpec) -> RunResult:
        model = spec.command[2] if len(spec.command) > 2 else ""
        self.ran.append(model)
        end = self.ends.get(model.split(".")[0], {})
        if isinstance(end, Exception):
            raise end
        return self.make_result(command=spec.command, **end)


Play = Callable[..., Played]


@pytest.fixture
def play(make_result: Callable[..., RunResult]) -> Play:
    """`play(b={…})` makes a session in which the model `b` ends so."""
    return partial(Played, make_result)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A script for each model."""
    return Settings(
        path=tmp_path / "env.template",
        directory=tmp_path,
        command=("python",),
        script="test.py",
        step_ns=10**9,
        output=tmp_path / "out.txt",
        limits=Limits(cpus=1.0),
        fields={"user": "1:1"},
        environment={"A": "1"},
    )


def test_each_model_is_a_run_with_a_file_of_its_own(
    settings: Settings, tmp_path: Path, play: Play
) -> None:
    played = play()

    done = run_profile(settings, MODELS, None, played.around(), resume=False)

    assert played.ran == ["a.onnx", "b.onnx", "c.onnx"]
    assert [row.name for row in done.rows] == ["a", "b", "c"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a_out.txt",
        "b_out.txt",
        "c_out.txt",
    ]


def test_a_model_that_fails_is_a_row_and_the_rest_go_on(settings: Settings, play: Play) -> None:
    oom = {"outcome": Outcome.OOM_KILLED, "exit_code": 137, "reason": "killed: out of memory"}
    absent = LaunchError("python: not found", exit_code=127)
    played = play(a=oom, b=absent)

    done = run_profile(settings, MODELS, None, played.around(), resume=False)

    assert [(row.outcome, row.exit_code) for row in done.rows] == [
        (Outcome.OOM_KILLED, 137),
        (Outcome.NOT_STARTED, 127),
        (Outcome.EXITED, 0),
    ]
    assert "  ValueError: no such layer" in played.said  # its output is shown


def test_a_session_goes_on_where_it_was_ended(
    settings: Settings, tmp_path: Path, play: Play
) -> None:
    killed = {"outcome": Outcome.KILLED, "exit_code": 130}
    first = run_profile(settings, MODELS, None, play(b=killed).around(), resume=False)
    played = play()

    again = run_profile(settings, MODELS, None, played.around(), resume=True)

    assert (first.stopped_with, len(first.rows)) == (130, 1)
    assert played.ran == ["b.onnx", "c.onnx"]
    assert [row.name for row in again.rows] == ["a", "b", "c"]
    assert not list(tmp_path.glob(".*"))  # at its end nothing is left of it


def test_what_failed_is_run_again_when_a_session_goes_on(settings: Settings, play: Play) -> None:
    ends = {"a": {"exit_code": 1}, "b": {"outcome": Outcome.KILLED, "exit_code": 130}}
    run_profile(settings, MODELS, None, play(**ends).around(), resume=False)
    played = play()

    run_profile(settings, MODELS, None, played.around(), resume=True)

    assert played.ran == ["a.onnx", "b.onnx", "c.onnx"]


def test_another_session_is_not_gone_on_with(settings: Settings, play: Play) -> None:
    killed = {"outcome": Outcome.KILLED, "exit_code": 130}
    run_profile(settings, MODELS, None, play(b=killed).around(), resume=False)

    with pytest.raises(StoreError, match="is of another session"):
        run_profile(settings, MODELS[:2], None, play().around(), resume=True)


def test_what_cannot_be_read_is_not_gone_on_with(
    settings: Settings, tmp_path: Path, play: Play
) -> None:
    (tmp_path / ".out.txt.resume").write_text("{")

    with pytest.raises(StoreError, match="cannot go on"):
        run_profile(settings, MODELS, None, play().around(), resume=True)


def test_without_models_the_script_runs_once(
    settings: Settings, tmp_path: Path, play: Play
) -> None:
    played = play()
    (tmp_path / "out.txt").write_text("of yesterday\n")

    done = run_profile(settings, (), None, played.around(), resume=False)

    assert played.ran == [""]
    assert [row.name for row in done.rows] == ["test"]
    text = (tmp_path / "out.txt").read_text()
    assert text.startswith("of yesterday\nProfiling script: python test.py\n")


def test_the_run_is_what_the_variables_say(settings: Settings, tmp_path: Path) -> None:
    spec = spec_of(settings, MODELS[0], None)

    assert spec.command == ("python", "test.py", "a.onnx")
    assert (spec.workdir, spec.user, spec.environment) == (str(tmp_path), "1:1", {"A": "1"})
    assert spec.limits.cpus == 1.0
    assert spec.interval_ns == 10_000_000  # finer than the sample time: peaks are seen
    assert spec.capture is Capture.FILE


def test_files_of_models_are_kept_apart(settings: Settings) -> None:
    assert sample_path(settings, Model("x", "a/net")).name == "a_net_out.txt"
    with pytest.raises(SpecError, match="would both write"):
        check_paths(settings, [Model("1", "a/net"), Model("2", "a_net")])


def test_summaries_are_appended_with_their_date(settings: Settings) -> None:
    append_summary(settings, "TABLE")
    append_summary(settings, "TABLE")

    text = settings.output.read_text()
    assert text.count("TABLE\n\n") == text.count("Usage stats of the experiment of 20") == 2


def test_a_file_that_cannot_be_written_is_named(settings: Settings) -> None:
    settings.output.mkdir()

    with pytest.raises(StoreError, match=r"cannot write .*out\.txt"):
        append_summary(settings, "TABLE")
