"""What may be asked of a run, checked once and before anything is created."""

from __future__ import annotations

import json
import signal
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import SpecError
from sandbox.spec import (
    DEFAULT_PIDS,
    MIN_CPUS,
    MIN_MEMORY_BYTES,
    ULIMIT_NAMES,
    Capture,
    Limits,
    RunSpec,
    Ulimit,
    parse_environment,
    parse_signal,
)
from sandbox.units import UNLIMITED

MIB = 1 << 20
SIZES = st.integers(MIN_MEMORY_BYTES, UNLIMITED)


# --- limits


def test_nothing_asked_is_nothing_limited_but_the_number_of_processes() -> None:
    limits = Limits().with_defaults()

    assert limits == Limits(pids=DEFAULT_PIDS)
    assert limits.swap_bytes is None


@pytest.mark.parametrize("cpus", [0, -1, 0.009, float("nan"), float("inf"), -float("inf")])
def test_a_cpu_limit_that_cannot_be_is_refused(cpus: float) -> None:
    with pytest.raises(SpecError):
        Limits(cpus=cpus)


@given(st.floats(MIN_CPUS, 1e6))
def test_any_other_cpu_limit_is_kept_as_it_is(cpus: float) -> None:
    assert Limits(cpus=cpus).cpus == cpus


@pytest.mark.parametrize("shares", [0, 2, 1024, 262_144])
def test_shares_have_dockers_range(shares: int) -> None:
    assert Limits(cpu_shares=shares).cpu_shares == shares


@pytest.mark.parametrize("shares", [-1, 1, 262_145])
def test_shares_out_of_range_are_refused(shares: int) -> None:
    with pytest.raises(SpecError, match="CPU shares"):
        Limits(cpu_shares=shares)


def test_an_empty_list_of_cpus_is_refused() -> None:
    with pytest.raises(SpecError, match="list of CPUs is empty"):
        Limits(cpuset_cpus=())


@pytest.mark.parametrize("name", ["memory_bytes", "memory_reservation_bytes", "memory_high_bytes"])
@given(size=st.integers(-10, MIN_MEMORY_BYTES - 1))
def test_too_little_memory_is_refused_with_the_minimum(name: str, size: int) -> None:
    with pytest.raises(SpecError, match="too small") as caught:
        Limits(**{name: size})

    assert caught.value.hint == "the minimum is 6 MiB"


@pytest.mark.parametrize("name", ["memory_reservation_bytes", "memory_high_bytes"])
def test_marks_above_the_limit_are_refused(name: str) -> None:
    with pytest.raises(SpecError, match="of 65 MiB is above the memory limit of 64 MiB"):
        Limits(**{"memory_bytes": 64 * MIB, name: 65 * MIB})

    assert Limits(**{"memory_bytes": 64 * MIB, name: 64 * MIB}).memory_bytes == 64 * MIB
    assert getattr(Limits(**{name: 65 * MIB}), name) == 65 * MIB


@given(SIZES)
def test_a_memory_limit_alone_leaves_no_swap(size: int) -> None:
    limits = Limits(memory_bytes=size).with_defaults()

    if size == UNLIMITED:
        assert limits.memory_swap_bytes is limits.swap_bytes is None
    else:
        assert limits.memory_swap_bytes == size
        assert limits.swap_bytes == 0


@given(SIZES, SIZES)
def test_swap_is_what_is_left_of_the_sum(one: int, other: int) -> None:
    memory, total = sorted((one, other))

    limits = Limits(memory_bytes=memory, memory_swap_bytes=total).with_defaults()

    assert limits.swap_bytes == (UNLIMITED if total == UNLIMITED else total - memory)


def test_a_sum_below_the_memory_limit_is_refused() -> None:
    with pytest.raises(SpecError, match="less than the memory limit"):
        Limits(memory_bytes=64 * MIB, memory_swap_bytes=63 * MIB)


def test_swap_without_memory_is_refused() -> None:
    with pytest.raises(SpecError, match="needs --memory"):
        Limits(memory_swap_bytes=64 * MIB)


def test_unlimited_swap_beside_a_memory_limit_is_kept() -> None:
    limits = Limits(memory_bytes=64 * MIB, memory_swap_bytes=UNLIMITED).with_defaults()

    assert limits.swap_bytes == UNLIMITED


@pytest.mark.parametrize("pids", [0, -1])
def test_a_run_needs_at_least_one_process(pids: int) -> None:
    with pytest.raises(SpecError, match="leaves none for the program"):
        Limits(pids=pids)


