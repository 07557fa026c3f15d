"""The Dockerfile that variables stand for: any text in them means itself."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.build.options import Variables
from sandbox.build.variables import write_dockerfile
from sandbox.errors import SpecError
from sandbox.image.dockerfile import syntax
from sandbox.image.dockerfile.fields import expand_fields
from sandbox.image.dockerfile.parse import parse
from sandbox.image.dockerfile.syntax import Instruction


def read(variables: Variables) -> tuple[str, list[Instruction]]:
    """Return the base and the expanded instructions of what is written."""
    dockerfile = parse(write_dockerfile(variables), "variables")
    (stage,) = dockerfile.stages
    found = [expand_fields(each, {"A": "never"}, dockerfile) for each in stage.instructions]
    return stage.base, found


def test_all_of_them_in_auptimizers_order() -> None:
    text = write_dockerfile(
        Variables(
            base="debian:12",
            apt=("git", "curl"),
            directory=Path("/anywhere"),
            pre_run="make\n",
            pip=("numpy<2",),
            command=("python3", "a b.py"),
        )
    )
    assert text == (
        "FROM debian:12\n"
        "RUN apt-get update && apt-get install -y git curl\n"
        "WORKDIR /app\n"
        "COPY . .\n"
        "RUN <<'END'\nmake\nEND\n"
        "RUN pip install 'numpy<2'\n"
        'CMD ["python3", "a b.py"]\n'
    )


LINES = st.text(st.characters(exclude_characters="\0\n", exclude_categories=["Cs"]), max_size=12)


@given(st.lists(st.one_of(LINES, st.sampled_from(["END", "END\r", "END_", "\tEND"])), max_size=5))
def test_any_script_is_executed_as_it_is(lines: list[str]) -> None:
    text = "\n".join(lines)
    _, found = read(Variables(base="a", pre_run=text))
    scripts = [each for each in found if isinstance(each, syntax.Run)]
    if not text.strip():
        assert not scripts
        return
    (run,) = scripts
    (heredoc,) = run.command.heredocs
    assert heredoc.text().rstrip("\n") == text.rstrip("\n")
    assert not heredoc.expand


@given(
    st.lists(LINES, min_size=1, max_size=3).filter(lambda texts: all("\r" not in t for t in texts))
)
def test_any_requirement_is_one_word_of_a_shell(texts: list[str]) -> None:
    _, found = read(Variables(base="a", pip=tuple(texts)))
    run = found[-1]
    assert isinstance(run, syntax.Run)
    assert shlex.split(run.command.words[0]) == ["pip", "install", *texts]
    assert not run.command.heredocs


@given(st.text(alphabet="ab/$'\"\\{}A#`", min_size=1, max_size=10))
def test_any_directory_means_itself(path: str) -> None:
    _, (workdir,) = read(Variables(base="a", workdir=f"/{path}"))
    assert isinstance(workdir, syntax.Workdir)
    assert workdir.path == f"/{path}"


@given(st.lists(LINES, min_size=1, max_size=3))
def test_any_command_is_kept(words: list[str]) -> None:
    _, found = read(Variables(base="a", command=tuple(words)))
    assert isinstance(found[-1], syntax.Cmd)
    assert found[-1].command.words == tuple(json.loads(json.dumps(words)))


@pytest.mark.parametrize(
    "variables",
    [
        Variables(base=""),
        Variables(base="a b"),
        Variables(base="a", workdir=""),
        Variables(base="a", workdir="/a\nRUN x"),
        Variables(base="a", apt=("a\nb",)),
        Variables(base="a", pip=("a\nb",)),
    ],
)
def test_what_cannot_stand_in_a_line(variables: Variables) -> None:
    with pytest.raises(SpecError):
        write_dockerfile(variables)
