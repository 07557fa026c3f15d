"""Filters of system calls: the program that the kernel runs says what the policy says."""

from __future__ import annotations

import errno
import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.errors import SpecError
from sandbox.kernel import call_filter
from sandbox.kernel.call_filter import Check, Comparison, Policy, Rule
from sandbox.kernel.capabilities import KEPT
from sandbox.kernel.prebuilt_filters import DOCKERS, POWERLESS
from sandbox.kernel.seccomp_policy import MISSING, REFUSED, assemble_policy, default_policy
from sandbox.kernel.seccomp_profile import Circumstances, parse_profile
from sandbox.kernel.syscalls import X32_BIT, Architecture, find_architecture

I386 = 0x40000003
FOURTEEN = frozenset({"chown", "sys_chroot", "mknod", "net_raw"})
MACHINES = ("x86_64", "aarch64")


def architecture(machine: str) -> Architecture:
    found = find_architecture(machine)
    assert found is not None
    return found


def interpret(
    program: Sequence[call_filter.Instruction], audit: int, number: int, args: list[int]
) -> int:
    """Run a program as the kernel does; every jump goes forward, and it ends with a verdict."""
    data = {0: number, 4: audit}
    for index, value in enumerate(args):
        data[16 + 8 * index] = value & 0xFFFFFFFF
        data[20 + 8 * index] = value >> 32
    accumulator = at = 0
    while True:
        code, if_true, if_false, operand = program[at]
        assert 0 <= if_true <= 255
        assert 0 <= if_false <= 255
        at += 1
        if code == call_filter.RET:
            return operand
        if code == call_filter.LD_ABS:
            accumulator = data[operand]
        elif code == call_filter.AND:
            accumulator &= operand
        elif code == call_filter.JA:
            at += operand
        else:
            holds = {
                call_filter.JEQ: accumulator == operand,
                call_filter.JGT: accumulator > operand,
                call_filter.JGE: accumulator >= operand,
            }[code]
            at += if_true if holds else if_false


def numbers_of(policy: Policy) -> list[int]:
    known = policy.architecture.numbers.values()
    return [*range(max(known) + 3), X32_BIT - 1, X32_BIT, X32_BIT + 1, (1 << 32) - 1]


CAPABILITIES = st.frozensets(
    st.sampled_from(["sys_admin", "sys_ptrace", "sys_chroot", "sys_time", "syslog", "bpf"])
)
ARGUMENT = st.one_of(
    st.sampled_from([0, 1, 8, 38, 40, 0x20008, 0x5412, 0x541C, 0x1_0000_5412, 0x1000_0000]),
    st.integers(0, (1 << 64) - 1),
)
SIX = st.lists(ARGUMENT, min_size=6, max_size=6)


@pytest.mark.parametrize("machine", MACHINES)
@given(capabilities=CAPABILITIES, args=SIX)
@settings(max_examples=25, deadline=None)
def test_the_default_filter_says_what_the_policy_says_of_every_number(
    machine: str, capabilities: frozenset[str], args: list[int]
) -> None:
    policy = default_policy(architecture(machine), capabilities)
    program = call_filter.compile_policy(policy)

    for audit in (policy.architecture.audit, I386):
        for number in numbers_of(policy):
            expected = policy.verdict(audit, number, args)
            assert interpret(program, audit, number, args) == expected, number


CHECK = st.builds(
    Check,
    st.integers(0, 5),
    st.sampled_from(Comparison),
    ARGUMENT,
    st.sampled_from([(1 << 64) - 1, 0xFF, 0xFFFF_FFFF, 1 << 63]),
)
VERDICT = st.sampled_from(
    [call_filter.ALLOW, call_filter.KILL_PROCESS, REFUSED, MISSING, call_filter.LOG]
)
RULES = st.lists(st.builds(Rule, VERDICT, st.lists(CHECK, max_size=3).map(tuple)), max_size=3).map(
    tuple
)


@given(
    rules=st.dictionaries(st.integers(0, 460), RULES, max_size=40),
    default=VERDICT,
    args=SIX,
)
@settings(deadline=None)
def test_any_policy_is_compiled_faithfully(
    rules: dict[int, tuple[Rule, ...]], default: int, args: list[int]
) -> None:
    policy = Policy(
        architecture=architecture("x86_64"),
        rules=rules,
        default=default,
        unknown=MISSING,
        foreign=call_filter.KILL_PROCESS,
    )
    program = call_filter.compile_policy(policy)
    near = [value + step for rule in rules.values() for value in _values(rule) for step in (-1, 1)]

    for number in {*rules, 0, 1, 334, 500, 1 << 31}:
        for arguments in (args, *([value % (1 << 64)] * 6 for value in near[:6])):
            audit = policy.architecture.audit
            expected = policy.verdict(audit, number, arguments)
            if number in rules and number not in policy.architecture.numbers.values():
                continue  # a rule about a number that is no call
            assert interpret(program, audit, number, arguments) == expected


