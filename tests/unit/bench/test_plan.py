"""Commands, parameters and hooks become plans."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.bench.plan import (
    Hooks,
    Plan,
    fill,
    make_plans,
    parse_list,
    parse_scan,
    split_command,
)
from sandbox.errors import SpecError
from sandbox.spec import RunSpec

SPEC = RunSpec(command=("x",), workdir="/tmp")


def plans(*commands: tuple[str, ...], **changes: object) -> list[Plan]:
    usual = {"parameters": {}, "hooks": [Hooks()], **changes}
    return make_plans(commands, SPEC, **usual)  # type: ignore[arg-type]


def test_each_command_keeps_what_is_the_same_for_all() -> None:
    first, second = plans(("sleep", "0.1"), ("python", "a b.py"))

    assert first.spec.command == ("sleep", "0.1")
    assert second.spec.workdir == "/tmp"
    assert (first.text, second.text) == ("sleep 0.1", "python 'a b.py'")


def test_every_combination_of_parameters_is_a_plan() -> None:
    made = plans(
        ("run", "{model}", "-j{n}"),
        parameters={"model": ("a", "b"), "n": ("1", "2")},
        hooks=[Hooks(prepare="touch {model}")],
    )

    assert [plan.text for plan in made] == ["run a -j1", "run a -j2", "run b -j1", "run b -j2"]
    assert made[3].parameters == {"model": "b", "n": "2"}
    assert made[3].hooks.prepare == "touch b"


def test_a_parameter_that_is_nowhere_is_refused() -> None:
    with pytest.raises(SpecError, match="parameter n is in no command"):
        plans(("true",), parameters={"n": ("1",)})


def test_prepare_is_for_all_or_for_each() -> None:
    made = plans(("a",), ("b",), hooks=[Hooks(prepare="1"), Hooks(prepare="2")])

    assert [plan.hooks.prepare for plan in made] == ["1", "2"]
    with pytest.raises(SpecError, match="2 --prepare were given for 3"):
        plans(("a",), ("b",), ("c",), hooks=[Hooks(), Hooks()])


def test_names_stand_in_the_place_of_commands() -> None:
    made = plans(("a", "{n}"), parameters={"n": ("1", "2")}, names=["try {n}"])

    assert [plan.text for plan in made] == ["try 1", "try 2"]
    with pytest.raises(SpecError, match="2 names were given for 1"):
        plans(("a",), names=["one", "two"])


def test_a_list_may_hold_commas() -> None:
    assert parse_list(r"a,b\,c,") == ("a", "b,c", "")


@pytest.mark.parametrize(
    ("low", "high", "step", "values"),
    [
        ("1", "3", None, ("1", "2", "3")),
        ("0.1", "0.4", "0.1", ("0.1", "0.2", "0.3", "0.4")),
        ("1", "4", "2", ("1", "3")),
        ("5", "5", None, ("5",)),
    ],
)
def test_a_scan_steps_exactly(low: str, high: str, step: str | None, values: object) -> None:
    assert parse_scan(low, high, step) == values


@pytest.mark.parametrize(
    ("low", "high", "step"),
    [("a", "2", None), ("2", "1", None), ("1", "9", "0"), ("1", "1e9", None), ("0", "inf", None)],
)
def test_a_scan_that_cannot_be_meant_is_refused(low: str, high: str, step: str | None) -> None:
    with pytest.raises(SpecError):
        parse_scan(low, high, step)


@given(st.text(max_size=8), st.text(max_size=8), st.text(max_size=8))
def test_any_scan_has_values_or_is_refused(low: str, high: str, step: str) -> None:
    try:
        assert parse_scan(low, high, step)
    except SpecError:
        return


def test_a_text_is_words_or_goes_to_the_shell() -> None:
    assert split_command("sleep '0 1'", shell=False) == ("sleep", "0 1")
    assert split_command("a | b", shell=True) == ("/bin/sh", "-c", "a | b")
    assert plans(split_command("a | b", shell=True))[0].text == "a | b"
    for text in ("", "  ", "a 'b"):
        with pytest.raises(SpecError):
            split_command(text, shell=False)


@given(st.text())
def test_braces_that_are_no_parameter_stay(text: str) -> None:
    assert fill(text, {}) == text
