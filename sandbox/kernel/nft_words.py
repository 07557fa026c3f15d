"""What rules of nftables are made of: expressions, as the kernel reads them.

A rule is a list of expressions; each loads something into a register, compares a register, or
decides. The first comparison that fails ends the rule.
"""

from __future__ import annotations

import socket
import struct

from sandbox.kernel.netlink import attribute, nested, text

DROP, ACCEPT = 0, 1
EQUAL, UNEQUAL = 0, 1
META_IN, META_OUT = 6, 7
ESTABLISHED_OR_RELATED, NEW = 0x2 | 0x4, 0x8
SOURCE, DESTINATION = 12, 16
"""Where the addresses are in a head of IPv4."""

_EXPRESSION_NAME, _EXPRESSION_DATA, _ELEMENT = 1, 2, 1
_VERDICT, _REGISTER, _SECOND_REGISTER = 0, 1, 2
_META_PROTOCOL = 16
_CT_STATE, _CT_STATUS, _STATUS_REDIRECTED = 0, 2, 0x20
_NETWORK_HEADER, _TRANSPORT_HEADER = 1, 2
_DESTINATION_PORT = 2
_ADDRESS_BYTES, _PORT_BYTES = 4, 2
_NAME_BYTES = 16
_NAT_DESTINATION = 1
_FIB_DESTINATION, _FIB_KIND, _KIND_LOCAL = 0x2, 3, 2
_PROTOCOL_NUMBERS = {"tcp": socket.IPPROTO_TCP, "udp": socket.IPPROTO_UDP}


def number(value: int) -> bytes:
    """Return a number as nftables wants it; priorities may be negative."""
    return struct.pack("!I", value & 0xFFFF_FFFF)


def expression(name: str, *parts: bytes) -> bytes:
    """Return one expression."""
    return nested(_ELEMENT, text(_EXPRESSION_NAME, name), nested(_EXPRESSION_DATA, *parts))


def compare_start(key: int, operation: int, value: bytes) -> list[bytes]:
    """Compare the beginning of an interface's name: as much as there is of the value."""
    return [_meta(key), _compare(operation, value)]


def interface(key: int, operation: int, name: str) -> list[bytes]:
    """Compare the whole name of an interface."""
    return compare_start(key, operation, name.encode().ljust(_NAME_BYTES, b"\0"))


def address(place: int, value: int, prefix_length: int = 32) -> list[bytes]:
    """Compare an address of the packet, or as many bits of it."""
    packed = struct.pack("!I", value)
    load = [_payload(_NETWORK_HEADER, place, _ADDRESS_BYTES)]
    if prefix_length < _ADDRESS_BYTES * 8:
        load.append(_mask(struct.pack("!I", -1 << 32 - prefix_length & 0xFFFF_FFFF)))
    return [*load, _compare(EQUAL, packed)]


def to_this_host() -> list[bytes]:
    """Let pass on what is for an address of this host, whichever."""
    load = expression(
        "fib",
        attribute(1, number(_REGISTER)),
        attribute(2, number(_FIB_KIND)),
        attribute(3, number(_FIB_DESTINATION)),
    )
    return [load, _compare(EQUAL, struct.pack("=I", _KIND_LOCAL))]


def to_port(protocol: str, port: int) -> list[bytes]:
    """Let pass on what is for a port of `tcp` or `udp`."""
    return [
        _meta(_META_PROTOCOL),
        _compare(EQUAL, bytes([_PROTOCOL_NUMBERS[protocol]])),
        _payload(_TRANSPORT_HEADER, _DESTINATION_PORT, _PORT_BYTES),
        _compare(EQUAL, struct.pack("!H", port)),
    ]


def state(bits: int) -> list[bytes]:
    """Let pass on what is in one of the states; conntrack's bits are in the host's order."""
    return _tracked(_CT_STATE, bits)


def redirected() -> list[bytes]:
    """Let pass on what belongs to a connection that was sent elsewhere by a rule."""
    return _tracked(_CT_STATUS, _STATUS_REDIRECTED)


def send_to(value: int, port: int) -> list[bytes]:
    """Give the packet, and all of its connection, another destination."""
    return [
        _immediate(_REGISTER, nested(2, attribute(1, struct.pack("!I", value)))),
        _immediate(_SECOND_REGISTER, nested(2, attribute(1, struct.pack("!H", port)))),
        expression(
            "nat",
            attribute(1, number(_NAT_DESTINATION)),
            attribute(2, number(socket.AF_INET)),
            attribute(3, number(_REGISTER)),
            attribute(5, number(_SECOND_REGISTER)),
        ),
    ]


def masquerade() -> bytes:
    """Put the address of the interface that it leaves by in the place of its source."""
    return expression("masq")


def verdict(code: int) -> bytes:
    """Decide."""
    return _immediate(_VERDICT, nested(2, nested(2, attribute(1, number(code)))))


def _immediate(register: int, data: bytes) -> bytes:
    return expression("immediate", attribute(1, number(register)), data)


def _meta(key: int) -> bytes:
    return expression("meta", attribute(1, number(_REGISTER)), attribute(2, number(key)))


def _payload(header: int, place: int, size: int) -> bytes:
    return expression(
        "payload",
        attribute(1, number(_REGISTER)),
        attribute(2, number(header)),
        attribute(3, number(place)),
        attribute(4, number(size)),
    )


def _tracked(key: int, bits: int) -> list[bytes]:
    load = expression("ct", attribute(1, number(_REGISTER)), attribute(2, number(key)))
    return [load, _mask(struct.pack("=I", bits)), _compare(UNEQUAL, bytes(4))]


def _mask(value: bytes) -> bytes:
    return expression(
        "bitwise",
        attribute(1, number(_REGISTER)),
        attribute(2, number(_REGISTER)),
        attribute(3, number(4)),
        nested(4, attribute(1, value)),
        nested(5, attribute(1, bytes(4))),
    )


def _compare(operation: int, value: bytes) -> bytes:
    return expression(
        "cmp",
        attribute(1, number(_REGISTER)),
        attribute(2, number(operation)),
        nested(3, attribute(1, value)),
    )
