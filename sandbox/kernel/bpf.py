"""What a v2 group sends and receives, counted by two small BPF programs on the group itself.

The kernel runs them for every packet of a socket that was made in the group or below it. Each adds
the packet to a counter and lets it pass. They are linked to the group by a descriptor, so that
they go with the process that holds it, however that ends. It takes root (CAP_BPF and
CAP_NET_ADMIN) and Linux 5.7; a hybrid host's v2 side will do.

Whoever else is root finds the counters by asking the kernel which programs the group has.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from sandbox.errors import KernelError
from sandbox.records.result import HOST_PORT, NetworkIo

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
_MAP_CREATE, _MAP_LOOKUP, _PROG_LOAD = 0, 1, 5
_PROG_FD_BY_ID, _MAP_FD_BY_ID, _INFO_BY_FD, _PROG_QUERY, _LINK_CREATE = 13, 14, 15, 16, 28
_ARRAY, _CGROUP_SKB = 2, 8
_INGRESS, _EGRESS = 0, 1
_PROGRAM_NAME = b"sandbox_net"

_COUNTERS = struct.Struct("=QQQQ")  # received bytes and packets, sent bytes and packets
_HALF_BYTES = 16
_LOOPBACK = 1
_ETHERNET_HEADER_BYTES = 14  # interfaces count it, the programs see packets without it
_LEN_AT, _IFINDEX_AT = 0, 40  # in struct __sk_buff
_MOST_PROGRAMS = 64
_INFO_BYTES = 128
_INFO_MAPS_AT, _INFO_NAME_AT = 52, 64  # in struct bpf_prog_info: nr_map_ids, map_ids, name

_libc = ctypes.PyDLL(None, use_errno=True)


class GroupTraffic:
    """The counters of one group."""

    def __init__(self, map_fd: int, links: Iterable[int] = ()) -> None:
        """Take over the descriptors."""
        self._map_fd = map_fd
        self._links = tuple(links)
        self._key = ctypes.create_string_buffer(4)
        self._value = ctypes.create_string_buffer(_COUNTERS.size)
        self._request = struct.pack(
            "=IIQQQ", map_fd, 0, ctypes.addressof(self._key), ctypes.addressof(self._value), 0
        )

    @classmethod
    def attach(cls, directory: Path) -> GroupTraffic:
        """Count from now on what a group and those below it send and receive.

        Raises:
            OSError: not root (EPERM), an old kernel (EINVAL, ENOSYS), or no v2 group.
        """
        size = _COUNTERS.size
        map_fd = _bpf(_MAP_CREATE, struct.pack("=IIIIIII16s", _ARRAY, 4, size, 1, 0, 0, 0, b""))
        links: list[int] = []
        try:
            group = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                for kind, offset in ((_INGRESS, 0), (_EGRESS, _HALF_BYTES)):
                    program = _load(_assemble(map_fd, offset), kind)
                    try:
                        request = struct.pack("=IIII", program, group, kind, 0)
                        links.append(_bpf(_LINK_CREATE, request))
                    finally:
                        os.close(program)
            finally:
                os.close(group)
        except OSError:
            for fd in (map_fd, *links):
                os.close(fd)
            raise
        return cls(map_fd, links)

    @classmethod
    def find(cls, directory: Path) -> GroupTraffic | None:
        """Return the counters that somebody else has put on a group; None if there are none.

        Raises:
            OSError: not root, or an old kernel.
        """
        group = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            programs = [*_list_programs(group)]
        finally:
            os.close(group)
        for number in programs:
            program = _bpf(_PROG_FD_BY_ID, struct.pack("=III", number, 0, 0))
            try:
                map_id = _find_map(program)
            finally:
                os.close(program)
            if map_id is not None:
                return cls(_bpf(_MAP_FD_BY_ID, struct.pack("=III", map_id, 0, 0)))
        return None

    def read(self) -> tuple[NetworkIo, ...]:
        """Return what was counted, as if by one interface.

        Raises:
            KernelError: it was closed.
        """
        try:
            _bpf(_MAP_LOOKUP, self._request)
        except OSError as exc:
            raise KernelError.from_os(exc, doing="read", path="the group's BPF counters") from exc
        rx_bytes, rx_packets, tx_bytes, tx_packets = _COUNTERS.unpack(self._value.raw)
        return (
            NetworkIo(
                name=HOST_PORT,
                rx_bytes=rx_bytes,
                tx_bytes=tx_bytes,
                rx_packets=rx_packets,
                tx_packets=tx_packets,
            ),
        )

    def close(self) -> None:
        """Count no more; a second time does nothing."""
        fds, self._links = (self._map_fd, *self._links), ()
        self._map_fd = -1
        for fd in fds:
            if fd >= 0:
                os.close(fd)


def _bpf(command: int, request: bytes | ctypes.Array[ctypes.c_char]) -> int:
    number = _SYSTEM_CALL.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    size = ctypes.c_uint(len(request))
    result = int(_libc.syscall(ctypes.c_long(number), command, request, size))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _instruction(code: int, registers: int = 0, offset: int = 0, value: int = 0) -> bytes:
    return struct.pack("=BBhi", code, registers, offset, value)


def _assemble(map_fd: int, offset: int) -> bytes:
    """Return a program that adds each packet to two counters at `offset` and lets it pass."""
    body = (
        _instruction(0x61, 0x17, _LEN_AT),  # r7 = the packet's length
        _instruction(0x07, 0x07, 0, _ETHERNET_HEADER_BYTES),  # r7 += 14
        _instruction(0x62, 0x0A, -4, 0),  # the key on the stack = 0
        _instruction(0xBF, 0xA2),  # r2 = the stack
        _instruction(0x07, 0x02, 0, -4),  # r2 -= 4
        _instruction(0x18, 0x11, 0, map_fd),  # r1 = the map
        _instruction(0x00),  # its upper half
        _instruction(0x85, 0, 0, 1),  # r0 = map_lookup_elem(r1, r2)
        _instruction(0x15, 0x00, 3, 0),  # nothing there: let it pass
        _instruction(0xDB, 0x70, offset),  # atomically: bytes += r7
        _instruction(0xB7, 0x01, 0, 1),  # r1 = 1
        _instruction(0xDB, 0x10, offset + 8),  # atomically: packets += r1
    )
    return b"".join(
        (
            _instruction(0x61, 0x12, _IFINDEX_AT),  # r2 = the interface
            _instruction(0x15, 0x02, len(body), _LOOPBACK),  # the loopback: let it pass
            *body,
            _instruction(0xB7, 0x00, 0, 1),  # r0 = 1: pass
            _instruction(0x95),  # return
        )
    )


def _load(program: bytes, kind: int) -> int:
    code = ctypes.create_string_buffer(program, len(program))
    licence = ctypes.create_string_buffer(b"Apache-2.0")
    return _bpf(
        _PROG_LOAD,
        struct.pack(
            "=IIQQIIQII16sII",
            _CGROUP_SKB,
            len(program) // 8,
            ctypes.addressof(code),
            ctypes.addressof(licence),
            0,
            0,
            0,
            0,
            0,
            _PROGRAM_NAME,
            0,
            kind,
        ),
    )


def _list_programs(group: int) -> Iterator[int]:
    found = (ctypes.c_uint32 * _MOST_PROGRAMS)()
    request = ctypes.create_string_buffer(
        struct.pack("=IIIIQII", group, _INGRESS, 0, 0, ctypes.addressof(found), _MOST_PROGRAMS, 0)
    )
    _bpf(_PROG_QUERY, request)
    count = struct.unpack_from("=I", request.raw, 24)[0]
    yield from found[: min(count, _MOST_PROGRAMS)]


def _find_map(program: int) -> int | None:
    """Return the id of the map of a program, if it is one of ours."""
    maps = (ctypes.c_uint32 * 1)()
    info = ctypes.create_string_buffer(_INFO_BYTES)
    struct.pack_into("=IQ", info, _INFO_MAPS_AT, 1, ctypes.addressof(maps))
    _bpf(_INFO_BY_FD, struct.pack("=IIQ", program, _INFO_BYTES, ctypes.addressof(info)))
    name = info.raw[_INFO_NAME_AT : _INFO_NAME_AT + 16].rstrip(b"\0")
    return int(maps[0]) if name == _PROGRAM_NAME and maps[0] else None
