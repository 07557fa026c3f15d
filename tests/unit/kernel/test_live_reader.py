"""Reading a live group by its files: captured ones of a v2 host and of a hybrid one."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.errors import KernelError
from sandbox.kernel.live_network import NOBODY, SHARED
from sandbox.kernel.live_parts import HostCpu, list_members
from sandbox.kernel.live_reader import LiveReader, read_host_memory, read_limits, read_memory_limit
from sandbox.kernel.roots import Roots
from sandbox.kernel.run_groups import GroupPaths
from sandbox.records.result import DeviceIo, Pressure
from sandbox.records.stats import NetworkIo

FIXTURES = Path(__file__).parents[2] / "fixtures" / "kernel"
V1 = ("cpu", "cpuset", "memory", "blkio", "pids")
PID, OTHER_PID = 77, 78

Open = Callable[..., LiveReader]


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    """A host made of directories; its groups hold one process with a network of its own."""
    proc = tmp_path / "proc"
    shutil.copytree(FIXTURES / "v2" / "proc", proc)
    for name, namespace in (("self", "net:[1]"), ("1", "net:[1]"), (str(PID), "net:[2]")):
        (proc / name / "ns").mkdir(parents=True)
        (proc / name / "ns" / "net").symlink_to(namespace)
    (proc / str(PID) / "net").mkdir()
    shutil.copy(FIXTURES / "hybrid/proc/net_dev", proc / str(PID) / "net" / "dev")
    return Roots(cgroup=tmp_path / "cgroup", proc=proc, sys=tmp_path / "sys")


@pytest.fixture
def unified(tmp_path: Path) -> GroupPaths:
    group = tmp_path / "cgroup" / "group"
    shutil.copytree(FIXTURES / "v2" / "cgroup" / "capture", group)
    (group / "cgroup.procs").write_text(f"{PID}\n")
    return GroupPaths(v2=group)


@pytest.fixture
def hybrid(tmp_path: Path) -> GroupPaths:
    top = tmp_path / "cgroup"
    shutil.copytree(FIXTURES / "hybrid" / "run", top, dirs_exist_ok=True)
    for name in (*V1, "unified"):
        (top / name / "cgroup.procs").write_text("")
        (top / name / "main").mkdir(exist_ok=True)  # git keeps no empty directories
        (top / name / "main" / "cgroup.procs").write_text(f"{PID}\n")
    return GroupPaths(v2=top / "unified", v1={name: top / name for name in V1})


@pytest.fixture
def open_reader(roots: Roots) -> Iterator[Open]:
    opened: list[LiveReader | HostCpu] = []

    def open_one(groups: GroupPaths, *, is_whole: bool = True) -> LiveReader:
        host = HostCpu(roots.proc)
        reader = LiveReader(groups, host, roots, is_whole=is_whole)
        opened.extend([host, reader])
        return reader

    yield open_one
    for one in opened:
        one.close()


def test_a_v2_group_tells_everything(open_reader: Open, unified: GroupPaths) -> None:
    reader = open_reader(unified)

    now = reader.read()

    assert reader.cgroup_version == 2
    assert (now.cpu_usage_ns, now.cpu_user_ns) == (2_564_745_000, 778_068_000)
    assert (now.cpu_periods, now.cpu_throttled_periods) == (131, 127)
    assert now.cpu_throttled_ns == 10_074_963_000
    assert (now.host_cpu_ns, now.cpus_online) == (
        (548 + 0 + 3302 + 4416 + 28 + 0 + 532) * 10**7,
        2,
    )
    assert (now.memory_usage_bytes, now.memory_peak_bytes) == (21_495_808, 22_597_632)
    assert now.memory_stat is not None
    assert now.memory_stat["inactive_file"] == 147_456
    assert (now.memory_failures, now.swap_bytes) == (0, 0)
    assert (now.pids, now.processes) == (1, 1)
    assert now.cpu_pressure == Pressure(some_usec=9_042_294, full_usec=9_042_294)
    assert now.cpu_percpu_ns is None
    assert abs(now.utc_ns - now.time_ns) > 0
    assert reader.unavailable == {}


def test_a_hybrid_group_takes_memory_from_v1_and_cpu_time_from_v2(
    open_reader: Open, hybrid: GroupPaths
) -> None:
    reader = open_reader(hybrid)

    now = reader.read()

    assert reader.cgroup_version == 1
    assert now.cpu_usage_ns == 522_976_000
    assert (now.cpu_periods, now.cpu_throttled_ns) == (12, 128_733_649)
    assert (now.memory_usage_bytes, now.memory_peak_bytes) == (34_816_000, 53_952_512)
    assert now.memory_stat is not None
    assert now.memory_stat["total_inactive_anon"] == 33_902_592
    assert now.io is not None
    (disk,) = now.io
    assert (disk.device, disk.read_bytes, disk.write_bytes) == ("254:0", 1_048_576, 4_194_304)
    assert disk.read_ops > 0
    assert (now.pids, now.processes) == (4, 1)


def test_v1_s_own_count_of_cpu_time_comes_first(
    open_reader: Open, hybrid: GroupPaths, tmp_path: Path
) -> None:
    counted = tmp_path / "cgroup" / "cpuacct"
    counted.mkdir()
    (counted / "cpuacct.usage").write_text("123456789\n")
    (counted / "cpuacct.stat").write_text("user 7\nsystem 5\n")
    (counted / "cpuacct.usage_percpu").write_text("123000000 456789 \n")
    groups = GroupPaths(v2=hybrid.v2, v1={**hybrid.v1, "cpuacct": counted})

    now = open_reader(groups).read()

    assert now.cpu_usage_ns == 123_456_789
    assert now.cpu_percpu_ns == (123_000_000, 456_789)
    tick_ns = 10**9 // os.sysconf("SC_CLK_TCK")
    assert (now.cpu_user_ns, now.cpu_system_ns) == (7 * tick_ns, 5 * tick_ns)


@pytest.mark.parametrize("kind", ["unified", "hybrid"])
def test_docker_s_columns_take_few_files(
    open_reader: Open, kind: str, request: pytest.FixtureRequest
) -> None:
    groups = request.getfixturevalue(kind)
    whole, few = open_reader(groups).read(), open_reader(groups, is_whole=False).read()

    for name in ("cpu_usage_ns", "host_cpu_ns", "memory_usage_bytes", "pids", "io", "network"):
        assert getattr(few, name) == getattr(whole, name), name
    assert few.memory_stat is not None
    assert len(few.memory_stat) == 1
    assert (few.processes, few.cpu_pressure, few.memory_peak_bytes) == (None, None, None)


def test_the_limits_are_the_group_s_own(unified: GroupPaths, hybrid: GroupPaths) -> None:
    assert read_limits(unified) == {
        "memory_limit_bytes": 67_108_864,
        "swap_limit_bytes": read_limits(unified)["swap_limit_bytes"],
        "pids_limit": 64,
        "cpu_quota_usec": 20_000,
        "cpu_period_usec": 100_000,
        "cpus_allowed": read_limits(unified)["cpus_allowed"],
    }
    found = read_limits(hybrid)
    for groups in (unified, hybrid):
        alone = read_memory_limit(groups)
        assert alone == {"memory_limit_bytes": read_limits(groups)["memory_limit_bytes"]}
    assert (found["memory_limit_bytes"], found["swap_limit_bytes"]) == (67_108_864, 33_554_432)
    assert (found["cpu_quota_usec"], found["cpu_period_usec"]) == (50_000, 100_000)
    assert found["cpus_allowed"] == 2


def test_no_limit_is_none_in_either_s_words(unified: GroupPaths, hybrid: GroupPaths) -> None:
    assert unified.v2 is not None
    (unified.v2 / "memory.max").write_text("max\n")
    (unified.v2 / "cpu.max").write_text("max 100000\n")
    (hybrid.v1["memory"] / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (hybrid.v1["cpu"] / "cpu.cfs_quota_us").write_text("-1\n")

    for groups in (unified, hybrid):
        found = read_limits(groups)
        assert (found["memory_limit_bytes"], found["cpu_quota_usec"]) == (None, None)


def test_io_is_what_the_files_say_now(open_reader: Open, unified: GroupPaths) -> None:
    assert unified.v2 is not None
    file = unified.v2 / "io.stat"
    file.write_text("8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n253:0 \n")
    reader = open_reader(unified)
    disk = DeviceIo(device="8:0", read_bytes=1, write_bytes=2, read_ops=3, write_ops=4)
    assert reader.read().io == (disk,)

    with file.open("r+") as opened:
        opened.write("8:0 rbytes=9 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n253:0 \n")

    (disk_now,) = reader.read().io or ()
    assert disk_now.read_bytes == 9


def test_the_network_is_that_of_a_process_inside(open_reader: Open, unified: GroupPaths) -> None:
    network = open_reader(unified).read().network

    assert network is not None
    assert network
    assert all(isinstance(port, NetworkIo) and port.name != "lo" for port in network)
    (eth0,) = (port for port in network if port.name == "eth0")
    assert (eth0.rx_bytes, eth0.tx_packets) == (515_968_907, 7_397)
    assert (eth0.rx_errors, eth0.rx_dropped, eth0.tx_errors, eth0.tx_dropped) == (0, 0, 0, 0)


def test_the_host_s_network_is_said_to_be_shared(
    open_reader: Open, unified: GroupPaths, roots: Roots
) -> None:
    link = roots.proc / str(PID) / "ns" / "net"
    link.unlink()
    link.symlink_to("net:[1]")

    reader = open_reader(unified)

    assert reader.read().network == ()
    assert reader.unavailable == {"network": SHARED}


def test_a_network_that_cannot_be_found_is_absent(open_reader: Open, unified: GroupPaths) -> None:
    assert unified.v2 is not None
    (unified.v2 / "cgroup.procs").write_text(f"{OTHER_PID}\n")

    reader = open_reader(unified)

    assert reader.read().network is None
    assert reader.unavailable == {"network": NOBODY}


def test_a_network_is_looked_for_until_somebody_is_inside(
    open_reader: Open, unified: GroupPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert unified.v2 is not None
    now = [10**12]
    monkeypatch.setattr("time.monotonic_ns", lambda: now[0])
    (unified.v2 / "cgroup.procs").write_text("")
    reader = open_reader(unified)
    assert reader.read().network is None
    (unified.v2 / "cgroup.procs").write_text(f"{PID}\n")
    assert reader.read().network is None  # it was looked for a moment ago
    now[0] += 10**9

    assert reader.read().network
    assert reader.unavailable == {}


def test_what_a_group_lacks_is_absent_and_takes_nothing_with_it(
    open_reader: Open, unified: GroupPaths
) -> None:
    assert unified.v2 is not None
    for name in ("memory.current", "io.stat", "pids.current", "cpu.pressure", "memory.events"):
        (unified.v2 / name).unlink()
    (unified.v2 / "cpu.stat").write_text("usage_usec 5\nuser_usec 3\nsystem_usec 2\n")

    now = open_reader(unified).read()

    assert (now.memory_usage_bytes, now.io, now.pids, now.cpu_pressure) == (None,) * 4
    assert (now.cpu_usage_ns, now.cpu_periods, now.processes) == (5_000, None, 1)


def test_a_file_that_makes_no_sense_is_absent(open_reader: Open, unified: GroupPaths) -> None:
    assert unified.v2 is not None
    reader = open_reader(unified)
    for name in ("memory.current", "cpu.stat"):
        with (unified.v2 / name).open("r+") as file:
            file.write("?? ")

    now = reader.read()

    assert (now.memory_usage_bytes, now.cpu_usage_ns, now.pids) == (None, None, 1)


def test_a_group_that_was_removed_is_an_error(
    open_reader: Open, unified: GroupPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = open_reader(unified)

    def refuse(*_: object) -> bytes:
        raise OSError(errno.ENODEV, "removed")

    monkeypatch.setattr(os, "pread", refuse)

    with pytest.raises(KernelError) as caught:
        reader.read()

    assert caught.value.errno == errno.ENODEV


def test_too_many_open_files_are_said_and_not_taken_for_absence(
    open_reader: Open, unified: GroupPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "too many")

    open_reader(unified)
    host = HostCpu(Path("/proc"))
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        with pytest.raises(KernelError, match="too many files") as caught:
            LiveReader(unified, host, Roots(), is_whole=True)
    host.close()

    assert "ulimit -n" in str(caught.value.hint)


def test_what_docker_subtracts_is_read_once_a_second_or_when_memory_changes(
    open_reader: Open, unified: GroupPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert unified.v2 is not None
    now = [10**12]
    monkeypatch.setattr("time.monotonic_ns", lambda: now[0])
    reader = open_reader(unified, is_whole=False)
    before = reader.read().memory_stat

    def say(name: str, text: str) -> None:
        assert unified.v2 is not None
        (unified.v2 / name).write_text(text)

    say("memory.stat", "inactive_file 1\n")
    assert reader.read().memory_stat == before
    now[0] += 10**9
    assert reader.read().memory_stat == {"inactive_file": 1}
    say("memory.stat", "inactive_file 2\n")
    say("memory.current", str(2 * 21_495_808))
    assert reader.read().memory_stat == {"inactive_file": 2}


def test_nothing_is_opened_to_us_that_was_closed(tmp_path: Path) -> None:
    inner = tmp_path / "group" / "closed"
    inner.mkdir(parents=True)
    (tmp_path / "group" / "cgroup.procs").write_text("5\n0\n7\n")
    (inner / "cgroup.procs").write_text("9\n")
    inner.chmod(0)

    try:
        found = set(list_members(tmp_path / "group"))
        mode = inner.stat().st_mode & 0o777
    finally:
        inner.chmod(0o700)

    assert {5, 7} <= found
    assert mode == 0


def test_the_host_s_cpu_time_is_read_once_for_many_groups(
    roots: Roots, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = HostCpu(roots.proc)
    reads = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda *args: (reads.append(args), pread(*args))[1])
    monkeypatch.setattr("time.monotonic_ns", lambda: 10**12)

    first, second = host.read(), host.read()

    host.close()
    assert first == second
    assert len(reads) == 1


def test_the_host_s_memory_is_that_of_meminfo(roots: Roots) -> None:
    assert read_host_memory(roots) == 4_007_132 * 1024

    with pytest.raises(KernelError, match="meminfo"):
        read_host_memory(Roots(proc=roots.proc / "none"))
