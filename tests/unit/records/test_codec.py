"""Records to JSON and back."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.records.codec import from_plain, to_json, to_plain
from sandbox.records.host import Host, Mode
from sandbox.records.limits import LimitReport, LimitState
from sandbox.records.ports import PublishedPort
from sandbox.records.result import (
    DeviceIo,
    EnergyUse,
    MemorySplit,
    OomKill,
    Outcome,
    Overhead,
    Phase,
    Pressure,
    RootMade,
    RunResult,
    RunWarning,
    Summary,
    Totals,
)
from sandbox.records.security import Protection, ProtectionState

HOST = Host(
    mode=Mode.HYBRID,
    mode_reason="memory is a v1 hierarchy",
    controllers=("cpu", "memory"),
    cpus_online=(0, 1),
    cpus_allowed=(1,),
    memory_total_bytes=1 << 34,
    swap_total_bytes=0,
    kernel="6.18.0",
    machine="x86_64",
    cpu_model="A CPU",
    hostname="board",
    unavailable={"swap_peak_bytes": "no such file"},
)

FULL = RunResult(
    run_id="0123456789ab",
    name="quiet-heron",
    command=("python", "infer.py", "\udcff"),
    protections=(Protection(name="seccomp", state=ProtectionState.ON, detail="docker's default"),),
    spec={"limits": {"cpus": 1.5, "memory_bytes": None}, "environment": ["A"]},
    host=HOST,
    limits=(
        LimitReport(name="cpus", asked="1.5", state=LimitState.ENFORCED, file="cpu.max"),
        LimitReport(name="pids", asked="9", state=LimitState.UNAVAILABLE, reason="no controller"),
    ),
    outcome=Outcome.OOM_KILLED,
    exit_code=137,
    program_signal=9,
    reason="killed: out of memory at 3.21 s",
    started_utc_ns=1_795_000_000_000_000_000,
    started_ns=2_000_000_000,
    wall_ns=3_210_000_000,
    totals=Totals(
        cpu_usage_usec=5,
        memory_peak_bytes=1 << 40,
        memory_peak_source="kernel",
        io=(DeviceIo(device="8:0 sda", read_bytes=1, write_bytes=2, read_ops=3, write_ops=4),),
        cpu_pressure=Pressure(some_usec=7, full_usec=None),
        energy_uj=12_000_000,
        energy=(EnergyUse(domain="package-0", energy_uj=12_000_000),),
    ),
    summary=Summary(
        cpu_mean=0.25,
        memory_split=MemorySplit(
            time_ns=9,
            current_bytes=8,
            anon_bytes=7,
            file_bytes=None,
            shmem_bytes=0,
            kernel_bytes=1,
        ),
        samples=12,
    ),
    phases=(Phase(name="start", started_ns=2_000_000_000, wall_ns=10, totals=Totals(pids_peak=1)),),
    oom_kills=(OomKill(time_ns=5, since_start_ns=4, cause="limit"),),
    leftover_processes=2,
    unavailable={"network": "shares the host's network"},
    warnings=(RunWarning(code="steal", text="the host was busy", hint="wait"),),
    overhead=Overhead(cpu_usec=10, ticks=100, missed_ticks=1, max_late_ns=99),
    root=RootMade(how="copy", reason="EINVAL", entries=9, size_bytes=1 << 20, wall_ns=7),
    thread_hints={"OMP_NUM_THREADS": "2"},
    ports=(PublishedPort(container_port=80, protocol="udp", host_port=8080),),
    groups=("/sys/fs/cgroup/run-0123456789ab",),
    directory="/var/lib/sandbox/runs/0123456789ab",
    versions={"sandbox": "0.1.0"},
)


def test_a_full_result_comes_back_as_it_was() -> None:
    assert from_plain(RunResult, json.loads(to_json(FULL))) == FULL


def test_the_full_result_of_this_test_leaves_no_field_at_its_default() -> None:
    left_out = {"program_status", "schema"}  # a signal ended it; the schema has one value
    at_default = {
        field.name
        for field in dataclasses.fields(RunResult)
        if field.default is not dataclasses.MISSING and getattr(FULL, field.name) == field.default
    }
    assert at_default == left_out


def test_fields_that_are_not_known_are_left_out() -> None:
    plain = to_plain(FULL) | {"invented_later": 1}
    plain["host"]["also_later"] = {"x": 2}
    assert from_plain(RunResult, plain) == FULL


def test_fields_that_were_not_known_yet_take_their_defaults() -> None:
    plain = to_plain(FULL)
    del plain["overhead"], plain["totals"]["io"]
    result = from_plain(RunResult, plain)
    assert result.overhead is None
    assert result.totals.io is None


def test_what_json_has_no_number_for_becomes_null() -> None:
    assert json.loads(to_json({"a": [float("nan"), 1.5], "b": float("inf")})) == {
        "a": [None, 1.5],
        "b": None,
    }


def test_a_whole_number_is_a_float_where_one_is_expected() -> None:
    assert from_plain(Summary, {"cpu_mean": 1}).cpu_mean == 1.0
    assert type(from_plain(Summary, {"cpu_mean": 1}).cpu_mean) is float


@pytest.mark.parametrize(
    "changed",
    [
        {"started_ns": "soon"},
        {"started_ns": True},
        {"started_ns": None},
        {"name": 5},
        {"command": "python"},
        {"outcome": "bored"},
        {"totals": []},
        {"host": None},
        {"unavailable": ["x"]},
        {"limits": [{"name": "cpus"}]},
        {"summary": {"cpu_mean": "1"}},
    ],
)
def test_values_that_do_not_fit_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError, KeyError)):
        from_plain(RunResult, to_plain(FULL) | changed)


def test_a_missing_field_is_refused() -> None:
    plain = to_plain(FULL)
    del plain["run_id"]
    with pytest.raises(TypeError, match="run_id"):
        from_plain(RunResult, plain)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.sampled_from(sorted(to_plain(FULL))), JSON)
def test_whatever_stands_in_a_field_it_is_read_or_refused(field: str, value: Any) -> None:
    try:
        result = from_plain(RunResult, to_plain(FULL) | {field: value})
    except (TypeError, ValueError, KeyError):
        return
    assert isinstance(result, RunResult)
    json.loads(to_json(result))
