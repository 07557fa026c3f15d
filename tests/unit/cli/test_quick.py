"""A command line read without typer means what typer makes of it, or is left to typer."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
from typing import Any
from unittest import mock

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.cli import COMMANDS, quick
from sandbox.cli.app import build_app
from sandbox.cli.options import Flag, declared_in
from sandbox.cli.run import run

CALLS: list[dict[str, Any]] = []
DEFAULTS = {name: one.default for name, one in inspect.signature(run).parameters.items()}
SPELLED = [
    spelled
    for _, _, flag in declared_in(run)
    if isinstance(flag, Flag)
    for pair in flag.names
    for spelled in pair.split("/")
]
TEXTS = [
    "",
    "-",
    "--",
    "-1",
    "0",
    "7",
    "1.5",
    "512m",
    "10s",
    "tee",
    "file",
    "none",
    "never",
    "auto",
]
WORDS = st.one_of(
    st.sampled_from(SPELLED),
    st.sampled_from([*TEXTS, "true", "--help", "-h", "--bogus", "-mq", "-m64m", "--capture=tee"]),
    st.builds("{}={}".format, st.sampled_from(SPELLED), st.sampled_from(TEXTS)),
    st.text(max_size=3).filter(lambda text: "\0" not in text),
)


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SANDBOX_")]:
        monkeypatch.delenv(name)


@functools.cache
def app_that_records_calls() -> typer.Typer:
    @functools.wraps(run)
    def record(**values: Any) -> None:
        CALLS.append(values)

    with mock.patch.object(importlib.import_module(COMMANDS["run"]), "run", record):
        return build_app({"run": COMMANDS["run"]})


def values_by_typer(arguments: list[str]) -> dict[str, Any]:
    CALLS.clear()
    app_that_records_calls()(["run", *arguments], standalone_mode=False)
    (values,) = CALLS
    return values


def values_by_us(arguments: list[str]) -> dict[str, Any] | None:
    values = quick.read(run, arguments)
    return None if values is None else DEFAULTS | values


@given(st.lists(WORDS, max_size=5))
@settings(deadline=None, max_examples=400)
def test_what_is_read_means_what_typer_makes_of_it(arguments: list[str]) -> None:
    values = values_by_us(arguments)

    if values is not None:
        assert values == values_by_typer(arguments)


@given(st.sampled_from(SPELLED), st.sampled_from(TEXTS), st.booleans())
@settings(deadline=None, max_examples=400)
def test_so_does_each_flag_with_each_kind_of_value(flag: str, text: str, is_one: bool) -> None:  # noqa: FBT001
    arguments = [f"{flag}={text}" if is_one else flag, *([] if is_one else [text]), "--", "true"]

    values = values_by_us(arguments)

    if values is not None:
        assert values == values_by_typer(arguments)


@pytest.mark.parametrize(
    "line",
    [
        "-- true",
        "true -- x",
        "-",
        "-q -- true",
        "--cpus 1.5 --memory=512m --pids-limit 9 -- sh -c true",
        "-m 64m -e A=1 -e B=2 --env-file f -w / -u alice -- true",
        "--no-thread-hints --thread-hints --summary never --capture --capture=tee -- true",
        "--timeout 1s --timeout 2s --interval 5ms -o x.json --force -- true",
        "--blkio-weight 10 --device-read-bps /dev/vda:1m --ulimit nofile=9 -- true",
        "--harden -v /tmp:/tmp --cap-drop ALL --network none --max-peak 1g -- true",
    ],
)
def test_a_plain_line_is_read_without_typer(line: str) -> None:
    arguments = line.split()

    values = values_by_us(arguments)

    assert values is not None
    assert values == values_by_typer(arguments)


@pytest.mark.parametrize(
    "line", ["--help", "--bogus -- true", "-m64m true", "-m", "--cpus many -- true", "--force=1"]
)
def test_the_rest_is_left_to_typer(line: str) -> None:
    assert quick.read(run, line.split()) is None


VARIABLES = [flag.envvar for _, _, flag in declared_in(run) if getattr(flag, "envvar", None)]


@given(
    st.dictionaries(st.sampled_from(VARIABLES), st.sampled_from([*TEXTS, "true", "maybe"])),
    st.sampled_from([[], ["--memory", "1g"], ["--cpus", "2", "--strict"], ["--summary=never"]]),
)
@settings(deadline=None, max_examples=200)
def test_what_variables_set_means_what_typer_makes_of_it(
    variables: dict[str, str], arguments: list[str]
) -> None:
    with mock.patch.dict(os.environ, variables):
        values = values_by_us(arguments)

        if values is not None:
            assert values == values_by_typer(arguments)


def test_a_variable_sets_a_flag_that_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_MEMORY", "64m")
    monkeypatch.setenv("SANDBOX_SUMMARY", "")

    assert quick.read(run, ["--", "true"]) == {"memory": 64 << 20, "command": ["true"]}
    assert quick.read(run, ["-m", "1k", "true"]) == {"memory": 1 << 10, "command": ["true"]}


@pytest.mark.parametrize(("name", "text"), [("SANDBOX_STRICT", "1"), ("SANDBOX_CPUS", "many")])
def test_a_variable_that_is_not_plain_is_left_to_typer(
    name: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, text)

    assert quick.read(run, ["--", "true"]) is None
