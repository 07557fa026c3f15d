"""From a policy on system calls to the program that the kernel runs before each of them.

The language is classic BPF: one accumulator, forward jumps, and `struct seccomp_data` to load from
(number, architecture, instruction pointer, six arguments of 64 bits). A call is found by bisection,
so each costs some ten instructions; where the verdict does not depend on arguments, Linux 5.11
remembers it and runs nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from sandbox.errors import SpecError
from sandbox.kernel.syscalls import X32_BIT, Architecture
from sandbox.records.light import dataclass

LD_ABS = 0x20
AND = 0x54
JA = 0x05
JEQ = 0x15
JGT = 0x25
JGE = 0x35
RET = 0x06
"""The eight instructions that are needed: BPF_LD|W|ABS, BPF_ALU|AND|K, BPF_JMP|…|K, BPF_RET|K."""

KILL_PROCESS = 0x8000_0000
KILL_THREAD = 0x0000_0000
TRAP = 0x0003_0000
ERRNO = 0x0005_0000
TRACE = 0x7FF0_0000
LOG = 0x7FFC_0000
ALLOW = 0x7FFF_0000
"""SECCOMP_RET_*; the low 16 bits are the error number of ERRNO."""

MOST_INSTRUCTIONS = 4096
_INSTRUCTION = struct.Struct("=HBBI")
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_LONGEST_JUMP = 255
_WORD = 0xFFFF_FFFF

Instruction = tuple[int, int, int, int]
"""Code, how far to jump if true and if false, operand."""


class Comparison(StrEnum):
    """How an argument is compared, by the names of docker's profiles without their `SCMP_CMP_`."""

    EQ = "EQ"
    NE = "NE"
    LT = "LT"
    LE = "LE"
    GT = "GT"
    GE = "GE"
    MASKED_EQ = "MASKED_EQ"


@dataclass(frozen=True)
class Check:
    """One argument that has to compare so, as a number of 64 bits without sign."""

    index: int
    comparison: Comparison
    value: int
    mask: int = (1 << 64) - 1
    """For MASKED_EQ: the bits that count."""

    def holds(self, arguments: Sequence[int]) -> bool:
        """Return whether a call with these arguments passes."""
        found = arguments[self.index]
        return {
            Comparison.EQ: found == self.value,
            Comparison.NE: found != self.value,
            Comparison.LT: found < self.value,
            Comparison.LE: found <= self.value,
            Comparison.GT: found > self.value,
            Comparison.GE: found >= self.value,
            Comparison.MASKED_EQ: found & self.mask == self.value,
        }[self.comparison]


