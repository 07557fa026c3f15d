"""Gates: a figure above its bound is told, and so is one that nobody has measured."""

from __future__ import annotations

from sandbox.analysis.gates import Gates, failed_gates

MIB = 1 << 20


def test_what_is_at_its_bound_passes() -> None:
    gates = Gates(peak_bytes=64 * MIB, time_ns=2 * 10**9, cpu_time_ns=10**9)

    assert not failed_gates(gates, peak_bytes=64 * MIB, wall_ns=2 * 10**9, cpu_time_usec=1_000_000)


def test_each_figure_above_its_bound_is_a_sentence_with_both() -> None:
    gates = Gates(peak_bytes=64 * MIB, time_ns=2 * 10**9, cpu_time_ns=10**9)

    assert failed_gates(gates, peak_bytes=65 * MIB, wall_ns=3 * 10**9, cpu_time_usec=1_500_000) == (
        "the memory peak of 65 MiB is above --max-peak 64 MiB",
        "the wall time of 3.00 s is above --max-time 2.00 s",
        "the CPU time of 1.50 s is above --max-cpu-time 1.00 s",
    )


def test_what_was_not_measured_does_not_pass() -> None:
    (failure,) = failed_gates(Gates(peak_bytes=MIB), peak_bytes=None, wall_ns=1)

    assert failure == "the memory peak was not measured, so --max-peak 1 MiB is not passed"


def test_without_a_bound_everything_passes() -> None:
    assert failed_gates(Gates(), peak_bytes=None, wall_ns=10**18) == ()
