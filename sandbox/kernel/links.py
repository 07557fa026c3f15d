"""Interfaces, addresses and routes by rtnetlink: what exists, and pairs of virtual Ethernet."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

from sandbox.kernel import netlink
from sandbox.kernel.netlink import Netlink, attribute, nested, text
from sandbox.records.light import dataclass

_NEW_LINK, _DEL_LINK = 16, 17
_NEW_ADDRESS = 20
_NEW_ROUTE, _GET_ROUTE = 24, 26

_LINK = struct.Struct("=BxHiII")  # family, type, index, flags, change
_ADDRESS = struct.Struct("=BBBBI")  # family, prefix length, flags, scope, index
_ROUTE = struct.Struct("=BBBBBBBBI")
_NEXT_HOP = struct.Struct("=HBBi")  # length, flags, hops, index

_NUMBER = struct.Struct("=I")
_ADDRESS_BYTES, _ADDRESS_BITS = 4, 32
_UP = 1
_IFLA_NAME, _IFLA_MTU, _IFLA_LINKINFO, _IFLA_NET_NS_PID, _IFLA_AF_SPEC = 3, 4, 18, 19, 26
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_ADDR_GEN_MODE, _GENERATE_NONE = 8, 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_MULTIPATH, _RTA_TABLE = 1, 4, 5, 9, 15
_TABLE_MAIN, _TABLE_LOCAL = 254, 255
_PROTOCOL_BOOT, _UNICAST = 3, 1


@dataclass(frozen=True)
class Route:
    """One IPv4 route."""

    network: int
    """The first address, as a number."""
    prefix_length: int
    interfaces: tuple[int, ...]
    """Indexes of those that it leads out by."""
    table: int


def make_pair(link: Netlink, name: str, peer: str, pid: int, mtu: int) -> None:
    """Make a pair of ends: one here, the other in the network namespace of a process.

    Raises:
        OSError: not allowed, or this kernel has no `veth`.
    """
    other = _LINK.pack(0, 0, 0, 0, 0) + text(_IFLA_NAME, peer)
    other += attribute(_IFLA_MTU, _NUMBER.pack(mtu))
    other += attribute(_IFLA_NET_NS_PID, _NUMBER.pack(pid))
    info = nested(
        _IFLA_LINKINFO,
        text(_INFO_KIND, "veth"),
        nested(_INFO_DATA, attribute(_VETH_PEER, other)),
    )
    size = attribute(_IFLA_MTU, _NUMBER.pack(mtu))
    body = _LINK.pack(0, 0, 0, 0, 0) + text(_IFLA_NAME, name) + size + info
    link.request(_NEW_LINK, body, netlink.CREATE)


def set_up(link: Netlink, index: int, address: int, prefix_length: int) -> None:
    """Give an interface its address and set it up, without IPv6, which would talk unasked.

    Raises:
        OSError: not allowed, or there is no such interface.
    """
    mode = attribute(_ADDR_GEN_MODE, bytes([_GENERATE_NONE]))
    quiet = nested(_IFLA_AF_SPEC, nested(socket.AF_INET6, mode))
    with suppress(OSError):  # a kernel without IPv6
        link.request(_NEW_LINK, _LINK.pack(0, 0, index, 0, 0) + quiet)
    packed = struct.pack("!I", address)
    body = _ADDRESS.pack(socket.AF_INET, prefix_length, 0, 0, index)
    body += attribute(_IFA_LOCAL, packed) + attribute(_IFA_ADDRESS, packed)
    link.request(_NEW_ADDRESS, body, netlink.CREATE)
    link.request(_NEW_LINK, _LINK.pack(0, 0, index, _UP, _UP))


def add_default_route(link: Netlink, index: int, gateway: int) -> None:
    """Send everything that no other route is for to a gateway.

    Raises:
        OSError: not allowed, or the gateway cannot be reached.
    """
    body = _ROUTE.pack(socket.AF_INET, 0, 0, 0, _TABLE_MAIN, _PROTOCOL_BOOT, 0, _UNICAST, 0)
    body += attribute(_RTA_GATEWAY, struct.pack("!I", gateway))
    body += attribute(_RTA_OIF, _NUMBER.pack(index))
    link.request(_NEW_ROUTE, body, netlink.CREATE)


def remove(link: Netlink, name: str) -> None:
    """Remove an interface; one of a pair takes the other with it.

    Raises:
        OSError: there is none (ENODEV), or not allowed.
    """
    link.request(_DEL_LINK, _LINK.pack(0, 0, 0, 0, 0) + text(_IFLA_NAME, name))


def list_routes(link: Netlink) -> Iterator[Route]:
    """Yield every IPv4 route of every table but the kernel's own.

    Raises:
        OSError: the kernel refuses.
    """
    request = _ROUTE.pack(socket.AF_INET, 0, 0, 0, 0, 0, 0, 0, 0)
    for body in link.dump(_GET_ROUTE, request):
        route = parse_route(body)
        if route is not None and route.table != _TABLE_LOCAL:
            yield route


def parse_route(body: bytes) -> Route | None:
    """Return what a message tells; None for what is no IPv4 route."""
    if len(body) < _ROUTE.size:
        return None
    family, length, _, _, table, *_ = _ROUTE.unpack_from(body)
    if family != socket.AF_INET:
        return None
    found = netlink.parse_attributes(body[_ROUTE.size :])
    destination = found.get(_RTA_DST, bytes(_ADDRESS_BYTES))
    if len(destination) != _ADDRESS_BYTES or length > _ADDRESS_BITS:
        return None
    if len(found.get(_RTA_TABLE, b"")) == _NUMBER.size:  # one that 8 bits do not hold
        table = _NUMBER.unpack(found[_RTA_TABLE])[0]
    interfaces = [*_next_hops(found.get(_RTA_MULTIPATH, b""))]
    if len(found.get(_RTA_OIF, b"")) == _NUMBER.size:
        interfaces.append(_NUMBER.unpack(found[_RTA_OIF])[0])
    return Route(struct.unpack("!I", destination)[0], length, tuple(interfaces), table)


def _next_hops(data: bytes) -> Iterator[int]:
    place = 0
    while place + _NEXT_HOP.size <= len(data):
        length, _, _, index = _NEXT_HOP.unpack_from(data, place)
        if length < _NEXT_HOP.size:
            return
        yield index
        place += length + -length % 4
