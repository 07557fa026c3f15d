"""Requests to a supervisor: what each makes of the run, whom it refuses. No group, no process."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.engine import control as control_module
from sandbox.engine.control import Control, Sender
from sandbox.engine.live_limits import LiveLimits
from sandbox.errors import KernelError
from sandbox.kernel import libc
from sandbox.records.host import Host, Mode
from sandbox.records.limits import LimitReport, LimitState
from sandbox.spec import Limits
from sandbox.units import format_size

MIB = 1 << 20
HOST = Host(
    mode=Mode.UNIFIED,
    mode_reason="a test",
    cpus_online=(0, 1),
    cpus_allowed=(0, 1),
    memory_total_bytes=8 << 30,
    swap_total_bytes=0,
    kernel="6",
    machine="m",
)


class FakeGroup:
    """Holds what it is told to hold, except for the limits that `refuses` names."""

    def __init__(self) -> None:
        self.inside: tuple[int, ...] = ()
        self.refuses: dict[str, LimitState] = {}
        self.applied: list[Limits] = []

    def pids(self) -> tuple[int, ...]:
        return self.inside

    def apply(self, limits: Limits) -> tuple[LimitReport, ...]:
        self.applied.append(limits)
        asked = {"cpus": limits.cpus, "memory": limits.memory_bytes, "pids": limits.pids}
        return tuple(
            LimitReport(
                name=name,
                asked=format_size(value) if name == "memory" else f"{value:g}",
                state=self.refuses.get(name, LimitState.ENFORCED),
                value=str(value),
                reason="it is in use" if name in self.refuses else None,
            )
            for name, value in asked.items()
            if value is not None
        )


class FakeWatch:
    """Notes what it is asked to do."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.is_paused = False
        self.is_ended = False
        self.started_ns = time.monotonic_ns()
        self.paused_ns = 0
        self.pauses = 0
        self.failure: KernelError | None = None

    def is_over(self) -> bool:
        return self.is_ended

    def request_signal(self, number: int, by: str, pid: int) -> None:
        self.log.append(("signal", number, by, pid))

    def request_stop(self, number: int | None, grace_ns: int | None, by: str, pid: int) -> None:
        self.log.append(("stop", number, grace_ns, by, pid))

    def pause(self, by: dict[str, int]) -> None:
        if self.failure is not None:
            raise self.failure
        self.is_paused = True
        self.pauses += 1
        self.log.append(("pause", by))

    def unpause(self, by: dict[str, int] | None = None) -> None:
        self.is_paused = False
        self.paused_ns += 2_000_000_000
        self.log.append(("unpause", by))


class Run:
    """A supervisor's side, and a way to ask it."""

    def __init__(self) -> None:
        self.name = uuid.uuid4().hex.encode()
        self.fd = libc.open_mailbox(self.name)
        self.group = FakeGroup()
        self.watch = FakeWatch()
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.changes = 0
        asked = Limits(cpus=1.0, memory_bytes=64 * MIB)
        parts: Any = {"group": self.group, "watch": self.watch}
        reports = self.group.apply(asked.with_defaults())
        self.limits = LiveLimits(parts["group"], HOST, asked, reports)
        self.control = Control(
            fd=self.fd,
            limits=self.limits,
            emit=lambda kind, detail: self.events.append((kind, detail)),
            changed=self._changed,
            **parts,
        )

    def _changed(self) -> None:
        self.changes += 1

    def ask(self, request: Any) -> dict[str, Any]:
        """Send, serve, and return the answer; a text is sent as it is."""
        data = request if isinstance(request, bytes) else json.dumps(request).encode()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(5)
            sender.bind("")
            sender.sendto(data, b"\0" + self.name)
            self.control.serve()
            plain: dict[str, Any] = json.loads(sender.recv(4096))
            return plain

    @property
    def me(self) -> dict[str, int]:
        return {"pid": os.getpid(), "uid": os.geteuid()}


@pytest.fixture
def run() -> Iterator[Run]:
    one = Run()
    yield one
    os.close(one.fd)


def whom(command: str) -> str:
    return Sender(os.getpid(), os.geteuid()).describe(command)


def test_who_asked_is_told_in_words() -> None:
    assert Sender(12, 0).describe("stop") == "`sandbox stop` of root (process 12)"
    assert Sender(0, 1000).describe("kill") == "`sandbox kill` of user 1000"


def test_a_signal_is_handed_on_with_its_sender(run: Run) -> None:
    assert run.ask({"act": "signal", "signal": 10}) == {"warnings": []}

    assert run.watch.log == [("signal", signal.SIGUSR1, whom("kill"), os.getpid())]
    assert run.events == [("signal", {"signal": 10, "by": run.me})]


@pytest.mark.parametrize(("grace_ns", "passed"), [(None, None), (5, 5), (-1, 1 << 62), (0, 0)])
def test_a_stop_has_a_grace_or_none_or_no_end(
    run: Run, grace_ns: int | None, passed: int | None
) -> None:
    run.ask({"act": "stop", "signal": None, "grace_ns": grace_ns})

    assert run.watch.log == [("stop", None, passed, whom("stop"), os.getpid())]
    assert run.events[0][0] == "stop"


def test_pausing_twice_and_letting_go_twice_are_errors(run: Run) -> None:
    assert run.ask({"act": "unpause"})["error"] == "it is not paused"
    assert run.ask({"act": "pause"}) == {"warnings": []}
    assert run.ask({"act": "pause"})["error"] == "it is paused already"
    assert run.ask({"act": "unpause"}) == {"warnings": []}

    assert run.watch.log == [("pause", run.me), ("unpause", run.me)]
    (warning,) = run.control.problems()
    assert warning.code == "paused"
    assert warning.text == "it was paused once, for 2.00 s of its time"


