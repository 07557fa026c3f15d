"""The program that the kernel asks about devices says what its rules say."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.kernel.device_filter import assemble
from sandbox.records.security import DeviceRule

BITS = {"m": 1, "r": 2, "w": 4}
KINDS = {"b": 1, "c": 2}


def verdict(program: bytes, kind: str, major: int, minor: int, access: str) -> bool:
    """Run a program as the kernel would, by what its manual says of the instructions."""
    word = KINDS[kind] | sum(BITS[letter] for letter in set(access)) << 16
    memory = {0: word, 4: major, 8: minor}
    registers = dict.fromkeys(range(11), 0)
    place = 0
    for _ in range(len(program)):
        code, pair, offset, value = struct.unpack_from("=BBhi", program, place * 8)
        target, source = pair & 15, pair >> 4
        place += 1
        match code:
            case 0x61:
                assert source == 1, "only the context may be read"
                registers[target] = memory[offset]
            case 0xB7:
                registers[target] = value
            case 0xBF:
                registers[target] = registers[source]
            case 0x57:
                registers[target] &= value
            case 0x77:
                registers[target] >>= value
            case 0x55:
                place += offset if registers[target] != value else 0
            case 0x5D:
                place += offset if registers[target] != registers[source] else 0
            case 0x95:
                return bool(registers[0])
            case _:
                pytest.fail(f"an instruction {code:#x}")
    pytest.fail("it does not end")


def allows(rule: DeviceRule, kind: str, major: int, minor: int, access: str) -> bool:
    return (
        rule.kind in {"a", kind}
        and rule.major in {None, major}
        and rule.minor in {None, minor}
        and set(access) <= set(rule.access)
    )


SMALL = st.integers(0, 3)
ACCESS = st.lists(st.sampled_from("rwm"), min_size=1, max_size=3).map("".join)
RULES = st.lists(
    st.builds(
        DeviceRule,
        kind=st.sampled_from("abc"),
        major=st.none() | SMALL,
        minor=st.none() | SMALL,
        access=ACCESS,
    ),
    max_size=5,
)


@given(rules=RULES, kind=st.sampled_from("bc"), major=SMALL, minor=SMALL, access=ACCESS)
def test_a_device_is_allowed_if_one_rule_allows_all_that_is_wanted(
    rules: Sequence[DeviceRule], kind: str, major: int, minor: int, access: str
) -> None:
    found = verdict(assemble(rules), kind, major, minor, access)

    assert found == any(allows(rule, kind, major, minor, access) for rule in rules)
