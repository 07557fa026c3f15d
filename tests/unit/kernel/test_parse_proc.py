"""The grammar of `/proc`: captured files, generated ones, and bytes that are neither."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import KernelError
from sandbox.kernel import parse_proc
from sandbox.kernel.parse import parse_flat

FIXTURES = Path(__file__).parents[2] / "fixtures" / "kernel"
V2_PROC = FIXTURES / "v2" / "proc"
HYBRID_PROC = FIXTURES / "hybrid" / "proc"

PARSERS: tuple[Callable[[Any], Any], ...] = (
    parse_proc.parse_stat,
    parse_proc.parse_meminfo,
    parse_proc.parse_pid_stat,
    parse_proc.parse_pid_io,
    parse_proc.parse_cpu_model,
    parse_proc.parse_loadavg,
    parse_proc.parse_net_dev,
    lambda data: parse_proc.find_status(data, "Cpus_allowed_list"),
)
NUMBERS = st.integers(0, (1 << 64) - 1)
LIKELY = st.lists(
    st.sampled_from(
        [b"cpu ", b"cpu0 ", b"MemTotal:", b" kB", b"\n", b"1 ", b"(", b")", b" R ", b": ", b":",
         b"0.5", b"/", b"rchar", b"model name", b"CPU part", b"CPU implementer", b"0x41", b"-1",
         b"lo:", b"eth0:", b"\t", b"\xff", b"1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 "]
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

    assert not refused or ("cannot understand /proc/" in refused and "please report" in refused)


@given(st.lists(NUMBERS, min_size=7, max_size=10), st.integers(1, 4))
def test_cpu_time_comes_back(ticks: list[int], cpus: int) -> None:
    line = " ".join(map(str, ticks))
    data = f"cpu  {line}\n" + "".join(f"cpu{cpu} {line}\n" for cpu in range(cpus)) + "intr 1 2\n"

    stat = parse_proc.parse_stat(data)

    assert (stat.user, stat.idle, stat.softirq) == (ticks[0], ticks[3], ticks[6])
    assert stat.steal == (ticks[7] if len(ticks) > 7 else None)
    assert stat.docker_total == sum(ticks[:7])
    assert stat.cpus == cpus


@pytest.mark.parametrize("proc", [V2_PROC, HYBRID_PROC])
def test_a_captured_stat_counts_two_cpus(proc: Path) -> None:
    stat = parse_proc.parse_stat((proc / "stat").read_bytes())

    assert stat.cpus == 2
    assert stat.idle > stat.user > 0
    assert stat.steal is not None


def test_a_stat_with_too_few_fields_is_refused() -> None:
    with pytest.raises(KernelError, match="/proc/stat"):
        parse_proc.parse_stat("cpu  1 2 3 4 5 6\n")


@given(
    st.dictionaries(
        st.text("ABCabc_()019", min_size=1), st.tuples(st.integers(0, 1 << 50), st.booleans())
    )
)
def test_meminfo_comes_back_in_bytes(values: dict[str, tuple[int, bool]]) -> None:
    data = "".join(
        f"{key}:{number:>15}{' kB' if unit else ''}\n" for key, (number, unit) in values.items()
    )

    assert parse_proc.parse_meminfo(data) == {
        key: number * (1024 if unit else 1) for key, (number, unit) in values.items()
    }


def test_a_captured_meminfo_tells_the_memory() -> None:
    values = parse_proc.parse_meminfo((HYBRID_PROC / "meminfo").read_bytes())

    assert values["MemTotal"] == 25_276_514_304
    assert values["SwapTotal"] == 0
    assert values["HugePages_Total"] == 0


@pytest.mark.parametrize("proc", [V2_PROC, HYBRID_PROC])
def test_a_captured_vmstat_counts_oom_kills_and_swapping(proc: Path) -> None:
    values = parse_flat((proc / "vmstat").read_bytes())

    assert {"oom_kill", "pswpin", "pswpout"} <= values.keys()


NAMES = st.text(
    st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=("Cs",)),
    max_size=15,
)


@given(NAMES, st.lists(NUMBERS, min_size=21, max_size=50), st.sampled_from("RSDZTtXxIP"))
def test_a_process_may_have_any_name(name: str, numbers: list[int], state: str) -> None:
    words = " ".join(map(str, numbers))

    stat = parse_proc.parse_pid_stat(f"17 ({name}) {state} {words}\n")

    assert (stat.pid, stat.name, stat.state) == (17, name, state)
    assert (stat.parent, stat.process_group, stat.session) == tuple(numbers[:3])
    assert (stat.user_ticks, stat.system_ticks) == (numbers[10], numbers[11])
    assert (stat.threads, stat.start_ticks) == (numbers[16], numbers[18])
    assert stat.resident_pages == numbers[20]


def test_a_name_with_parentheses_does_not_shift_the_fields() -> None:
    data = (V2_PROC / "self/stat").read_text().replace("(cat)", "(a) R 1 (b)")

    stat = parse_proc.parse_pid_stat(data)

    assert stat.name == "a) R 1 (b"
    assert stat.state == "R"
    assert stat.threads == 1


def test_a_process_that_is_being_reaped_has_no_session() -> None:
    stat = parse_proc.parse_pid_stat(f"17 (sh) X 0 -1 -1 0 {'-1 ' + '0 ' * 20}\n")

    assert (stat.process_group, stat.session) == (-1, -1)


@given(st.dictionaries(st.text("abcdefg_", min_size=1), NUMBERS))
def test_io_of_a_process_comes_back(values: dict[str, int]) -> None:
    data = "".join(f"{key}: {value}\n" for key, value in values.items())

    assert parse_proc.parse_pid_io(data) == values


def test_a_captured_io_file_is_understood() -> None:
    values = parse_proc.parse_pid_io((V2_PROC / "self/io").read_bytes())

    assert {"rchar", "wchar", "read_bytes", "write_bytes"} <= values.keys()


def test_an_x86_cpu_says_its_name() -> None:
    data = (V2_PROC / "cpuinfo").read_bytes()

    assert parse_proc.parse_cpu_model(data) == "QEMU TCG CPU version 2.5+"


BOARD = """\
processor\t: 0
BogoMIPS\t: 108.00
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x0
CPU part\t: 0xd08
CPU revision\t: 3