@dataclass(frozen=True)
class Rule:
    """A verdict on calls that pass all checks."""

    verdict: int
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What becomes of each system call."""

    architecture: Architecture
    rules: Mapping[int, tuple[Rule, ...]]
    """By number; the first rule whose checks all hold decides, and otherwise `default` does."""
    default: int
    """The verdict on the known calls that no rule is about."""
    unknown: int
    """The verdict on numbers that are newer than our list."""
    foreign: int
    """The verdict on calls of another architecture: of 32 bits, or x32."""

    def verdict(self, audit: int, number: int, arguments: Sequence[int]) -> int:
        """Return the verdict on one call; what the program is tested against."""
        architecture = self.architecture
        if audit != architecture.audit or (architecture.has_x32 and number >= X32_BIT):
            return self.foreign
        for rule in self.rules.get(number, ()):
            if all(check.holds(arguments) for check in rule.checks):
                return rule.verdict
        return self.default if number in architecture.numbers.values() else self.unknown


def compile_policy(policy: Policy) -> tuple[Instruction, ...]:
    """Return the program of a policy.

    Raises:
        SpecError: it is longer than the kernel takes.
    """
    architecture = policy.architecture
    program = [
        (LD_ABS, 0, 0, _ARCHITECTURE_AT),
        (JEQ, 1, 0, architecture.audit),
        (RET, 0, 0, policy.foreign),
        (LD_ABS, 0, 0, _NUMBER_AT),
    ]
    if architecture.has_x32:
        program += [(JGE, 0, 1, X32_BIT), (RET, 0, 0, policy.foreign)]
    program += _bisect(_segments(policy))
    if len(program) > MOST_INSTRUCTIONS:
        raise SpecError(
            f"the filter of system calls has {len(program)} instructions, and the kernel takes "
            f"{MOST_INSTRUCTIONS}",
            hint="a profile with fewer rules on arguments makes a shorter one",
        )
    return tuple(program)


def assemble(program: Iterable[Instruction]) -> bytes:
    """Return a program as the kernel takes it: `struct sock_filter` after another."""
    return b"".join(_INSTRUCTION.pack(*each) for each in program)


_Segment = tuple[int, tuple[Instruction, ...]]
"""The first number of a row of calls, and what is done with all of them."""


def _segments(policy: Policy) -> list[_Segment]:
    """Return rows of neighbouring numbers with the same fate, ascending; the first starts at 0."""
    known = {*policy.architecture.numbers.values(), *policy.rules}
    unknown: tuple[Instruction, ...] = ((RET, 0, 0, policy.unknown),)
    segments: list[_Segment] = []
    for number in range(max(known) + 1):
        if number in known:
            code = _code_of(policy.rules.get(number, ()), policy.default)
        else:
            code = unknown
        if not segments or segments[-1][1] != code:
            segments.append((number, code))
    if segments[-1][1] != unknown:
        segments.append((max(known) + 1, unknown))
    return segments


def _bisect(segments: Sequence[_Segment]) -> list[Instruction]:
    """Return the search for a number, which is in the accumulator."""
    if len(segments) == 1:
        return list(segments[0][1])
    middle = len(segments) // 2
    below, above = _bisect(segments[:middle]), _bisect(segments[middle:])
    first = segments[middle][0]
    if len(below) <= _LONGEST_JUMP:
        return [(JGE, len(below), 0, first), *below, *above]
    return [(JGE, 0, 1, first), (JA, 0, 0, len(below)), *below, *above]


def _code_of(rules: Iterable[Rule], default: int) -> tuple[Instruction, ...]:
    code: list[Instruction] = []
    for rule in rules:
        code += _code_of_rule(rule)
        if not rule.checks:
            return tuple(code)
    return (*code, (RET, 0, 0, default))


def _code_of_rule(rule: Rule) -> list[Instruction]:
    """Return what gives the verdict if all checks hold, and else goes on behind itself."""
    code: list[Instruction] = [(RET, 0, 0, rule.verdict)]
    for check in reversed(rule.checks):
        code = [*_code_of_check(check, len(code)), *code]
    return code


def _code_of_check(check: Check, rest: int) -> list[Instruction]:
    """Return what goes on behind itself if the check holds, and else `rest` further."""
    low_at = _ARGUMENTS_AT + 8 * check.index  # both architectures have the lower half first
    low, high = check.value & _WORD, check.value >> 32
    load_low, load_high = (LD_ABS, 0, 0, low_at), (LD_ABS, 0, 0, low_at + 4)
    match check.comparison:
        case Comparison.EQ:
            return [load_high, (JEQ, 0, rest + 2, high), load_low, (JEQ, 0, rest, low)]
        case Comparison.NE:
            return [load_high, (JEQ, 0, 2, high), load_low, (JEQ, rest, 0, low)]
        case Comparison.MASKED_EQ:
            mask_high: Instruction = (AND, 0, 0, check.mask >> 32)
            mask_low: Instruction = (AND, 0, 0, check.mask & _WORD)
            upper = [load_high, mask_high, (JEQ, 0, rest + 3, high)]
            return [*upper, load_low, mask_low, (JEQ, 0, rest, low)]
        case Comparison.GT | Comparison.GE:
            last = JGT if check.comparison is Comparison.GT else JGE
            upper = [load_high, (JGT, 3, 0, high), (JEQ, 0, rest + 2, high)]
            return [*upper, load_low, (last, 0, rest, low)]
        case Comparison.LT | Comparison.LE:
            last = JGE if check.comparison is Comparison.LT else JGT
            upper = [load_high, (JGT, rest + 3, 0, high), (JEQ, 0, 2, high)]
            return [*upper, load_low, (last, rest, 0, low)]