@pytest.mark.parametrize("name", ["timeout_ns", "cpu_time_usec"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_time_limit_of_nothing_is_refused(name: str, value: int) -> None:
    with pytest.raises(SpecError, match="longer than nothing"):
        Limits(**{name: value})


def test_defaults_do_not_replace_what_was_asked() -> None:
    asked = Limits(
        pids=7, memory_bytes=64 * MIB, memory_swap_bytes=128 * MIB, timeout_ns=5, cpus=0.5
    )

    assert asked.with_defaults() == asked
    assert asked.with_defaults().with_defaults() == asked.with_defaults()


def test_limits_cannot_be_changed_afterwards() -> None:
    limits = Limits()

    with pytest.raises(FrozenInstanceError):
        limits.cpus = 2.0  # type: ignore[misc]


# --- ulimits


@pytest.mark.parametrize(
    ("text", "ulimit"),
    [
        ("nofile=1024", Ulimit(name="nofile", soft=1024, hard=1024)),
        ("nofile=1024:4096", Ulimit(name="nofile", soft=1024, hard=4096)),
        ("core=0:-1", Ulimit(name="core", soft=0, hard=-1)),
        ("stack=unlimited", Ulimit(name="stack", soft=-1, hard=-1)),
        ("memlock=-1:-1", Ulimit(name="memlock", soft=-1, hard=-1)),
    ],
)
def test_ulimits_are_read_as_docker_reads_them(text: str, ulimit: Ulimit) -> None:
    assert Ulimit.parse(text) == ulimit


@given(
    st.sampled_from(ULIMIT_NAMES), st.integers(0, 10**17), st.one_of(st.none(), st.integers(0, 999))
)
def test_ulimits_come_back(name: str, soft: int, more: int | None) -> None:
    hard = -1 if more is None else soft + more

    assert Ulimit.parse(f"{name}={soft}:{hard}") == Ulimit(name=name, soft=soft, hard=hard)


@pytest.mark.parametrize(
    "text",
    ["", "nofile", "nofile=", "nofile=x", "nofile=1:", "nofile=1:2:3", "=1", "as=1", "nofile=-2",
     "nofile=2:1", "nofile=-1:5", "nofile=1.5", "nofile= 1", "nofile=\u0661"],
)  # fmt: skip
def test_what_is_no_ulimit_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        Ulimit.parse(text)


@given(st.text())
def test_any_text_is_a_ulimit_or_one_error(text: str) -> None:
    try:
        ulimit = Ulimit.parse(text)
    except SpecError:
        return
    assert ulimit.name in ULIMIT_NAMES


def test_a_ulimit_given_twice_is_refused() -> None:
    one = Ulimit.parse("nofile=1")

    with pytest.raises(SpecError, match="given twice"):
        Limits(ulimits=(one, Ulimit.parse("nofile=2")))


# --- the whole


def test_a_command_is_all_that_is_needed() -> None:
    spec = RunSpec(command=("true",))

    assert spec.limits == Limits()
    assert spec.capture is Capture.NONE


@pytest.mark.parametrize(
    "wrong",
    [
        {"command": ()},
        {"command": ("",)},
        {"command": ("a\0b",)},
        {"environment": {"": "x"}},
        {"environment": {"A=B": "x"}},
        {"environment": {"A": "x\0"}},
        {"interval_ns": 999_999},
        {"stop_timeout_ns": -1},
        {"stop_signal": 0},
        {"stop_signal": 4711},
    ],
)
def test_what_cannot_be_run_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        RunSpec(**{"command": ("true",), **wrong})


def test_values_of_the_environment_are_never_shown() -> None:
    spec = RunSpec(command=("true",), environment={"TOKEN": "hunter2", "A": "b"})

    public = spec.public()

    assert public["environment"] == ["A", "TOKEN"]
    assert "hunter2" not in json.dumps(public)
    assert "hunter2" not in repr(spec)


def test_the_public_form_is_plain_json() -> None:
    spec = RunSpec(
        command=("a", "b"),
        limits=Limits(cpus=0.5, ulimits=(Ulimit.parse("nofile=5"),), cpuset_cpus=(0, 1)),
    )

    public = json.loads(json.dumps(spec.public()))

    assert public["command"] == ["a", "b"]
    assert public["limits"]["cpuset_cpus"] == [0, 1]
    assert public["limits"]["ulimits"] == [{"name": "nofile", "soft": 5, "hard": 5}]
    assert public["stop_signal"] == 15


# --- signals and environment


@pytest.mark.parametrize("text", ["TERM", "SIGTERM", "term", " 15 ", "sigTerm"])
def test_a_signal_has_many_names(text: str) -> None:
    assert parse_signal(text) == signal.SIGTERM


@given(st.sampled_from(sorted(signal.Signals)))
def test_every_signal_comes_back(number: signal.Signals) -> None:
    assert parse_signal(number.name) == parse_signal(str(number.value)) == number


@pytest.mark.parametrize(
    "text", ["", "0", "4711", "SIG", "SIGNOPE", "-9", "\u0661\u0665", "1_5", "\u00b2"]
)
def test_what_is_no_signal_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="there is no signal"):
        parse_signal(text)


@given(st.text())
def test_any_text_is_a_signal_or_one_error(text: str) -> None:
    try:
        number = parse_signal(text)
    except SpecError:
        return
    assert number in signal.valid_signals()


def test_variables_are_set_kept_or_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "from here")
    monkeypatch.delenv("LACKING", raising=False)

    values, unset = parse_environment(("A=1", "KEPT", "LACKING", "B=", "C=x=y", "A=2"))

    assert values == {"A": "2", "KEPT": "from here", "B": "", "C": "x=y"}
    assert unset == ("LACKING",)


def test_the_last_word_about_a_variable_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("A", raising=False)

    assert parse_environment(("A", "A=1")) == ({"A": "1"}, ())
    assert parse_environment(("A=1", "A")) == ({}, ("A",))


@pytest.mark.parametrize("entry", ["", "=x"])
def test_a_variable_needs_a_name(entry: str) -> None:
    with pytest.raises(SpecError, match="is not `NAME=VALUE`"):
        parse_environment((entry,))
