"""Sizes, durations and CPUs, from text and back."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import units
from sandbox.errors import SpecError

PARSERS: tuple[Callable[[str], Any], ...] = (
    units.parse_size,
    units.parse_size_or_unlimited,
    units.parse_duration,
    units.parse_cpus,
    units.parse_cpu_list,
)
LIKELY = st.text("0123456789.,-+ kKmMgGibBsuhdn_einfax\u0661\u00b5\n", max_size=30)


@pytest.mark.parametrize("parser", PARSERS)
@given(text=st.one_of(st.text(), LIKELY))
def test_any_text_is_understood_or_refused_with_one_error(
    parser: Callable[[str], Any], text: str
) -> None:
    try:
        value = parser(text)
    except SpecError as error:
        value, hint = 0, error.hint
        complete = hint is not None and f"`{text}`" in str(error)
    else:
        complete = True
    assert complete
    if not isinstance(value, tuple):
        assert -math.inf < value < math.inf


# --- sizes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("17b", 17),
        ("512m", 512 << 20),
        ("512M", 512 << 20),
        ("2g", 2 << 30),
        ("2gb", 2 << 30),
        ("2GiB", 2 << 30),
        ("1.5GiB", 3 << 29),
        ("0.5k", 512),
        ("1 KiB", 1024),
        (" 1t ", 1 << 40),
        ("7p", 7 << 50),
        ("9007199254740993", 9_007_199_254_740_993),
    ],
)
def test_sizes_are_binary_and_exact(text: str, size: int) -> None:
    assert units.parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "2x", "k", "-1", "+1", "1e3", "1.", ".5", "1,5g", "1_000", "inf", "nan", "1 g b", "0x10",
     "\u0661m", "1ib", "1 i", "9" * 400],
)  # fmt: skip
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        units.parse_size(text)


@pytest.mark.parametrize(
    "text", ["9223372036854775807", "8192p", "99999999g", "9223372036854775808"]
)
def test_a_size_beyond_every_memory_is_refused_and_never_means_unlimited(text: str) -> None:
    if text == "99999999g":
        assert units.parse_size(text) == 99_999_999 << 30
    else:
        with pytest.raises(SpecError, match="larger than any memory"):
            units.parse_size(text)


@pytest.mark.parametrize("text", ["-1", "max", "unlimited", " MAX "])
def test_unlimited_has_three_names(text: str) -> None:
    assert units.parse_size_or_unlimited(text) == units.UNLIMITED


@given(st.integers(0, (1 << 62) - 1))
def test_bytes_come_back_exactly(size: int) -> None:
    assert units.parse_size(str(size)) == units.parse_size(f"{size}b") == size


@given(st.integers(0, 1 << 12), st.sampled_from(["k", "m", "g", "t"]))
def test_units_multiply_by_1024(number: int, unit: str) -> None:
    factor = 1 << (10 * (1 + "kmgt".index(unit)))

    for text in (f"{number}{unit}", f"{number}{unit.upper()}iB", f"{number} {unit}b"):
        assert units.parse_size(text) == number * factor


@given(st.integers(0, 1 << 60))
def test_what_is_printed_can_be_read_again_to_within_its_last_digit(size: int) -> None:
    again = units.parse_size(units.format_size(size))

    assert again == pytest.approx(size, rel=0.05, abs=0)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        ((1 << 20) - 1, "1 MiB"),
        (512 << 20, "512 MiB"),
        (3 << 29, "1.5 GiB"),
        (-2048, "-2 KiB"),
        (5 << 60, "5120 PiB"),
        (units.UNLIMITED, "unlimited"),
    ],
)
def test_sizes_are_printed_in_the_unit_that_people_read(size: int, text: str) -> None:
    assert units.format_size(size) == text


# --- durations


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [
        ("10", 10 * units.NS_PER_SEC),
        ("0.5", units.NS_PER_SEC // 2),
        ("250ms", 250_000_000),
        ("10s", 10 * units.NS_PER_SEC),
        ("1m30s", 90 * units.NS_PER_SEC),
        ("1m30", 90 * units.NS_PER_SEC),
        ("2h", 7_200 * units.NS_PER_SEC),
        ("1d12h", 129_600 * units.NS_PER_SEC),
        ("1.5s", 1_500_000_000),
        ("7ns", 7),
        ("3us", 3_000),
        (" 1S ", units.NS_PER_SEC),
        ("0", 0),
    ],
)
def test_durations_are_read_as_people_write_them(text: str, duration_ns: int) -> None:
    assert units.parse_duration(text) == duration_ns


@pytest.mark.parametrize(
    "text", ["", "s", "-1s", "1x", "10 s", "1 1", "1.s", "inf", "nan", "1e3s", "9" * 400, "\u0661s"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        units.parse_duration(text)


def test_a_bare_number_must_be_the_last_part() -> None:
    with pytest.raises(SpecError):
        units.parse_duration("30 1m")
    with pytest.raises(SpecError):
        units.parse_duration("1.5.5s")


@given(st.integers(0, (1 << 53) - 1))
def test_nanoseconds_come_back_exactly(duration_ns: int) -> None:
    assert units.parse_duration(f"{duration_ns}ns") == duration_ns


@given(st.integers(0, 1 << 62))
def test_long_durations_in_nanoseconds_are_exact_as_well(duration_ns: int) -> None:
    assert units.parse_duration(f"{duration_ns}ns") == duration_ns


@given(st.integers(0, 99), st.integers(0, 59), st.integers(0, 59))
def test_parts_add_up(hours: int, minutes: int, seconds: int) -> None:
    total = (hours * 60 + minutes) * 60 + seconds

    assert units.parse_duration(f"{hours}h{minutes}m{seconds}s") == total * units.NS_PER_SEC


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0 µs"),
        (850_000, "850 µs"),
        (999_600, "1.0 ms"),
        (12_300_000, "12.3 ms"),
        (999_960_000, "1.00 s"),
        (4_560_000_000, "4.56 s"),
        (59_996_000_000, "1 min 00 s"),
        (61_000_000_000, "1 min 01 s"),
        (3_599_600_000_000, "1 h 00 min"),
        (3_720_000_000_000, "1 h 02 min"),
        (360_000_000_000_000, "100 h 00 min"),
    ],
)
def test_durations_are_printed_in_the_unit_that_people_read(duration_ns: int, text: str) -> None:
    assert units.format_duration(duration_ns) == text


@given(st.integers(0, 1 << 62))
def test_a_printed_duration_never_shows_a_full_next_unit(duration_ns: int) -> None:
    text = units.format_duration(duration_ns)

    assert not text.startswith(("1000 µs", "1000.0 ms", "60.00 s", "60 min"))
    assert " 60 " not in text


# --- CPUs


@pytest.mark.parametrize(("text", "cpus"), [("2", 2.0), ("0.5", 0.5), (" 1.25 ", 1.25), ("-1", -1)])
def test_cpu_counts_are_numbers(text: str, cpus: float) -> None:
    assert units.parse_cpus(text) == cpus


@pytest.mark.parametrize(
    "text", ["", "two", "nan", "inf", "-inf", "1,5", "1 2", "1e999", "1_0", "\u0661", "0x1"]
)
def test_what_is_no_number_of_cpus_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        units.parse_cpus(text)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("", ()),
        ("\n", ()),
        ("0", (0,)),
        ("0-3,6", (0, 1, 2, 3, 6)),
        ("6,0-1,1", (0, 1, 6)),
        ("2-2", (2,)),
    ],
)
def test_cpu_lists_are_read_ascending_and_once(text: str, cpus: tuple[int, ...]) -> None:
    assert units.parse_cpu_list(text) == cpus


@pytest.mark.parametrize(
    "text", ["a", "-1", "3-1", "1-", "0-99999", "9999999", "1-2-3", "1;2", "\u0661"]
)
def test_what_is_no_cpu_list_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="is not a list of CPUs"):
        units.parse_cpu_list(text)


@given(st.sets(st.integers(0, 8_192)))
def test_cpu_lists_come_back(cpus: set[int]) -> None:
    text = units.format_cpu_list(cpus)

    assert units.parse_cpu_list(text) == tuple(sorted(cpus))
    assert " " not in text


@given(st.integers(0, 8_000), st.integers(1, 100))
def test_consecutive_cpus_are_one_range(first: int, count: int) -> None:
    text = units.format_cpu_list(range(first, first + count))

    assert text == (str(first) if count == 1 else f"{first}-{first + count - 1}")
