"""Marks become phases; letters are read with distrust. No group, no process."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.engine import phases as phases_module
from sandbox.engine.phases import Phases, clean_name
from sandbox.errors import KernelError
from sandbox.kernel import libc
from sandbox.records.result import Phase, Split, Totals
from sandbox.sampling.sampler import Peak

STARTED_NS = 1_000


class FakeGroup:
    """Uses ten microseconds of CPU time between two splits; its peaks are given."""

    def __init__(self) -> None:
        self.used = 0
        self.peak: int | None = 7
        self.inside: tuple[int, ...] = ()
        self.is_gone = False

    def split(self) -> Split:
        if self.is_gone:
            raise KernelError("the group was removed")
        self.used += 10
        return Split(totals=Totals(cpu_usage_usec=self.used), memory_peak_bytes=self.peak)

    def pids(self) -> tuple[int, ...]:
        return self.inside


class FakeSampler:
    def __init__(self) -> None:
        self.reads = 0

    def read_now(self) -> None:
        self.reads += 1

    def split_peaks(self) -> dict[str, Peak]:
        return {"memory_current_bytes": Peak(3, 0), "pids": Peak(2, 0)}


class FakeEnergy:
    """A joule a reading."""

    def __init__(self) -> None:
        self.joules = 0

    def read(self) -> None:
        self.joules += 1

    def add_to(self, totals: Totals) -> Totals:
        from sandbox.records.light import replace

        return replace(totals, energy_uj=self.joules * 1_000_000)


class Run:
    """A supervisor's side, and a way to send to it."""

    def __init__(self) -> None:
        self.name = uuid.uuid4().hex.encode()
        self.fd = libc.open_mailbox(self.name)
        self.group = FakeGroup()
        self.sampler = FakeSampler()
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.now_ns = STARTED_NS
        self.uids = {os.geteuid()}
        self.energy: FakeEnergy | None = None
        self._phases: Phases | None = None

    @property
    def phases(self) -> Phases:
        if self._phases is None:
            parts: Any = {"group": self.group, "sampler": self.sampler, "energy": self.energy}
            self._phases = Phases(
                fd=self.fd,
                emit=lambda kind, detail: self.events.append((kind, detail)),
                started_ns=STARTED_NS,
                uids=self.uids,
                clock=self.clock,
                **parts,
            )
        return self._phases

    def clock(self) -> int:
        self.now_ns += 100
        return self.now_ns

    def send(self, data: bytes) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(data, b"\0" + self.name)

    def ask(self, data: bytes) -> str:
        """Send, serve, and return the answer."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(5)
            sender.bind("")
            sender.sendto(data, b"\0" + self.name)
            self.phases.serve()
            return sender.recv(1024).decode()

    def finish(self) -> tuple[Phase, ...]:
        return self.phases.finish(Totals(cpu_usage_usec=100), self.now_ns + 50)


@pytest.fixture
def run() -> Iterator[Run]:
    one = Run()
    yield one
    os.close(one.fd)


def test_a_run_without_marks_has_no_phases(run: Run) -> None:
    assert run.phases.serve()
    assert run.finish() == ()
    assert run.phases.problems() == ()


def test_marks_split_a_run_from_its_start_to_its_end(run: Run) -> None:
    run.send(b"warm-up")
    run.send(b"infer")
    assert run.phases.serve()

    start, warm_up, infer = run.finish()

    assert (start.name, start.started_ns, start.wall_ns) == ("start", STARTED_NS, 100)
    assert (warm_up.name, warm_up.started_ns, warm_up.wall_ns) == ("warm-up", STARTED_NS + 100, 100)
    assert (infer.name, infer.started_ns, infer.wall_ns) == ("infer", STARTED_NS + 200, 50)
    assert [phase.totals.cpu_usage_usec for phase in (start, warm_up, infer)] == [10, 10, 80]
    assert start.totals.memory_peak_bytes == 7
    assert start.totals.memory_peak_source == "kernel"
    assert run.sampler.reads == 2


def test_each_mark_is_an_event(run: Run) -> None:
    run.send(b"infer")
    run.phases.serve()

    assert run.events == [("mark", {"name": "infer", "phase": 1, "since_start_ns": 100})]


def test_samples_stand_in_where_the_kernel_cannot_start_a_peak_anew(run: Run) -> None:
    run.group.peak = None
    run.send(b"infer")
    run.phases.serve()

    for phase in run.finish():
        assert phase.totals.memory_peak_bytes == 3
        assert phase.totals.memory_peak_source == "sampled"
        assert phase.totals.pids_peak == 2


def test_energy_is_split_too(run: Run) -> None:
    run.energy = FakeEnergy()
    run.send(b"infer")
    run.phases.serve()

    ended = run.phases.finish(Totals(energy_uj=5_000_000), run.now_ns)

    assert [phase.totals.energy_uj for phase in ended] == [1_000_000, 4_000_000]


def test_a_group_that_is_gone_ends_the_last_phase_by_samples(run: Run) -> None:
    run.send(b"infer")
    run.phases.serve()
    run.group.is_gone = True

    *_, last = run.finish()

    assert (last.totals.memory_peak_bytes, last.totals.memory_peak_source) == (3, "sampled")


def test_a_mark_when_the_group_is_gone_is_refused(run: Run) -> None:
    run.group.is_gone = True

    assert run.ask(b"late") == "the group was removed"
    assert run.finish() == ()


# --- distrust


def test_who_asks_is_answered_and_who_does_not_is_not(run: Run) -> None:
    assert run.ask(b"infer") == "taken"
    assert "needs a name" in run.ask(b"  \n ")
    run.send(b"quiet")
    assert run.phases.serve()


def test_strangers_are_refused_unless_they_are_inside(run: Run) -> None:
    run.uids = {12345}
    assert "only the run itself" in run.ask(b"intrusion")
    assert run.finish() == ()

    run.group.inside = (os.getpid(),)
    assert run.ask(b"own") == "taken"


def test_too_many_marks_end_the_listening_and_are_told(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phases_module, "MOST_PHASES", 3)
    assert run.ask(b"one") == run.ask(b"two") == "taken"
    assert "at most" in run.ask(b"three")

    assert not run.phases.serve()
    assert [phase.name for phase in run.finish()] == ["start", "one", "two"]
    assert [problem.code for problem in run.phases.problems()] == ["too_many_marks"]


def test_even_refused_letters_are_read_only_so_often(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phases_module, "_MOST_LETTERS", 4)
    for _ in range(3):
        run.send(b"")
        assert run.phases.serve()
    run.send(b"")

    assert not run.phases.serve()


def test_a_flood_is_served_in_small_parts(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases_module, "_LETTERS_AT_ONCE", 2)
    for index in range(5):
        run.send(b"%d" % index)

    run.phases.serve()

    assert len(run.events) == 2


def test_a_long_letter_is_cut(run: Run) -> None:
    run.send(b"x" * 60_000)
    run.phases.serve()

    assert len(run.finish()[1].name) == 120


@given(st.binary(max_size=300))
def test_a_name_is_one_printable_line_whatever_was_sent(data: bytes) -> None:
    name = clean_name(data)

    assert name.isprintable()
    assert len(name) <= 120
    assert name == name.strip()
