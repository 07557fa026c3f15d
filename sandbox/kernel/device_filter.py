"""Which devices the programs of a group may make, read and write, whatever root inside may do.

One BPF program, which the kernel runs whenever a device is made or opened in the group or below it
(BPF_PROG_TYPE_CGROUP_DEVICE, Linux 4.15). It stays with the group until that is removed: also
when the supervisor is killed. Programs of the groups above go on to hold as well. It takes root
and the v2 side of a host; what follows is the program that docker has there.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

from sandbox.kernel.bpf_calls import call, instruction, load
from sandbox.records.security import DeviceRule

_PROG_ATTACH = 8
_PROGRAM_TYPE, _ATTACH_TYPE = 15, 6
"""BPF_PROG_TYPE_CGROUP_DEVICE and BPF_CGROUP_DEVICE."""
_ALLOW_MULTI = 2
_NAME = b"sandbox_dev"

_ACCESS = {"m": 1, "r": 2, "w": 4}
_KINDS = {"b": 1, "c": 2}

_LOAD, _MOVE, _COPY, _AND, _SHIFT = 0x61, 0xB7, 0xBF, 0x57, 0x77
_UNLESS, _UNLESS_SAME, _RETURN = 0x55, 0x5D, 0x95
"""Loading 32 bits, and what 64-bit registers take: a number, a register, the bits of a number, a
shift to the right; jumps unless equal to a number or a register."""


def filter_devices(directory: Path, rules: Sequence[DeviceRule]) -> None:
    """Allow the group in a v2 directory, and those below it, these devices alone.

    Raises:
        OSError: not root (EPERM), an old kernel, or no v2 group.
    """
    program = load(_PROGRAM_TYPE, _ATTACH_TYPE, assemble(rules), _NAME)
    try:
        group = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            call(_PROG_ATTACH, struct.pack("=IIII", group, program, _ATTACH_TYPE, _ALLOW_MULTI))
        finally:
            os.close(group)
    finally:
        os.close(program)


def assemble(rules: Iterable[DeviceRule]) -> bytes:
    """Return the program: the first rule that allows a device and all that is wanted of it does.

    It is given `struct bpf_cgroup_dev_ctx`: access and type in one word, major, minor.
    """
    parts = [
        instruction(_LOAD, 0x12, 0),  # r2 = the word
        instruction(_COPY, 0x23),  # r3 = r2
        instruction(_AND, 0x02, 0, 0xFFFF),  # r2 = the type
        instruction(_SHIFT, 0x03, 0, 16),  # r3 = the access
        instruction(_LOAD, 0x14, 4),  # r4 = the major number
        instruction(_LOAD, 0x15, 8),  # r5 = the minor number
    ]
    parts += [_of_rule(rule) for rule in rules]
    parts += [instruction(_MOVE, 0x00, 0, 0), instruction(_RETURN)]  # r0 = 0: refused
    return b"".join(parts)


def _of_rule(rule: DeviceRule) -> bytes:
    """Return what allows by one rule, and else goes on behind itself."""
    checks: list[bytes] = []
    end = [instruction(_MOVE, 0x00, 0, 1), instruction(_RETURN)]  # r0 = 1: allowed
    # From the end, as each jump has to know how much is behind it.
    for register, number in ((5, rule.minor), (4, rule.major), (2, _KINDS.get(rule.kind))):
        if number is not None:
            checks.insert(0, instruction(_UNLESS, register, len(checks) + len(end), number))
    allowed = sum(_ACCESS[letter] for letter in set(rule.access))
    wanted = [
        instruction(_COPY, 0x31),  # r1 = r3
        instruction(_AND, 0x01, 0, allowed),
        instruction(_UNLESS_SAME, 0x31, len(checks) + len(end)),  # something else is wanted too
    ]
    return b"".join((*wanted, *checks, *end))
