"""All that is known of one sandbox as docker's `inspect` shows it, and the whole record with it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable
from typing import Any

from sandbox.records.codec import to_plain
from sandbox.records.light import dataclass, field
from sandbox.records.result import Outcome, RunResult
from sandbox.records.stats import State
from sandbox.report.stats_api import rfc3339
from sandbox.report.template import JSON, Template

_NEVER = "0001-01-01T00:00:00Z"
_NANO = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Inspected:
    """What a view of one sandbox is made of; None and 0 are what is not known, or not limited."""

    id: str
    name: str
    state: State
    owner: str | None
    created_utc_ns: int
    pid: int | None = None
    """The main process, while it lives."""
    supervisor_pid: int | None = None
    cpus_limit: float | None = None
    cpuset: str = ""
    memory_limit_bytes: int | None = None
    memory_swap_limit_bytes: int | None = None
    pids_limit: int | None = None
    cgroups: dict[str, str] = field(default_factory=dict)
    """Its directory in the v2 hierarchy (`v2`), and by v1 controller."""
    directory: str | None = None
    result: RunResult | None = None


def inspection(one: Inspected) -> dict[str, Any]:
    """Return the view, with docker's names where docker has one; `Run` is our record, whole."""
    result = one.result
    command = () if result is None else result.command
    return {
        "Id": one.id,
        "Name": one.name,
        "Created": rfc3339(one.created_utc_ns),
        "Owner": one.owner or "",
        "Path": command[0] if command else "",
        "Args": list(command[1:]),
        "State": _state(one),
        "HostConfig": {
            "NanoCpus": round((one.cpus_limit or 0) * _NANO),
            "CpusetCpus": one.cpuset,
            "Memory": one.memory_limit_bytes or 0,
            "MemorySwap": one.memory_swap_limit_bytes or 0,
            "PidsLimit": one.pids_limit,
        },
        "NetworkSettings": {"Ports": {} if result is None else _ports(result)},
        "Cgroups": dict(one.cgroups),
        "RunDirectory": one.directory or "",
        "Run": None if result is None else to_plain(result),
    }


def _state(one: Inspected) -> dict[str, Any]:
    result = one.result
    is_up = one.state in {State.RUNNING, State.PAUSED}
    over = result is not None and not is_up and one.state is not State.CREATED
    started = finished = _NEVER
    if result is not None and one.state is not State.CREATED:
        started = rfc3339(result.started_utc_ns)
        if result.wall_ns is not None:
            finished = rfc3339(result.started_utc_ns + result.wall_ns)
    return {
        "Status": one.state.value,
        "Running": is_up,
        "Paused": one.state is State.PAUSED,
        "OOMKilled": result is not None and result.outcome is Outcome.OOM_KILLED,
        "Dead": one.state is State.DEAD,
        "Pid": one.pid or 0,
        "SupervisorPid": one.supervisor_pid or 0,
        "ExitCode": 0 if result is None or result.exit_code is None else result.exit_code,
        "Outcome": "" if result is None else result.outcome.value,
        "Signal": _signal(result),
        "Error": result.reason if over and result is not None else "",
        "StartedAt": started,
        "FinishedAt": finished,
    }


def _ports(result: RunResult) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = {}
    for port in result.ports:
        end = {"HostIp": port.host_address, "HostPort": str(port.host_port)}
        found.setdefault(port.inside, []).append(end)
    return found


def _signal(result: RunResult | None) -> str:
    if result is None or result.program_signal is None:
        return ""
    try:
        return signal.Signals(result.program_signal).name
    except ValueError:
        return str(result.program_signal)


def render_inspection(views: Iterable[dict[str, Any]], format_text: str = "") -> str:
    """Return an array of the views, or for each a line by a template; `json` is one object a line.

    Raises:
        SpecError: the template cannot be parsed, or asks for what a view lacks.
    """
    if not format_text:
        return json.dumps(list(views), indent=4, ensure_ascii=False) + "\n"
    if format_text == JSON:
        return "".join(json.dumps(view, ensure_ascii=False) + "\n" for view in views)
    template = Template(format_text.replace(r"\t", "\t").replace(r"\n", "\n"))
    return "".join(template.render(view, missing_is_error=True) + "\n" for view in views)
