"""What `sandbox inspect` prints: docker's shape, templates, times."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sandbox.errors import SpecError
from sandbox.records.host import Host, Mode
from sandbox.records.ports import PublishedPort
from sandbox.records.result import Outcome, RunResult
from sandbox.records.stats import State
from sandbox.report.inspection import Inspected, inspection, render_inspection


def result_of(**fields: Any) -> RunResult:
    host = Host(
        mode=Mode.UNIFIED,
        mode_reason="a test",
        cpus_online=(0,),
        cpus_allowed=(0,),
        memory_total_bytes=1,
        swap_total_bytes=0,
        kernel="6",
        machine="m",
    )
    values: dict[str, Any] = {
        "run_id": "0123456789ab",
        "name": "n",
        "command": ("sh", "-c", "exit 3"),
        "spec": {},
        "host": host,
        "outcome": Outcome.RUNNING,
        "exit_code": None,
        "started_utc_ns": 1_700_000_000_500_000_000,
        "started_ns": 5,
    }
    return RunResult(**(values | fields))


def view_of(state: State, result: RunResult | None, **fields: Any) -> dict[str, Any]:
    one = Inspected(
        id="0123456789ab",
        name="n",
        state=state,
        owner="me",
        created_utc_ns=1_700_000_000_000_000_000,
        result=result,
        **fields,
    )
    return inspection(one)


def test_published_ports_are_where_docker_has_them() -> None:
    ports = [
        PublishedPort(container_port=80, host_port=8080),
        PublishedPort(container_port=80, host_port=9090, host_address="127.0.0.1"),
        PublishedPort(container_port=53, host_port=5353, protocol="udp"),
    ]
    view = view_of(State.RUNNING, result_of(ports=tuple(ports)))

    assert view["NetworkSettings"]["Ports"] == {
        "80/tcp": [
            {"HostIp": "0.0.0.0", "HostPort": "8080"},
            {"HostIp": "127.0.0.1", "HostPort": "9090"},
        ],
        "53/udp": [{"HostIp": "0.0.0.0", "HostPort": "5353"}],
    }
    word = '{{(index (index .NetworkSettings.Ports "80/tcp") 1).HostPort}}'
    assert render_inspection([view], word) == "9090\n"
    assert view_of(State.CREATED, None)["NetworkSettings"] == {"Ports": {}}


def test_a_running_one_has_a_start_and_no_end() -> None:
    view = view_of(State.RUNNING, result_of(), pid=42, supervisor_pid=40)

    assert view["State"] == {
        "Status": "running",
        "Running": True,
        "Paused": False,
        "OOMKilled": False,
        "Dead": False,
        "Pid": 42,
        "SupervisorPid": 40,
        "ExitCode": 0,
        "Outcome": "running",
        "Signal": "",
        "Error": "",
        "StartedAt": "2023-11-14T22:13:20.5Z",
        "FinishedAt": "0001-01-01T00:00:00Z",
    }
    assert view["Created"] == "2023-11-14T22:13:20Z"


def test_a_paused_one_is_running_too() -> None:
    state = view_of(State.PAUSED, result_of())["State"]

    assert (state["Running"], state["Paused"]) == (True, True)


def test_an_ended_one_says_how() -> None:
    result = result_of(
        outcome=Outcome.OOM_KILLED,
        exit_code=137,
        program_signal=9,
        reason="killed: out of memory",
        wall_ns=1_500_000_000,
    )

    state = view_of(State.EXITED, result)["State"]

    assert (state["OOMKilled"], state["ExitCode"], state["Signal"]) == (True, 137, "SIGKILL")
    assert state["Error"] == "killed: out of memory"
    assert state["FinishedAt"] == "2023-11-14T22:13:22Z"


@pytest.mark.parametrize("state", [State.CREATED, State.RUNNING])
def test_what_is_not_recorded_is_empty(state: State) -> None:
    view = view_of(state, None, cpus_limit=0.29)

    assert (view["Path"], view["Args"], view["Run"]) == ("", [], None)
    assert view["State"]["StartedAt"] == "0001-01-01T00:00:00Z"
    assert view["HostConfig"]["NanoCpus"] == 290_000_000


def test_views_are_an_array_lines_or_what_a_template_makes_of_them() -> None:
    views = [view_of(State.RUNNING, result_of()), view_of(State.DEAD, None)]

    assert json.loads(render_inspection(views)) == views
    lines = render_inspection(views, "json").splitlines()
    assert [json.loads(line) for line in lines] == views
    assert render_inspection(views, "{{.Name}} {{.State.Status}}\\t{{json .Args}}") == (
        'n running\t["-c","exit 3"]\nn dead\t[]\n'
    )
    assert render_inspection([]) == "[]\n"


def test_a_field_that_is_not_there_is_an_error() -> None:
    with pytest.raises(SpecError, match="Stat"):
        render_inspection([view_of(State.DEAD, None)], "{{.Stat.Status}}")
