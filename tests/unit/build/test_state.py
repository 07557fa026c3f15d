"""The configuration of an image under construction, variables, and the lines of progress."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox.build.builder import find_moment
from sandbox.build.configuring import configure, join_workdir
from sandbox.build.options import Variables
from sandbox.build.progress import BuildProgress, shorten
from sandbox.build.state import ImageState, key_of
from sandbox.build.variables import write_dockerfile
from sandbox.errors import SpecError
from sandbox.image.dockerfile.parse import parse

BASE = {
    "architecture": "amd64",
    "os": "linux",
    "config": {"Env": ["A=1", "PATH=/bin"], "Cmd": ["sh"], "Labels": {"x": "1"}},
    "history": [{"created_by": "base"}],
}


def configured(text: str) -> ImageState:
    state = ImageState(BASE, (), (), "key")
    for instruction in parse(f"FROM base\n{text}", "Dockerfile").stages[0].instructions:
        configure(state, instruction)
    return state


def test_an_entrypoint_takes_only_an_inherited_command_away() -> None:
    assert configured('ENTRYPOINT ["x"]').config["Cmd"] is None
    assert configured('CMD ["y"]\nENTRYPOINT ["x"]').config["Cmd"] == ["y"]


def test_variables_keep_their_places() -> None:
    state = configured("ENV B=2 A=3")

    assert state.config["Env"] == ["A=3", "PATH=/bin", "B=2"]


def test_the_shell_in_force_is_used() -> None:
    state = configured('CMD one\nSHELL ["/bin/bash", "-c"]\nENTRYPOINT two')

    assert state.config["Cmd"] == ["/bin/sh", "-c", "one"]
    assert state.config["Entrypoint"] == ["/bin/bash", "-c", "two"]


def test_the_path_is_docker_s_where_the_base_has_none() -> None:
    state = ImageState({"architecture": "amd64", "os": "linux"}, (), (), "key")

    assert state.environment["PATH"].startswith("/usr/local/sbin:")


def test_a_fork_does_not_change_what_it_came_from() -> None:
    state = configured("LABEL a=b")
    fork = state.fork()
    fork.set_labels([("c", "d")])
    fork.advance("k", "2026-01-01T00:00:00Z", "LABEL c=d")

    assert state.config["Labels"] == {"x": "1", "a": "b"}
    assert len(json.loads(state.write(""))["history"]) == 1
    assert json.loads(fork.write("now"))["created"] == "now"


@pytest.mark.parametrize(
    ("before", "path", "after"),
    [("/", "a", "/a"), ("/a", "b/../c", "/a/c"), ("/a", "/b/", "/b"), ("/", "../..", "/"),
     ("/a", "//b", "/b")],
)  # fmt: skip
def test_working_directories(before: str, path: str, after: str) -> None:
    assert join_workdir(before, path) == after


def test_keys_are_of_all_that_was_said() -> None:
    assert key_of("RUN", ["a"], {"x": 1}) == key_of("RUN", ("a",), {"x": 1})
    assert key_of("RUN", ["a", "b"]) != key_of("RUN", ["a b"])


def test_the_moment_can_be_given() -> None:
    assert find_moment({"SOURCE_DATE_EPOCH": "0"}).text == "1970-01-01T00:00:00Z"
    assert find_moment({"SOURCE_DATE_EPOCH": "253402300799"}).text == "9999-12-31T23:59:59Z"
    assert find_moment({"SOURCE_DATE_EPOCH": ""}).latest_sec is None


@pytest.mark.parametrize("text", ["abc", "-1", "1.5", " 1", "0x1", "٣", "253402300800", "9" * 5000])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="no time in seconds since 1970") as caught:
        find_moment({"SOURCE_DATE_EPOCH": text})
    assert "unset it" in (caught.value.hint or "")


def test_variables_become_a_dockerfile_in_auptimizers_order() -> None:
    text = write_dockerfile(
        Variables(
            base="python:3.11",
            apt=("wget", "g++"),
            directory=Path("bench"),
            pre_run="wget $X \\\nEND\necho 'done'",
            pip=("numpy>=1.26", "a b"),
            command=("python", "-u", 'say "x".py'),
        )
    )

    stage = parse(text, "variables").stages[0]
    keywords = [type(each).__name__ for each in stage.instructions]
    assert keywords == ["Run", "Workdir", "Copy", "Run", "Run", "Cmd"]
    assert "apt-get install -y wget g++" in text
    assert "pip install 'numpy>=1.26' 'a b'" in text
    assert "wget $X \\\nEND\necho 'done'\nEND_\n" in text
    assert text.endswith('CMD ["python", "-u", "say \\"x\\".py"]\n')


@pytest.mark.parametrize(
    "variables", [Variables(base=""), Variables(base="a b"), Variables(base="a", apt=("x\ny",))]
)
def test_variables_that_cannot_be_meant(variables: Variables) -> None:
    with pytest.raises(SpecError):
        write_dockerfile(variables)


def test_progress() -> None:
    told: list[str] = []
    progress = BuildProgress(told.append)
    with progress.step("1/2", "RUN a \\\n  b"):
        progress.say("0.1 output")
    with progress.step("2/2", "COPY a b"):
        progress.cached += 1

    assert told == [
        "#1 [1/2] RUN a …", "#1 0.1 output", "#1 DONE 0.0s", "#2 [2/2] COPY a b", "#2 CACHED",
    ]  # fmt: skip
    assert shorten("x" * 200) == "x" * 120 + " …"
