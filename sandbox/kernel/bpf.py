"""What a v2 group sends and receives, counted by two small BPF programs on the group itself.

The kernel runs them for every packet of a socket that was made in the group or below it. Each adds
the packet to a counter and lets it pass. They are linked to the group by a descriptor, so that
they go with the process that holds it, however that ends. It takes root (CAP_BPF and
CAP_NET_ADMIN) and Linux 5.7; a hybrid host's v2 side will do.

Whoever else is root finds the counters by asking the kernel which programs the group has.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from sandbox.errors import KernelError
from sandbox.kernel.bpf_calls import call, instruction, load
from sandbox.records.result import HOST_PORT, NetworkIo

_MAP_CREATE, _MAP_LOOKUP = 0, 1
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
        map_fd = call(_MAP_CREATE, struct.pack("=IIIIIII16s", _ARRAY, 4, size, 1, 0, 0, 0, b""))
        links: list[int] = []
        try:
            group = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                for kind, offset in ((_INGRESS, 0), (_EGRESS, _HALF_BYTES)):
                    program = load(_CGROUP_SKB, kind, _assemble(map_fd, offset), _PROGRAM_NAME)
                    try:
                        request = struct.pack("=IIII", program, group, kind, 0)
                        links.append(call(_LINK_CREATE, request))
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
            program = call(_PROG_FD_BY_ID, struct.pack("=III", number, 0, 0))
            try:
                map_id = _find_map(program)
            finally:
                os.close(program)
            if map_id is not None:
                return cls(call(_MAP_FD_BY_ID, struct.pack("=III", map_id, 0, 0)))
        return None

    def read(self) -> tuple[NetworkIo, ...]:
        """Return what was counted, as if by one interface.

        Raises:
            KernelError: it was closed.
        """
        try:
            call(_MAP_LOOKUP, self._request)
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


def _assemble(map_fd: int, offset: int) -> bytes:
    """Return a program that adds each packet to two counters at `offset` and lets it pass."""
    body = (
        instruction(0x61, 0x17, _LEN_AT),  # r7 = the packet's length
        instruction(0x07, 0x07, 0, _ETHERNET_HEADER_BYTES),  # r7 += 14
        instruction(0x62, 0x0A, -4, 0),  # the key on the stack = 0
        instruction(0xBF, 0xA2),  # r2 = the stack
        instruction(0x07, 0x02, 0, -4),  # r2 -= 4
        instruction(0x18, 0x11, 0, map_fd),  # r1 = the map
        instruction(0x00),  # its upper half
        instruction(0x85, 0, 0, 1),  # r0 = map_lookup_elem(r1, r2)
        instruction(0x15, 0x00, 3, 0),  # nothing there: let it pass
        instruction(0xDB, 0x70, offset),  # atomically: bytes += r7
        instruction(0xB7, 0x01, 0, 1),  # r1 = 1
        instruction(0xDB, 0x10, offset + 8),  # atomically: packets += r1
    )
    return b"".join(
        (
            instruction(0x61, 0x12, _IFINDEX_AT),  # r2 = the interface
            instruction(0x15, 0x02, len(body), _LOOPBACK),  # the loopback: let it pass
            *body,
            instruction(0xB7, 0x00, 0, 1),  # r0 = 1: pass
            instruction(0x95),  # return
        )
    )


def _list_programs(group: int) -> Iterator[int]:
    found = (ctypes.c_uint32 * _MOST_PROGRAMS)()
    request = ctypes.create_string_buffer(
        struct.pack("=IIIIQII", group, _INGRESS, 0, 0, ctypes.addressof(found), _MOST_PROGRAMS, 0)
    )
    call(_PROG_QUERY, request)
    count = struct.unpack_from("=I", request.raw, 24)[0]
    yield from found[: min(count, _MOST_PROGRAMS)]


def _find_map(program: int) -> int | None:
    """Return the id of the map of a program, if it is one of ours."""
    maps = (ctypes.c_uint32 * 1)()
    info = ctypes.create_string_buffer(_INFO_BYTES)
    struct.pack_into("=IQ", info, _INFO_MAPS_AT, 1, ctypes.addressof(maps))
    call(_INFO_BY_FD, struct.pack("=IIQ", program, _INFO_BYTES, ctypes.addressof(info)))
    name = info.raw[_INFO_NAME_AT : _INFO_NAME_AT + 16].rstrip(b"\0")
    return int(maps[0]) if name == _PROGRAM_NAME and maps[0] else None
