"""From a spec to a program on the host: environment, thread hints, user, ulimits."""

from __future__ import annotations

import os
import pwd
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.environment.host import (
    RUN_ID_VARIABLE,
    THREAD_VARIABLES,
    Prepared,
    find_rlimit,
    find_user,
    prepare,
)
from sandbox.errors import HostError, LaunchError
from sandbox.records.host import Host, Mode
from sandbox.records.limits import LimitState
from sandbox.records.program import MARKS_VARIABLE
from sandbox.spec import ULIMIT_NAMES, Limits, RunSpec, Ulimit

HOST = Host(
    mode=Mode.NONE,
    mode_reason="a test",
    cpus_online=tuple(range(8)),
    cpus_allowed=tuple(range(8)),
    memory_total_bytes=1 << 33,
    swap_total_bytes=0,
    kernel="6.1",
    machine="x86_64",
)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def _prepare(**settings: Any) -> Prepared:
    return prepare(
        RunSpec(command=("python", "infer.py"), **settings), HOST, "an-id", Path("/nowhere")
    )


# --- the environment ------------------------------------------------------------------------------


def test_the_whole_environment_of_the_caller_is_the_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(os.environb, b"ODD", b"\xff\xfe=:")

    program = _prepare().program

    assert program.environment == {
        **os.environb,
        RUN_ID_VARIABLE.encode(): b"an-id",
        MARKS_VARIABLE.encode(): b"@sandbox-marks-an-id",
    }
    assert program.argv == ("python", "infer.py")
    assert (program.user, program.directory, program.rlimits) == (None, None, ())


def test_set_and_unset_variables_are_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GONE", "1")
    monkeypatch.setenv("CHANGED", "old")

    environment = _prepare(
        environment={"CHANGED": "new", "ADDED": "\udcff", RUN_ID_VARIABLE: "mine"},
        environment_unset=("GONE", "NEVER_THERE"),
    ).program.environment

    assert b"GONE" not in environment
    assert environment[b"CHANGED"] == b"new"
    assert environment[b"ADDED"] == b"\xff"
    assert environment[RUN_ID_VARIABLE.encode()] == b"mine"


def test_the_outer_runs_id_is_not_the_inner_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN_ID_VARIABLE, "outer")

    assert _prepare().program.environment[RUN_ID_VARIABLE.encode()] == b"an-id"


@given(st.dictionaries(st.binary(min_size=1, max_size=9), st.binary(max_size=20), max_size=5))
def test_no_byte_of_a_variable_is_lost(pairs: dict[bytes, bytes]) -> None:
    pairs = {
        name: value
        for name, value in pairs.items()
        if b"\0" not in name + value and b"=" not in name
    }
    asked = {os.fsdecode(name): os.fsdecode(value) for name, value in pairs.items()}

    environment = _prepare(environment=asked).program.environment

    assert {name: environment[name] for name in pairs} == pairs


# --- thread hints ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cpus", "cpuset", "count"),
    [(0.01, None, "1"), (1.0, None, "1"), (1.5, None, "2"), (20.0, None, "8"), (4.0, (1, 3), "2")],
)
def test_libraries_are_told_the_limit_rounded_up(
    cpus: float, cpuset: tuple[int, ...] | None, count: str
) -> None:
    prepared = _prepare(limits=Limits(cpus=cpus, cpuset_cpus=cpuset))

    assert prepared.thread_hints == dict.fromkeys(THREAD_VARIABLES, count)
    environment = prepared.program.environment
    assert {environment[name.encode()] for name in THREAD_VARIABLES} == {count.encode()}


def test_without_a_cpu_limit_or_when_not_wanted_there_are_no_hints() -> None:
    assert _prepare().thread_hints == {}
    assert _prepare(limits=Limits(cpuset_cpus=(0,))).thread_hints == {}
    assert _prepare(limits=Limits(cpus=1), thread_hints=False).thread_hints == {}


@pytest.mark.parametrize("name", THREAD_VARIABLES)
def test_who_has_set_one_of_them_has_thought_of_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = Limits(cpus=1)
    by_flag = _prepare(limits=limits, environment={name: "7"})
    monkeypatch.setenv(name, "5")
    inherited = _prepare(limits=limits)
    dropped = _prepare(limits=limits, environment_unset=(name,))

    assert by_flag.thread_hints == inherited.thread_hints == {}
    assert by_flag.program.environment[name.encode()] == b"7"
    assert inherited.program.environment[name.encode()] == b"5"
    assert set(dropped.thread_hints) == set(THREAD_VARIABLES)


