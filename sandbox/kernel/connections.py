"""Connections that the kernel remembers: those by UDP to a port that now leads elsewhere.

Only the first packet of a connection is sent elsewhere by a rule. With UDP whoever sends to a port
again and again, from before a run was there, has one connection all the time, and would never get
to the run. So these are forgotten.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress

from sandbox.kernel import netlink
from sandbox.kernel.netlink import Netlink, attribute, nested, parse_attributes
from sandbox.records.light import dataclass
from sandbox.records.ports import ANY_ADDRESS, PublishedPort

_GET, _DELETE = 1 << 8 | 1, 1 << 8 | 2
_HEAD = struct.pack("!BBH", socket.AF_INET, 0, 0)
_ORIGINAL, _ZONE, _FILTER = 1, 18, 25
_TUPLE_IP, _TUPLE_PROTOCOL = 1, 2
_IP_DESTINATION = 2
_PROTOCOL_NUMBER, _DESTINATION_PORT = 1, 3
_FILTER_ORIGINAL, _BY_PROTOCOL = 1, 1 << 3
_ADDRESS_BYTES, _PORT_BYTES = 4, 2


@dataclass(frozen=True)
class Connection:
    """Where one went at first, and by what the kernel knows it."""

    protocol: int
    address: str
    port: int
    key: bytes


def forget(ports: Iterable[PublishedPort]) -> None:
    """Have what comes to the UDP ports among these be looked at by the rules again.

    Raises:
        OSError: not allowed, or the kernel cannot list connections.
    """
    wanted = {port.host_port: port for port in ports if port.protocol == "udp"}
    if not wanted:
        return
    with closing(Netlink(netlink.NETFILTER)) as tracking:
        for one in [*_list_udp(tracking)]:
            port = wanted.get(one.port)
            if port is not None and port.host_address in {ANY_ADDRESS, one.address}:
                if port.host_address == ANY_ADDRESS and not _is_of_this_host(one.address):
                    continue  # it only passes
                with suppress(FileNotFoundError):  # it has ended
                    tracking.request(_DELETE, _HEAD + one.key)


def _list_udp(tracking: Netlink) -> Iterator[Connection]:
    # The kernel sorts the others out; before Linux 5.8 it knows no filter, and sends all.
    number = attribute(_PROTOCOL_NUMBER, bytes([socket.IPPROTO_UDP]))
    request = nested(_ORIGINAL, nested(_TUPLE_PROTOCOL, number))
    request += nested(_FILTER, attribute(_FILTER_ORIGINAL, struct.pack("=I", _BY_PROTOCOL)))
    for body in tracking.dump(_GET, _HEAD + request):
        one = parse_connection(body)
        if one is not None and one.protocol == socket.IPPROTO_UDP:
            yield one


def parse_connection(body: bytes) -> Connection | None:
    """Return what a message tells; None for what has no ports, or is not of IPv4."""
    found = parse_attributes(body[len(_HEAD) :])
    original = parse_attributes(found.get(_ORIGINAL, b""))
    address = parse_attributes(original.get(_TUPLE_IP, b"")).get(_IP_DESTINATION, b"")
    protocol = parse_attributes(original.get(_TUPLE_PROTOCOL, b""))
    number, port = protocol.get(_PROTOCOL_NUMBER, b""), protocol.get(_DESTINATION_PORT, b"")
    if (len(address), len(number), len(port)) != (_ADDRESS_BYTES, 1, _PORT_BYTES):
        return None
    key = nested(_ORIGINAL, found[_ORIGINAL])
    if _ZONE in found:
        key += attribute(_ZONE, found[_ZONE])
    return Connection(number[0], socket.inet_ntoa(address), int.from_bytes(port, "big"), key)


def _is_of_this_host(address: str) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            any_socket.bind((address, 0))
        except OSError:
            return False
    return True
