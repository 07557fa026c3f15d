"""Why one repeat took longer: each cause from the series that shows it, with a hint."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.analysis.outliers import explain_outliers
from sandbox.records.benchmark import Repeat
from sandbox.records.result import Outcome

MS = 1_000_000


def repeat(wall_ms: float, **changes: Any) -> Repeat:
    plain: dict[str, Any] = {
        "run_id": "5f0c9a1be27d",
        "outcome": Outcome.EXITED,
        "exit_code": 0,
        "wall_ns": int(wall_ms * MS),
        "io_read_bytes": 0,
        "cpu_waited_usec": 100,
        "memory_waited_usec": 0,
        "io_waited_usec": 0,
        "throttled_ratio": 0.1,
    }
    return Repeat(**{**plain, **changes})


def around(odd: Repeat, place: int = 0) -> list[Repeat]:
    usual = [repeat(10 + index / 10) for index in range(6)]
    return [*usual[:place], odd, *usual[place:]]


@pytest.mark.parametrize(
    ("changes", "words", "hint"),
    [
        ({"io_read_bytes": 64 << 20}, "cold page cache: it read 64 MiB more", "--warmup"),
        ({"disturbances": {"steal": "the hypervisor gave 9 %"}}, "the hypervisor gave", "machine"),
        ({"disturbances": {"other_load": "others kept 1 CPU"}}, "others kept", "--cpuset-cpus"),
        ({"throttled_ratio": 0.9}, "throttled in 80% of the periods more", "--cpus"),
        ({"memory_waited_usec": 20_000}, "waited for memory 50% of its time", "--memory"),
        ({"io_waited_usec": 20_000}, "waited for I/O 50% of its time", "--warmup"),
        ({"cpu_waited_usec": 20_000}, "waited for a CPU 49% of its time", "--cpuset-cpus"),
    ],
    ids=["cold", "steal", "load", "throttled", "memory", "io", "cpu"],
)
def test_the_cause_is_what_differs(changes: dict[str, Any], words: str, hint: str) -> None:
    (found,) = explain_outliers(around(repeat(40, **changes)))

    assert found.place == 0
    assert found.cause is not None
    assert words in found.cause
    assert hint in found.hint


def test_what_disturbed_all_runs_is_not_the_cause_of_one() -> None:
    steal = {"steal": "the hypervisor gave 9 %"}
    repeats = [repeat(10 + index / 10, disturbances=steal) for index in range(6)]

    (found,) = explain_outliers([*repeats, repeat(40, disturbances=steal)])

    assert found.cause is None


def test_without_a_difference_no_cause_is_made_up() -> None:
    (first,) = explain_outliers(around(repeat(40)))
    (later,) = explain_outliers(around(repeat(40), place=3))

    assert (first.cause, later.cause) == (None, None)
    assert "--warmup" in first.hint
    assert "--runs" in later.hint


def test_one_that_was_faster_is_not_explained_by_what_slows_down() -> None:
    (found,) = explain_outliers(around(repeat(1, io_read_bytes=64 << 20)))

    assert found.cause is None
    assert "the others" in found.hint


def test_even_repeats_have_no_outliers() -> None:
    assert explain_outliers([repeat(10 + index / 10) for index in range(6)]) == ()


def test_a_host_that_tells_nothing_gives_no_cause() -> None:
    names = ("io_read_bytes", "cpu_waited_usec", "memory_waited_usec", "io_waited_usec")
    blind = dict.fromkeys((*names, "throttled_ratio"))
    repeats = [repeat(10 + index / 10, **blind) for index in range(6)]

    (found,) = explain_outliers([repeat(40, **blind), *repeats])

    assert found.cause is None
