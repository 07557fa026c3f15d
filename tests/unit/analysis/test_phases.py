"""What each phase used, from totals between marks."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.analysis.phases import phase_totals
from sandbox.records.light import replace
from sandbox.records.result import DeviceIo, EnergyUse, NetworkIo, Pressure, Totals

NO_PEAKS = (None, None)
COUNTERS = (
    "cpu_usage_usec",
    "cpu_user_usec",
    "cpu_system_usec",
    "cpu_periods",
    "cpu_throttled_periods",
    "cpu_throttled_usec",
    "oom_events",
    "oom_kills",
    "limit_hits",
    "pids_refused",
    "energy_uj",
)


def disk(name: str, size: int, requests: int = 1) -> DeviceIo:
    return DeviceIo(device=name, read_bytes=size, write_bytes=0, read_ops=requests, write_ops=0)


def port(name: str, value: int) -> NetworkIo:
    return NetworkIo(name=name, rx_bytes=value, tx_bytes=2 * value, rx_packets=value)


def whole(value: int) -> Totals:
    """Totals in which every counter has the same value."""
    return Totals(
        **dict.fromkeys(COUNTERS, value),  # type: ignore[arg-type]
        memory_peak_bytes=value,
        memory_peak_source="kernel",
        swap_peak_bytes=value,
        pids_peak=value,
        io=(disk("8:0 sda", value, value),),
        network=(port("eth0", value),),
        cpu_pressure=Pressure(some_usec=value, full_usec=value),
        memory_pressure=Pressure(some_usec=value, full_usec=None),
        io_pressure=Pressure(some_usec=value, full_usec=value),
        energy=(EnergyUse(domain="package-0", energy_uj=value),),
    )


def test_the_first_phase_is_what_was_used_until_the_first_mark() -> None:
    assert phase_totals(None, whole(7), peaks=(7, 7), sampled={}) == whole(7)


def test_a_later_phase_is_the_difference() -> None:
    got = phase_totals(whole(10), whole(35), peaks=(5, 6), sampled={"pids": 3})

    for name in COUNTERS:
        assert getattr(got, name) == 25, name
    assert got.io == (disk("8:0 sda", 25, 25),)
    assert got.network == (port("eth0", 25),)
    assert got.cpu_pressure == Pressure(some_usec=25, full_usec=25)
    assert got.memory_pressure == Pressure(some_usec=25, full_usec=None)
    assert got.energy == (EnergyUse(domain="package-0", energy_uj=25),)
    assert (got.memory_peak_bytes, got.memory_peak_source, got.swap_peak_bytes) == (5, "kernel", 6)


def test_no_field_of_the_totals_is_forgotten() -> None:
    got = phase_totals(whole(10), whole(35), peaks=(5, 6), sampled={})

    assert not [field.name for field in fields(Totals) if getattr(got, field.name) is None]


def test_what_a_host_cannot_give_is_absent_in_phases_too() -> None:
    got = phase_totals(Totals(), Totals(), peaks=NO_PEAKS, sampled={})

    assert got == Totals()


@pytest.mark.parametrize("lacking", ["before", "after"])
def test_a_reading_that_lacks_at_one_end_makes_no_phase(lacking: str) -> None:
    before, after = (Totals(), whole(9)) if lacking == "before" else (whole(9), Totals())

    got = phase_totals(before, after, peaks=NO_PEAKS, sampled={})

    assert got.cpu_usage_usec is None
    assert got.io is None
    assert got.network is None
    assert got.cpu_pressure is None
    assert got.energy is None


# --- peaks


def test_a_peak_of_the_run_that_rose_was_reached_in_this_phase() -> None:
    sampled = {"memory_current_bytes": 20, "pids": 20}

    got = phase_totals(whole(10), whole(35), peaks=NO_PEAKS, sampled=sampled)

    assert (got.memory_peak_bytes, got.memory_peak_source) == (35, "kernel")
    assert (got.swap_peak_bytes, got.pids_peak) == (35, 35)


def test_a_peak_of_the_run_that_stood_says_nothing_so_samples_do() -> None:
    sampled = {"memory_current_bytes": 20, "pids": 4}

    got = phase_totals(whole(35), whole(35), peaks=NO_PEAKS, sampled=sampled)

    assert (got.memory_peak_bytes, got.memory_peak_source) == (20, "sampled")
    assert (got.swap_peak_bytes, got.pids_peak) == (None, 4)


def test_a_sampled_peak_of_the_run_is_never_called_exact() -> None:
    after = replace(whole(35), memory_peak_source="sampled")

    got = phase_totals(whole(10), after, peaks=NO_PEAKS, sampled={"memory_current_bytes": 20})

    assert (got.memory_peak_bytes, got.memory_peak_source) == (20, "sampled")


def test_without_any_sample_a_sampled_peak_of_the_run_stands_in() -> None:
    after = Totals(memory_peak_bytes=9, memory_peak_source="sampled")

    got = phase_totals(None, after, peaks=NO_PEAKS, sampled={})

    assert (got.memory_peak_bytes, got.memory_peak_source) == (9, "sampled")


# --- devices


def test_a_disk_that_was_not_used_in_a_phase_is_not_listed() -> None:
    before = Totals(io=(disk("8:0 sda", 5),))
    after = Totals(io=(disk("8:0 sda", 5), disk("8:16 sdb", 7)))

    got = phase_totals(before, after, peaks=NO_PEAKS, sampled={})

    assert got.io == (disk("8:16 sdb", 7),)


def test_sums_that_lag_behind_never_make_a_negative_use() -> None:
    got = phase_totals(
        Totals(cpu_usage_usec=12), Totals(cpu_usage_usec=10), peaks=NO_PEAKS, sampled={}
    )

    assert got.cpu_usage_usec == 0


@given(st.lists(st.integers(0, 1 << 50), min_size=1, max_size=12))
def test_phases_add_up_to_the_run_and_its_peak_is_the_largest_of_theirs(steps: list[int]) -> None:
    marks = sorted(steps)
    befores: list[Totals | None] = [None, *(whole(mark) for mark in marks[:-1])]
    phases = [
        phase_totals(before, whole(mark), peaks=NO_PEAKS, sampled={"memory_current_bytes": 0})
        for before, mark in zip(befores, marks, strict=True)
    ]

    assert sum(phase.cpu_usage_usec or 0 for phase in phases) == marks[-1]
    assert sum(device.read_bytes for phase in phases for device in phase.io or ()) == marks[-1]
    assert max(phase.memory_peak_bytes or 0 for phase in phases) == marks[-1]
