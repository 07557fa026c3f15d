"""The system call `bpf`, and the loading of programs that the kernel runs for a group."""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from sandbox.kernel.libc import library

_SYSTEM_CALL = {
    "x86_64": 321,
    "aarch64": 280,
    "riscv64": 280,
    "loongarch64": 280,
    "ppc64le": 361,
    "s390x": 351,
    "i686": 357,
    "armv7l": 386,
}
_PROG_LOAD = 5


def call(command: int, request: bytes | ctypes.Array[ctypes.c_char]) -> int:
    """Do as the kernel's `bpf` with a command and its `union bpf_attr`.

    Raises:
        OSError: not root (EPERM), an old kernel (EINVAL, ENOSYS), or what the command says.
    """
    number = _SYSTEM_CALL.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    size = ctypes.c_uint(len(request))
    result = int(library.syscall(ctypes.c_long(number), command, request, size))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def instruction(code: int, registers: int = 0, offset: int = 0, value: int = 0) -> bytes:
    """Return one `struct bpf_insn`; the source register is in the upper half of `registers`."""
    return struct.pack("=BBhi", code, registers, offset, value)


def load(kind: int, place: int, program: bytes, name: bytes) -> int:
    """Return a descriptor of a program that the kernel has checked.

    Args:
        kind: What it is for (BPF_PROG_TYPE_…).
        place: Where it will be attached (BPF_CGROUP_…).
        program: Its instructions.
        name: What `bpftool prog` calls it; 15 bytes at most.

    Raises:
        OSError: as `call`; EACCES for a program that the kernel does not take.
    """
    code = ctypes.create_string_buffer(program, len(program))
    licence = ctypes.create_string_buffer(b"Apache-2.0")
    head = (kind, len(program) // 8, ctypes.addressof(code), ctypes.addressof(licence))
    return call(_PROG_LOAD, struct.pack("=IIQQIIQII16sII", *head, 0, 0, 0, 0, 0, name, 0, place))