def _values(rules: tuple[Rule, ...]) -> list[int]:
    return [check.value for rule in rules for check in rule.checks]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("call", "args", "expected"),
    [
        ("read", (), call_filter.ALLOW),
        ("execve", (), call_filter.ALLOW),
        ("ptrace", (), call_filter.ALLOW),
        ("chroot", (), call_filter.ALLOW),
        ("mount", (), REFUSED),
        ("unshare", (), REFUSED),
        ("setns", (), REFUSED),
        ("keyctl", (), REFUSED),
        ("bpf", (), REFUSED),
        ("open_by_handle_at", (), REFUSED),
        ("io_uring_setup", (), REFUSED),
        ("userfaultfd", (), REFUSED),
        ("clone3", (), MISSING),
        ("clone", (0x11,), call_filter.ALLOW),
        ("clone", (0x1000_0011,), REFUSED),
        ("clone", (0x2_0011,), REFUSED),
        ("socket", (2,), call_filter.ALLOW),
        ("socket", (40,), REFUSED),
        ("socket", (0x1_0000_0028,), REFUSED),
        ("personality", (0xFFFFFFFF,), call_filter.ALLOW),
        ("personality", (0x0040000,), REFUSED),
        ("ioctl", (0, 0x5401), call_filter.ALLOW),
        ("ioctl", (0, 0x5412), REFUSED),
        ("ioctl", (0, 0xF_0000_5412), REFUSED),
    ],
)
def test_the_default_policy_is_dockers(
    machine: str, call: str, args: tuple[int, ...], expected: int
) -> None:
    found = architecture(machine)
    policy = default_policy(found, FOURTEEN)

    whole = [*args, *(0,) * 6][:6]
    assert policy.verdict(found.audit, found.numbers[call], whole) == expected


def test_a_capability_opens_what_needs_it() -> None:
    found = architecture("x86_64")
    numbers = found.numbers
    policy = default_policy(found, {"sys_admin", "syslog"})

    for call in ("mount", "unshare", "clone3", "syslog", "perf_event_open"):
        assert policy.verdict(found.audit, numbers[call], [0] * 6) == call_filter.ALLOW
    for call in ("reboot", "keyctl", "chroot"):
        assert policy.verdict(found.audit, numbers[call], [0] * 6) == REFUSED


def test_calls_of_another_architecture_are_not_there() -> None:
    found = architecture("x86_64")
    policy = default_policy(found, FOURTEEN)

    assert policy.verdict(I386, 1, [0] * 6) == MISSING
    assert policy.verdict(found.audit, X32_BIT + 1, [0] * 6) == MISSING
    assert policy.verdict(found.audit, 5000, [0] * 6) == MISSING


def test_the_two_tables_agree_with_what_is_known() -> None:
    x86, arm = architecture("x86_64").numbers, architecture("aarch64").numbers

    assert (x86["read"], x86["seccomp"], x86["rseq"]) == (0, 317, 334)
    assert (arm["read"], arm["seccomp"], arm["rseq"], arm["statx"]) == (63, 277, 293, 291)
    assert x86["clone3"] == arm["clone3"] == 435
    assert x86["mseal"] == arm["mseal"] == 462
    assert find_architecture("mips") is None


def test_a_filter_that_is_too_long_is_refused() -> None:
    checks = tuple(Check(0, Comparison.EQ, value) for value in range(6))
    rules = {number: (Rule(number, checks),) for number in range(334)}
    policy = Policy(
        architecture=architecture("x86_64"),
        rules=rules,
        default=call_filter.ALLOW,
        unknown=MISSING,
        foreign=MISSING,
    )

    with pytest.raises(SpecError, match="instructions"):
        call_filter.compile_policy(policy)


# --- docker's profiles ----------------------------------------------------------------------------


def around(*capabilities: str, kernel: tuple[int, int] = (6, 1)) -> Circumstances:
    return Circumstances(
        architecture=architecture("x86_64"), capabilities=capabilities, kernel=kernel
    )


def verdict(profile: object, call: str, *args: int, where: Circumstances | None = None) -> int:
    where = where or around()
    policy = parse_profile(json.dumps(profile), where, "p.json")
    whole = [*args, *(0,) * 6][:6]
    return policy.verdict(where.architecture.audit, where.architecture.numbers[call], whole)


def rule(*names: str, action: str = "SCMP_ACT_ALLOW", **more: object) -> dict[str, object]:
    return {"names": [*names], "action": action, **more}


def profile(*rules: object, default: str = "SCMP_ACT_ERRNO", **more: object) -> dict[str, object]:
    return {"defaultAction": default, "syscalls": [*rules], **more}


def test_a_profile_allows_what_it_names() -> None:
    plain = profile(rule("read", "no_such_call"), rule("write", action="SCMP_ACT_KILL_PROCESS"))

    assert verdict(plain, "read") == call_filter.ALLOW
    assert verdict(plain, "write") == call_filter.KILL_PROCESS
    assert verdict(plain, "open") == REFUSED
    assert verdict({**plain, "defaultErrnoRet": 38}, "open") == MISSING
    assert parse_profile(json.dumps(plain), around(), "p.json").unknown == MISSING
    assert (
        parse_profile('{"defaultAction": "SCMP_ACT_ALLOW"}', around(), "p.json").unknown
        == call_filter.ALLOW
    )
    assert verdict(profile({"name": "read", "action": "SCMP_ACT_LOG"}), "read") == call_filter.LOG