# --- the user -------------------------------------------------------------------------------------


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("name", ["root", "0"])
def test_a_user_of_the_database_brings_his_groups_and_home(name: str) -> None:
    entry = pwd.getpwuid(0)

    user, home = find_user(name)

    assert user == (0, entry.pw_gid, tuple(os.getgrouplist(entry.pw_name, entry.pw_gid)))
    assert home == entry.pw_dir


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("root:7", (0, 7, ())),
        ("4000000:4000001", (4_000_000, 4_000_001, ())),
        ("4000000:root", (4_000_000, 0, ())),
    ],
)
def test_an_explicit_group_is_the_only_one(text: str, expected: tuple[int, int, tuple[()]]) -> None:
    assert find_user(text)[0] == expected


@pytest.mark.usefixtures("root")
def test_the_home_is_the_users_unless_it_was_set() -> None:
    other = _prepare(user="4000000:4000000").program.environment
    chosen = _prepare(user="4000000:4000000", environment={"HOME": "/mine"}).program.environment

    assert other[b"HOME"] == b"/"
    assert chosen[b"HOME"] == b"/mine"


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("no-such-user", "there is no user `no-such-user`", "getent passwd"),
        ("root:no-such-group", "there is no group `no-such-group`", "getent group"),
        ("", "there is no user ``", "getent passwd"),
        (":0", "there is no user ``", "getent passwd"),
        ("4000000", "its group is not known", "`4000000:GROUP`"),
        ("4294967295:0", "there is no user `4294967295`", "a number"),
        ("٣:0", "there is no user", "a number"),
    ],
)
def test_an_unknown_user_is_one_clear_error(text: str, says: str, hint: str) -> None:
    with pytest.raises(LaunchError) as caught:
        find_user(text)

    assert caught.value.exit_code == 126
    assert says in str(caught.value)
    assert hint in (caught.value.hint or "")


def test_a_plain_user_can_be_himself_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
    monkeypatch.setattr(os, "getegid", lambda: 4_000_001)

    assert find_user("4000000:4000001") == (None, None)
    with pytest.raises(LaunchError, match="only root can become another user") as caught:
        find_user("root")
    assert caught.value.exit_code == 126


# --- ulimits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ULIMIT_NAMES)
def test_every_name_of_docker_is_a_resource_limit_of_the_kernel(name: str) -> None:
    assert (
        0 <= find_rlimit(name) < resource.RLIM_NLIMITS
        if hasattr(resource, "RLIM_NLIMITS")
        else True
    )
    assert len(resource.getrlimit(find_rlimit(name))) == 2


def test_ulimits_become_rlimits_and_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        resource, "getrlimit", lambda _which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    )
    ulimits = (
        Ulimit(name="nofile", soft=10, hard=20),
        Ulimit(name="core", soft=0, hard=0),
        Ulimit(name="stack", soft=-1, hard=-1),
    )

    prepared = _prepare(limits=Limits(ulimits=ulimits))

    assert prepared.program.rlimits == (
        (resource.RLIMIT_NOFILE, 10, 20),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_STACK, resource.RLIM_INFINITY, resource.RLIM_INFINITY),
    )
    assert [(report.name, report.value, report.state) for report in prepared.reports] == [
        ("ulimit_nofile", "10:20", LimitState.ENFORCED),
        ("ulimit_core", "0", LimitState.ENFORCED),
        ("ulimit_stack", "unlimited", LimitState.ENFORCED),
    ]


@pytest.mark.parametrize("hard", [101, -1])
def test_a_hard_limit_is_not_raised_without_the_privilege(
    hard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (50, 100))
    limits = Limits(ulimits=(Ulimit(name="nofile", soft=10, hard=hard),))
    monkeypatch.setattr("sandbox.environment.host._may_raise", lambda: False)

    with pytest.raises(HostError, match="above the hard limit of 100"):
        _prepare(limits=limits)

    monkeypatch.setattr("sandbox.environment.host._may_raise", lambda: True)
    assert _prepare(limits=limits).program.rlimits[0][2] == hard


def test_the_host_is_asked_for_no_more_cpus_than_it_allows() -> None:
    host = replace(HOST, cpus_allowed=(3,))
    spec = RunSpec(command=("x",), limits=Limits(cpus=1))

    assert prepare(spec, host, "id", Path("/nowhere")).thread_hints["OMP_NUM_THREADS"] == "1"
