"""The grammar of control files: captured files, generated ones, and bytes that are neither."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import KernelError
from sandbox.kernel import parse
from sandbox.units import UNLIMITED, format_cpu_list

FIXTURES = Path(__file__).parents[2] / "fixtures" / "kernel"
V2 = FIXTURES / "v2"
GROUP = V2 / "cgroup" / "capture"

PARSERS: tuple[Callable[[Any], Any], ...] = (
    parse.parse_number,
    parse.parse_limit,
    parse.parse_cpu_max,
    parse.parse_flat,
    lambda data: parse.find_flat(data, ("some", "cpu")),
    parse.parse_io_stat,
    parse.parse_blkio,
    parse.parse_pressure,
    parse.parse_cpuset,
    parse.parse_pids,
    parse.parse_controllers,
    parse.parse_own_groups,
    parse.parse_cgroup_mounts,
)
NUMBERS = st.integers(0, (1 << 63) - 1)
KEYS = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=20)
DEVICES = st.builds("{}:{}".format, st.integers(0, 511), st.integers(0, 1 << 20))
# Bytes that look like what the kernel writes reach further into a parser than any bytes.
LIKELY = st.lists(
    st.sampled_from(
        [b"8:0", b"some", b"full", b"total=", b"max", b"-1", b" ", b"\n", b":", b"=", b"Total",
         b"Read", b"/", b"0", b"17", b"rbytes=1", b" - cgroup", b"cgroup2", b"rw", b",", b"-",
         b"\\040", b"\xff", b"cpu", b"18446744073709551616", b"1_0", b"\xd9\xa1"]
    )
).map(b"".join)  # fmt: skip


def refusal(parser: Callable[[Any], Any], data: object) -> str:
    """Return how a parser refuses, or nothing; any other error than the documented one escapes."""
    try:
        parser(data)
    except KernelError as error:
        return f"{error} (hint: {error.hint})"
    return ""


@pytest.mark.parametrize("parser", PARSERS)
@given(data=st.one_of(st.binary(), LIKELY, st.text()))
def test_anything_is_understood_or_refused_with_one_error(
    parser: Callable[[Any], Any], data: bytes | str
) -> None:
    refused = refusal(parser, data)

    assert not refused or ("cannot understand" in refused and "please report" in refused)


@given(NUMBERS)
def test_a_number_comes_back(number: int) -> None:
    assert parse.parse_number(b"%d\n" % number) == number
    assert parse.parse_number(f"{number}\n") == number


@pytest.mark.parametrize(
    "text", ["", "\n", "-1", "+1", "1 2", "0x1", "1_000", "1.5", "\u0661", "max"]
)
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(KernelError, match="a number"):
        parse.parse_number(text)


@pytest.mark.parametrize(
    "text",
    ["max\n", "-1\n", "9223372036854771712\n", "9223372036854710272", "18446744073709551615"],
)
def test_no_limit_is_unlimited_however_the_kernel_writes_it(text: str) -> None:
    assert parse.parse_limit(text) == UNLIMITED


@given(st.integers(0, (1 << 62) - 1))
def test_a_limit_comes_back(limit: int) -> None:
    assert parse.parse_limit(f"{limit}\n") == limit


@given(st.one_of(st.none(), st.integers(1_000, 1 << 40)), st.integers(1_000, 1_000_000))
def test_cpu_max_is_a_quota_and_a_period(quota: int | None, period: int) -> None:
    text = f"{'max' if quota is None else quota} {period}\n"

    assert parse.parse_cpu_max(text) == (UNLIMITED if quota is None else quota, period)


def test_a_quota_without_a_period_is_refused() -> None:
    with pytest.raises(KernelError, match=r"cpu\.max"):
        parse.parse_cpu_max("max\n")


@given(st.dictionaries(KEYS, NUMBERS))
def test_flat_keyed_files_come_back(values: dict[str, int]) -> None:
    data = "".join(f"{key} {value}\n" for key, value in values.items())

    assert parse.parse_flat(data) == parse.parse_flat(data.encode()) == values


@given(values=st.dictionaries(KEYS, NUMBERS), asked=st.lists(KEYS, max_size=3))
def test_a_few_keys_are_found_as_if_all_were_read(values: dict[str, int], asked: list[str]) -> None:
    data = "".join(f"{key} {value}\n" for key, value in values.items())
    keys = [*asked, *list(values)[-2:]]

    assert parse.find_flat(data, keys) == {key: values[key] for key in keys if key in values}
    assert parse.find_flat(data.rstrip("\n"), keys) == parse.find_flat(data.encode(), keys)


@pytest.mark.parametrize("name", ["cpu.stat", "memory.stat", "memory.events", "cgroup.events"])
def test_captured_flat_files_are_understood(name: str) -> None:
    values = parse.parse_flat((GROUP / name).read_bytes())

    assert len(values) == len((GROUP / name).read_text().splitlines())


def test_a_captured_cpu_stat_says_what_it_says() -> None:
    values = parse.parse_flat((GROUP / "cpu.stat").read_bytes())

    assert values["usage_usec"] == 2_564_745
    assert values["nr_throttled"] == 127
    assert "nice_usec" not in values


def test_a_v1_oom_control_is_a_flat_file() -> None:
    values = parse.parse_flat("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")

    assert values["oom_kill"] == 2


@given(st.dictionaries(DEVICES, st.dictionaries(KEYS, NUMBERS, max_size=6), max_size=5))
def test_io_stat_comes_back(devices: dict[str, dict[str, int]]) -> None:
    data = "".join(
        " ".join([device, *(f"{key}={value}" for key, value in values.items())]) + "\n"
        for device, values in devices.items()
    )

    assert parse.parse_io_stat(data) == devices


def test_devices_without_io_do_not_swallow_those_that_follow() -> None:
    data = "7:7 7:6 253:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n8:0 \n"

    assert parse.parse_io_stat(data) == {
        "7:7": {},
        "7:6": {},
        "253:0": {"rbytes": 1, "wbytes": 2, "rios": 3, "wios": 4, "dbytes": 0, "dios": 0},
        "8:0": {},
    }


def test_the_cost_models_fractions_are_left_out() -> None:
    assert parse.parse_io_stat("8:0 rbytes=1 cost.vrate=100.00\n") == {"8:0": {"rbytes": 1}}


@pytest.mark.parametrize("text", ["rbytes=1\n", "8:0 rbytes\n", "8:0 =1\n"])
def test_a_broken_io_stat_is_refused(text: str) -> None:
    with pytest.raises(KernelError, match=r"io\.stat"):
        parse.parse_io_stat(text)


@given(
    st.dictionaries(
        DEVICES,
        st.dictionaries(
            st.sampled_from(["Read", "Write", "Sync", "Async", "Discard", "Total"]),
            NUMBERS,
            min_size=1,
        ),
    )
)
def test_blkio_comes_back_without_the_closing_total(devices: dict[str, dict[str, int]]) -> None:
    data = "".join(
        f"{device} {operation} {value}\n"
        for device, values in devices.items()
        for operation, value in values.items()
    )

    assert parse.parse_blkio(f"{data}Total 123\n") == devices


@pytest.mark.parametrize("text", ["8:0 Read\n", "Total\n", "Total x\n", "sda Read 1\n", "\n"])
def test_a_broken_blkio_file_is_refused(text: str) -> None:
    with pytest.raises(KernelError, match="blkio"):
        parse.parse_blkio(text)


@given(st.one_of(st.none(), NUMBERS), st.one_of(st.none(), NUMBERS))
def test_pressure_comes_back(some: int | None, full: int | None) -> None:
    lines = [
        f"{kind} avg10=36.78 avg60=12.66 avg300=2.95 total={total}\n"
        for kind, total in (("some", some), ("full", full))
        if total is not None
    ]

    assert parse.parse_pressure("".join(lines)) == (some, full)


def test_a_captured_pressure_file_is_understood() -> None:
    data = (GROUP / "cpu.pressure").read_bytes()

    assert parse.parse_pressure(data) == (9_042_294, 9_042_294)


@given(st.sets(st.integers(0, 8_191), max_size=60))
def test_cpu_lists_come_back(cpus: set[int]) -> None:
    assert parse.parse_cpuset(format_cpu_list(cpus) + "\n") == tuple(sorted(cpus))


@given(st.lists(st.integers(1, 1 << 22), unique=True))
def test_processes_come_back(pids: list[int]) -> None:
    assert parse.parse_pids("".join(f"{pid}\n" for pid in pids)) == tuple(pids)


def test_processes_of_another_pid_namespace_are_left_out() -> None:
    assert parse.parse_pids("0\n0\n17\n") == (17,)


def test_controllers_are_words() -> None:
    data = (GROUP / "cgroup.controllers").read_bytes()

    assert parse.parse_controllers(data) == {"cpuset", "cpu", "io", "memory", "pids"}
    assert parse.parse_controllers("\n") == frozenset()


def test_our_groups_on_a_hybrid_host() -> None:
    groups = parse.parse_own_groups((FIXTURES / "hybrid/proc/self/cgroup").read_bytes())

    assert groups[""] == "/"
    assert groups["memory"] == "/jobs/job-7"
    assert groups["name=systemd"] == "/"


def test_controllers_that_are_mounted_together_have_one_group() -> None:
    groups = parse.parse_own_groups("4:cpu,cpuacct:/a:b c\n0::/../x (deleted)\n")

    assert groups == {"cpu": "/a:b c", "cpuacct": "/a:b c", "": "/../x (deleted)"}


PATHS = st.text(
    st.characters(codec="utf-8", exclude_characters="\n\0", exclude_categories=("Cs",)), max_size=20
).map(lambda name: f"/{name}")


@given(PATHS)
def test_a_group_may_have_any_name(path: str) -> None:
    assert parse.parse_own_groups(f"0::{path}\n".encode()) == {"": path}


@pytest.mark.parametrize("text", ["0:/\n", "x::/\n", "0::\n", "0::relative\n"])
def test_a_broken_list_of_groups_is_refused(text: str) -> None:
    with pytest.raises(KernelError, match="PID/cgroup"):
        parse.parse_own_groups(text)


def escape(path: str) -> str:
    return "".join(f"\\{ord(char):03o}" if char in " \t\n\\" else char for char in path)


@given(PATHS, PATHS, st.lists(st.sampled_from(["shared:1", "master:2", "propagate_from:3"])))
def test_mount_points_may_have_any_name(point: str, root: str, optional: list[str]) -> None:
    fields = ["31", "23", "0:28", escape(root), escape(point), "rw,relatime", *optional]
    line = f"{' '.join(fields)} - cgroup2 cgroup2 rw,nsdelegate\n"

    (mount,) = parse.parse_cgroup_mounts(line.encode())

    assert (mount.point, mount.root, mount.unified) == (point, root, True)
    assert mount.controllers == ()
    assert mount.writable


def test_the_mounts_of_a_hybrid_host() -> None:
    mounts = parse.parse_cgroup_mounts((FIXTURES / "hybrid/proc/self/mountinfo").read_bytes())

    assert [mount.controllers for mount in mounts if not mount.unified] == [
        ("cpu",),
        ("cpuacct",),
        ("cpuset",),
        ("memory",),
        ("devices",),
        ("freezer",),
        ("blkio",),
        ("pids",),
        ("name=systemd",),
    ]
    assert [mount.point for mount in mounts if mount.unified] == ["/sys/fs/cgroup/unified"]


def test_flags_of_a_v1_mount_are_no_controllers() -> None:
    line = (
        "40 31 0:37 / /sys/fs/cgroup/systemd ro,nosuid shared:9 - cgroup cgroup "
        "rw,seclabel,xattr,release_agent=/usr/lib/agent,name=systemd,cpu,cpuacct\n"
    )

    (mount,) = parse.parse_cgroup_mounts(line)

    assert mount.controllers == ("name=systemd", "cpu", "cpuacct")
    assert not mount.writable


def test_file_systems_that_only_look_like_cgroups_are_left_out() -> None:
    line = "40 31 0:37 / /mnt rw - cgroupfuse cgroup rw,cpu\n"

    assert parse.parse_cgroup_mounts(line) == ()