def test_error_numbers_and_checks_are_read() -> None:
    checks = [{"index": 1, "value": 0xFF, "valueTwo": 0x12, "op": "SCMP_CMP_MASKED_EQ"}]
    plain = profile(
        rule("ioctl", action="SCMP_ACT_ERRNO", errnoRet=errno.ENOTTY, args=checks),
        rule("socket", args=[{"index": 0, "value": 40, "op": "SCMP_CMP_NE"}]),
        default="SCMP_ACT_ALLOW",
    )

    assert verdict(plain, "ioctl", 0, 0x5412) == call_filter.ERRNO | errno.ENOTTY
    assert verdict(plain, "ioctl", 0, 0x5413) == call_filter.ALLOW


@pytest.mark.parametrize(
    ("conditions", "applies"),
    [
        ({"includes": {"caps": ["CAP_SYS_ADMIN"]}}, True),
        ({"includes": {"caps": ["CAP_SYS_TIME"]}}, False),
        ({"excludes": {"caps": ["CAP_SYS_ADMIN"]}}, False),
        ({"includes": {"arches": ["amd64", "x32"]}}, True),
        ({"includes": {"arches": ["arm64"]}}, False),
        ({"excludes": {"arches": ["amd64"]}}, False),
        ({"includes": {"minKernel": "4.8"}}, True),
        ({"includes": {"minKernel": "6.2"}}, False),
        ({"excludes": {"minKernel": "6.1"}}, False),
        ({"includes": {}, "excludes": {}}, True),
    ],
)
def test_a_rule_applies_under_its_conditions(
    *, conditions: dict[str, object], applies: bool
) -> None:
    found = verdict(profile(rule("mount", **conditions)), "mount", where=around("sys_admin"))

    assert found == (call_filter.ALLOW if applies else REFUSED)


def test_a_rule_without_checks_decides() -> None:
    check = [{"index": 0, "value": 0, "op": "SCMP_CMP_EQ"}]
    plain = profile(
        rule("clone", action="SCMP_ACT_KILL", args=check), rule("clone"), default="SCMP_ACT_LOG"
    )

    assert verdict(plain, "clone") == call_filter.ALLOW


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON: line 1, column 2"),
        ('{\n "defaultAction": 1,\n}', "is not JSON: line 3, column 1"),
        ("", "is not JSON: line 1, column 1"),
        ("[" * 200_000, "is not JSON"),
        ("1" * 5_000, "is not JSON"),
        ("[]", "p.json: this is not an object"),
        ("{}", "defaultAction: there is no action `null`"),
        ('{"defaultAction": "SCMP_ACT_NOTIFY"}', "no action `SCMP_ACT_NOTIFY`"),
        ('{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": 1}', "syscalls: this is not a list"),
        ('{"defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/x"}', "listenerPath: .* listeners"),
        (
            json.dumps(profile(rule("read"), rule("read", args=[{"index": 6, "value": 0}]))),
            r"syscalls\[1\].args\[0\].index: `6` is not a number up to 5",
        ),
        (
            json.dumps(profile(rule("read", args=[{"index": 0, "op": "SCMP_CMP_X"}]))),
            r"syscalls\[0\].args\[0\]: this is not a check",
        ),
        (
            json.dumps(profile(rule("read", errnoRet=-1, action="SCMP_ACT_ERRNO"))),
            r"syscalls\[0\].errnoRet: `-1` is not a number",
        ),
        (
            json.dumps(profile(rule("read", includes={"minKernel": "6"}))),
            r"syscalls\[0\].includes.minKernel: `6` is not a kernel's version",
        ),
        (
            json.dumps(profile({"names": [1], "action": "SCMP_ACT_ALLOW"})),
            r"syscalls\[0\].names: these are not names",
        ),
    ],
)
def test_what_is_no_profile_is_one_error_that_says_where(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said) as error:
        parse_profile(text, around(), "p.json")

    assert "p.json" in str(error.value)
    assert error.value.hint


KEYS = ("names", "action", "args", "index", "value", "op", "includes", "caps")


def text_of(rules: list[object]) -> str:
    return json.dumps(profile(*rules))


PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


@given(st.one_of(st.text(), st.lists(PLAIN, max_size=3).map(text_of)))
def test_any_text_is_a_profile_or_one_error(text: str) -> None:
    try:
        policy = parse_profile(text, around(), "p.json")
    except SpecError:
        return
    call_filter.compile_policy(policy)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("prebuilt", "capabilities"), [(DOCKERS, KEPT), (POWERLESS, ())], ids=["docker", "none"]
)
def test_the_prebuilt_filters_are_of_the_policy(
    machine: str, prebuilt: dict[str, str], capabilities: tuple[str, ...]
) -> None:
    code = assemble_policy(default_policy(architecture(machine), capabilities))

    assert bytes.fromhex(prebuilt[machine]) == code, "run `.venv/bin/python scripts/filters.py`"