Hardware\t: BCM2835
Model\t\t: Raspberry Pi 4 Model B Rev 1.4
"""


def test_a_board_is_named_by_its_cores() -> None:
    assert parse_proc.parse_cpu_model(BOARD) == "Cortex-A72"


def test_big_and_little_cores_are_both_named() -> None:
    little = BOARD.replace("0xd08", "0xd03")

    assert parse_proc.parse_cpu_model(little + little + BOARD) == "Cortex-A53 + Cortex-A72"


def test_a_core_that_is_not_known_is_given_by_number() -> None:
    data = BOARD.replace("0xd08", "0x022").replace("0x41", "0x61")

    assert parse_proc.parse_cpu_model(data) == "Arm core 0x61/0x022"


def test_a_cpu_that_does_not_say_has_no_name() -> None:
    assert parse_proc.parse_cpu_model("processor\t: 0\n\n") is None


@given(st.tuples(*[st.integers(0, 1_000_000)] * 3), st.integers(0, 999), st.integers(0, 1_000_000))
def test_load_averages_come_back(
    hundredths: tuple[int, int, int], running: int, tasks: int
) -> None:
    averages = " ".join(f"{number // 100}.{number % 100:02}" for number in hundredths)

    load = parse_proc.parse_loadavg(f"{averages} {running}/{tasks} 4711\n")

    assert (load.one, load.five, load.fifteen) == tuple(number / 100 for number in hundredths)
    assert (load.running, load.tasks) == (running, tasks)


def test_a_line_of_status_is_found_by_its_name() -> None:
    data = (V2_PROC / "self/status").read_bytes()

    assert parse_proc.find_status(data, "Cpus_allowed_list") == "0-1"
    assert parse_proc.find_status(data, "Threads") == "1"
    assert parse_proc.find_status(data, "Nothing") is None


def test_captured_interfaces_are_counted() -> None:
    interfaces = parse_proc.parse_net_dev((HYBRID_PROC / "net_dev").read_bytes())

    assert {"lo", "eth0"} <= interfaces.keys()
    assert interfaces["lo"].received_bytes == interfaces["lo"].sent_bytes > 0


@given(
    st.dictionaries(
        st.text("abc0.-@:", min_size=1).filter(lambda name: not name.endswith(":")),
        st.lists(NUMBERS, min_size=16, max_size=16),
    )
)
def test_interfaces_come_back(counters: dict[str, list[int]]) -> None:
    rows = "".join(f"{name:>6}: {' '.join(map(str, row))}\n" for name, row in counters.items())

    interfaces = parse_proc.parse_net_dev(f"Inter-| Receive\n face |bytes\n{rows}")

    columns = {0: "received_bytes", 2: "received_errors", 3: "received_drops"}
    columns |= {9: "sent_packets", 10: "sent_errors", 11: "sent_drops"}
    for index, column in columns.items():
        assert {name: getattr(found, column) for name, found in interfaces.items()} == {
            name: row[index] for name, row in counters.items()
        }