def test_what_the_kernel_refuses_is_the_answer(run: Run) -> None:
    run.watch.failure = KernelError("cannot open cgroup.freeze", hint="a newer kernel")

    assert run.ask({"act": "pause"}) == {
        "error": "cannot open cgroup.freeze",
        "hint": "a newer kernel",
    }


# --- limits


def test_an_update_is_applied_whole_told_and_warned_of(run: Run) -> None:
    answer = run.ask({"act": "update", "limits": {"memory_bytes": 32 * MIB, "pids": 9}})

    assert answer == {"warnings": []}
    assert run.group.applied[-1] == Limits(
        cpus=1.0, memory_bytes=32 * MIB, memory_swap_bytes=32 * MIB, pids=9
    )
    assert run.changes == 1
    ((kind, detail),) = run.events
    assert (kind, detail["by"], sorted(detail["changed"])) == (
        "update",
        run.me,
        ["memory", "pids"],
    )
    assert detail["changed"]["memory"] == {
        "from": "64 MiB",
        "to": "32 MiB",
        "state": "enforced",
        "file": None,
        "value": str(32 * MIB),
    }
    (warning,) = run.control.problems()
    assert warning.code == "updated"
    assert "memory from 64 MiB to 32 MiB, pids from 4096 to 9 at " in warning.text


def test_of_many_updates_the_last_ones_are_told(run: Run) -> None:
    for pids in range(10, 20):
        run.ask({"act": "update", "limits": {"pids": pids}})

    (warning,) = run.control.problems()

    assert warning.text.startswith(
        "limits were changed 10 times while it ran, the last ones: pids from 16 to 17 at "
    )
    assert warning.text.count("pids from") == 3


def test_a_limit_that_the_host_cannot_hold_puts_all_of_them_back(run: Run) -> None:
    before = run.limits.reports
    run.group.refuses["memory"] = LimitState.UNAVAILABLE

    answer = run.ask({"act": "update", "limits": {"memory_bytes": 32 * MIB, "cpus": 0.5}})

    assert "the memory limit of 32 MiB cannot be set: it is in use" in answer["error"]
    assert answer["hint"] == "nothing was changed"
    assert run.group.applied[-1] == Limits(cpus=1.0, memory_bytes=64 * MIB).with_defaults()
    assert [limit.asked for limit in run.limits.reports] == [limit.asked for limit in before]
    assert run.limits.asked == Limits(cpus=1.0, memory_bytes=64 * MIB)
    assert run.events == []
    assert run.control.problems() == ()


def test_an_approximated_limit_is_a_warning_for_who_asked(run: Run) -> None:
    run.group.refuses["cpus"] = LimitState.APPROXIMATED

    (text,) = run.ask({"act": "update", "limits": {"cpus": 0.5}})["warnings"]

    assert text == "the cpus limit of 0.5 is approximated: it is in use"


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"cpus": 3.0}, "3 CPUs were asked for, but this host has 2"),
        ({"memory_bytes": 5}, "too small"),
        ({"memory_swap_bytes": MIB}, "less than the memory limit"),
        ({"cpus": "all"}, "these are no limits"),
        ({"pids": None, "timeout_ns": 1}, "`timeout_ns` is no limit that can be changed"),
        ({}, "no limit is given"),
    ],
)
def test_limits_that_cannot_be_meant_touch_nothing(run: Run, limits: Any, words: str) -> None:
    applied = len(run.group.applied)

    answer = run.ask({"act": "update", "limits": limits})

    assert words in answer["error"]
    assert len(run.group.applied) == applied
    assert run.events == []


def test_a_default_stays_one_until_it_is_asked_for(run: Run) -> None:
    run.ask({"act": "update", "limits": {"cpus": 0.5}})
    assert {limit.name: limit.by_default for limit in run.limits.reports}["pids"]

    run.ask({"act": "update", "limits": {"pids": 4096}})

    assert not {limit.name: limit.by_default for limit in run.limits.reports}["pids"]


# --- letters


def test_a_request_from_inside_or_from_a_stranger_is_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.group.inside = (os.getpid(),)
    assert "nobody from inside" in run.ask({"act": "pause"})["error"]

    run.group.inside = ()
    monkeypatch.setattr(control_module.os, "geteuid", lambda: os.getuid() + 1)
    if os.getuid() != 0:  # root may do everything
        assert "root may do this" in run.ask({"act": "pause"})["error"]

    assert ("pause", run.me) not in run.watch.log


def test_after_too_many_strangers_nobody_listens(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_module, "_MOST_REFUSED", 2)
    run.group.inside = (os.getpid(),)
    run.ask({"act": "pause"})
    assert run.control.serve()
    run.ask({"act": "pause"})

    assert not run.control.serve()


def test_a_run_that_is_over_says_so(run: Run) -> None:
    run.watch.is_ended = True

    assert run.ask({"act": "pause"})["over"]
    assert run.watch.log == []


def test_a_request_that_nobody_waits_for_any_more_is_not_done_later(run: Run) -> None:
    letter = {"act": "pause", "until_ns": time.monotonic_ns() - 1}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(json.dumps(letter).encode(), b"\0" + run.name)

    assert run.control.serve()
    assert run.watch.log == []


@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ).map(lambda plain: json.dumps(plain).encode()[:4000])
)
def test_any_letter_is_answered_by_one_error(data: bytes) -> None:
    one = Run()
    try:
        answer = one.ask(data)
    finally:
        os.close(one.fd)

    assert answer["error"] == "its supervisor does not know this request"
    assert one.watch.log == one.events == []
