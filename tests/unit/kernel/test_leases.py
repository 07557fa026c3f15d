"""Leases of CPUs on hosts made of directories: alike, whole cores first, one holder each."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.errors import HostError
from sandbox.kernel.leases import cpu_kinds, is_leased, lease_cpus, lease_cpus_soon
from sandbox.kernel.roots import Roots

Cpu = Callable[..., None]


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    place = tmp_path / "top/run/lock"
    place.mkdir(parents=True)
    place.chmod(0o1777)
    return Roots(sys=tmp_path / "sys", top=tmp_path / "top")


@pytest.fixture
def cpu(roots: Roots) -> Cpu:
    def make(number: int, *, siblings: str = "", capacity: int | None = None) -> None:
        directory = roots.sys / f"devices/system/cpu/cpu{number}"
        (directory / "topology").mkdir(parents=True)
        if siblings:
            (directory / "topology/thread_siblings_list").write_text(f"{siblings}\n")
        if capacity is not None:
            (directory / "cpu_capacity").write_text(f"{capacity}\n")

    return make


def test_whole_cores_come_first(roots: Roots, cpu: Cpu) -> None:
    for number in range(4):
        cpu(number, siblings=f"{number % 2},{number % 2 + 2}")

    with lease_cpus(2, range(4), roots) as first:
        assert first.cpus == (0, 1)
        with lease_cpus(2, range(4), roots) as second:
            assert second.cpus == (2, 3)
    with lease_cpus(3, range(4), roots) as three:
        assert three.cpus == (0, 1, 2)


def test_a_lease_is_of_cpus_that_are_alike_the_fast_ones_first(roots: Roots, cpu: Cpu) -> None:
    for number, capacity in enumerate((446, 446, 446, 1024, 1024)):
        cpu(number, capacity=capacity)

    with lease_cpus(2, range(5), roots) as fast:
        assert fast.cpus == (3, 4)
        with lease_cpus(2, range(5), roots) as slow:
            assert slow.cpus == (0, 1)
            with pytest.raises(HostError, match=r"2 CPUs of one kind were .* leased CPU 0-1,3-4"):
                lease_cpus(2, range(5), roots)
    with pytest.raises(HostError, match="only 3 may be used here") as caught:
        lease_cpus(4, range(5), roots)
    assert "auto:3" in (caught.value.hint or "")


def test_one_holder_each_and_none_after_the_end(roots: Roots) -> None:
    lease = lease_cpus(1, [7], roots)
    assert is_leased(7, roots)
    with pytest.raises(HostError, match="1 CPU of one kind was asked for"):
        lease_cpus(1, [7], roots)

    lease.close()
    lease.close()

    assert not is_leased(7, roots)
    assert not is_leased(8, roots)
    lease_cpus(1, [7], roots).close()


def test_what_could_not_be_taken_whole_is_given_back(roots: Roots) -> None:
    with lease_cpus(1, [1], roots):
        with pytest.raises(HostError):
            lease_cpus(2, [0, 1], roots)
        assert not is_leased(0, roots)


def test_whoever_waits_gets_it_when_it_is_free(roots: Roots) -> None:
    lease = lease_cpus(1, [0], roots)
    timer = threading.Timer(0.1, lease.close)
    timer.start()

    with lease_cpus_soon(1, [0], roots, within_sec=20) as mine:
        assert mine.cpus == (0,)
    timer.join()

    with lease_cpus(1, [0], roots), pytest.raises(HostError, match="leased CPU 0"):
        lease_cpus_soon(1, [0], roots, within_sec=0.1)
    with pytest.raises(HostError, match="only 1 may be used"):
        lease_cpus_soon(2, [0], roots)


def test_a_link_or_a_pipe_in_the_place_of_a_lock_is_not_followed(
    roots: Roots, tmp_path: Path
) -> None:
    (tmp_path / "precious").write_text("")
    (roots.top / "run/lock/sandbox-cpu-0").symlink_to(tmp_path / "precious")
    os.mkfifo(roots.top / "run/lock/sandbox-cpu-1")

    for number in (0, 1):
        with pytest.raises(HostError, match="CPUs cannot be leased"):
            lease_cpus(1, [number], roots)


def test_a_host_without_a_place_for_all_says_so(tmp_path: Path) -> None:
    roots = Roots(sys=tmp_path, top=tmp_path)
    (tmp_path / "tmp").mkdir(mode=0o755)

    with pytest.raises(HostError, match="can be written by every user") as caught:
        lease_cpus(1, [0], roots)

    assert "--cpuset-cpus 2,3" in (caught.value.hint or "")


def test_a_host_that_tells_nothing_has_cpus_that_are_all_alike(roots: Roots) -> None:
    kinds = cpu_kinds([0, 1], roots)

    assert {one.capacity for one in kinds} == {0}
    assert [one.siblings for one in kinds] == [(0,), (1,)]
