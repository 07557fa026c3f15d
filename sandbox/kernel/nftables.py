"""The rules that a private network needs, in a table that goes with the socket that made it.

The kernel removes such a table when its owner's socket is closed (NFT_TABLE_F_OWNER, Linux 5.12):
so also when its process is killed, and no `nft` is needed for it.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import closing

from sandbox.kernel import netlink
from sandbox.kernel.netlink import Netlink, attribute, nested, text

_SUBSYSTEM = 10
_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_NEW_TABLE, _NEW_CHAIN, _GET_CHAIN, _NEW_RULE, _GET_RULE = 0, 3, 4, 6, 7
_OWNER = 0x2
_HEAD = struct.Struct("!BBH")  # family, version, and for a batch the subsystem
_IPV4 = _HEAD.pack(socket.AF_INET, 0, 0)

_TABLE_NAME, _TABLE_FLAGS = 1, 2
_CHAIN_TABLE, _CHAIN_NAME, _CHAIN_HOOK, _CHAIN_POLICY, _CHAIN_TYPE = 1, 3, 4, 5, 7
_HOOK_NUMBER, _HOOK_PRIORITY = 1, 2
_RULE_TABLE, _RULE_CHAIN, _RULE_EXPRESSIONS = 1, 2, 4
_EXPRESSION_NAME, _EXPRESSION_DATA, _ELEMENT = 1, 2, 1

_HOOK_FORWARD, _HOOK_POSTROUTING = 2, 4
_PRIORITY_FILTER, _PRIORITY_SOURCE_NAT = 0, 100
_DROP, _ACCEPT = 0, 1
_REGISTER, _VERDICT = 1, 0
_EQUAL, _UNEQUAL = 0, 1
_META_IN, _META_OUT = 6, 7
_CT_STATE, _ESTABLISHED_OR_RELATED, _NEW = 0, 0x2 | 0x4, 0x8
_NETWORK_HEADER, _SOURCE_AT, _ADDRESS_BYTES = 1, 12, 4
_NAME_BYTES = 16


def make_table(  # noqa: PLR0913 - all that the rules are about
    filters: Netlink, table: str, *, veth: str, address: int, prefix: str, opened: Iterable[str]
) -> None:
    """Make all the rules of one run, at once.

    Args:
        filters: The socket that owns them.
        table: Its name.
        veth: The host's end of the run's pair.
        address: The run's own, which the host's takes the place of on the way out.
        prefix: What the names of all such ends begin with.
        opened: Interfaces that forward for our sake alone: from these nothing new goes elsewhere.

    Raises:
        OSError: this kernel lacks a part of nf_tables, or is older than 5.12 (EINVAL,
            EOPNOTSUPP); or not allowed.
    """
    out = _interface(_META_OUT, _EQUAL, veth)
    known = _state(_ESTABLISHED_OR_RELATED)
    rules = [
        ("nat", [*_source(address), *_interface(_META_OUT, _UNEQUAL, veth), _expression("masq")]),
        ("forward", [*out, *known, _verdict(_ACCEPT)]),
        ("forward", [*out, _verdict(_DROP)]),
    ]
    for name in opened:
        into = _interface(_META_IN, _EQUAL, name)
        other = _compare_start(_META_OUT, _UNEQUAL, prefix.encode())
        rules.append(("forward", [*into, *other, *_state(_NEW), _verdict(_DROP)]))
    begin = _HEAD.pack(socket.AF_UNSPEC, 0, _SUBSYSTEM)
    flags = attribute(_TABLE_FLAGS, _number(_OWNER))
    messages = [
        (_BATCH_BEGIN, begin, 0),
        (_kind(_NEW_TABLE), _IPV4 + text(_TABLE_NAME, table) + flags, netlink.CREATE),
        _chain(table, "nat", "nat", (_HOOK_POSTROUTING, _PRIORITY_SOURCE_NAT)),
        _chain(table, "forward", "filter", (_HOOK_FORWARD, _PRIORITY_FILTER)),
        *(_rule(table, chain, expressions) for chain, expressions in rules),
        (_BATCH_END, begin, 0),
    ]
    filters.batch(messages)


def find_closed(filters: Netlink, prefix: str) -> Iterator[str]:
    """Yield tables of others that drop what is forwarded unless a rule of theirs allows it.

    A packet has to be accepted in every table, so that no rule of ours can help. One that has a
    rule about interfaces whose names begin with `prefix` is taken to let them pass.

    Raises:
        OSError: the kernel refuses.
    """
    for family in (socket.AF_INET, 1):  # 1 is `inet`: both kinds of IP
        head = _HEAD.pack(family, 0, 0)
        for body in filters.dump(_kind(_GET_CHAIN), head):
            found = netlink.parse_attributes(body[_HEAD.size :])
            table = _name(found.get(_CHAIN_TABLE, b""))
            if _is_closed(found) and not _mentions(family, table, prefix):
                yield f"{'ip' if family == socket.AF_INET else 'inet'} {table}"


def _is_closed(chain: dict[int, bytes]) -> bool:
    hook = netlink.parse_attributes(chain.get(_CHAIN_HOOK, b""))
    return (
        hook.get(_HOOK_NUMBER) == _number(_HOOK_FORWARD)
        and chain.get(_CHAIN_POLICY) == _number(_DROP)
        and _name(chain.get(_CHAIN_TYPE, b"")) == "filter"
    )


def _mentions(family: int, table: str, prefix: str) -> bool:
    wanted = _HEAD.pack(family, 0, 0) + text(_RULE_TABLE, table)
    # A socket of its own: the list of chains is still being read on the other.
    with closing(Netlink(netlink.NETFILTER)) as others:
        bodies = [*others.dump(_kind(_GET_RULE), wanted)]
    return any(prefix.encode() in body for body in bodies)


def _name(data: bytes) -> str:
    return data.rstrip(b"\0").decode(errors="replace")


def _kind(number: int) -> int:
    return _SUBSYSTEM << 8 | number


def _number(value: int) -> bytes:
    return struct.pack("!I", value)


def _chain(table: str, name: str, kind: str, place: tuple[int, int]) -> tuple[int, bytes, int]:
    hook, priority = place
    at = nested(
        _CHAIN_HOOK,
        attribute(_HOOK_NUMBER, _number(hook)),
        attribute(_HOOK_PRIORITY, _number(priority)),
    )
    body = _IPV4 + text(_CHAIN_TABLE, table) + text(_CHAIN_NAME, name) + at
    body += attribute(_CHAIN_POLICY, _number(_ACCEPT)) + text(_CHAIN_TYPE, kind)
    return _kind(_NEW_CHAIN), body, netlink.CREATE


def _rule(table: str, chain: str, expressions: Iterable[bytes]) -> tuple[int, bytes, int]:
    body = _IPV4 + text(_RULE_TABLE, table) + text(_RULE_CHAIN, chain)
    return _kind(_NEW_RULE), body + nested(_RULE_EXPRESSIONS, *expressions), netlink.APPEND


def _expression(name: str, *parts: bytes) -> bytes:
    return nested(_ELEMENT, text(_EXPRESSION_NAME, name), nested(_EXPRESSION_DATA, *parts))


def _compare(operation: int, value: bytes) -> bytes:
    return _expression(
        "cmp",
        attribute(1, _number(_REGISTER)),
        attribute(2, _number(operation)),
        nested(3, attribute(1, value)),
    )


def _compare_start(key: int, operation: int, value: bytes) -> list[bytes]:
    """Compare the beginning of a name: as much as there is of the value."""
    load = _expression("meta", attribute(1, _number(_REGISTER)), attribute(2, _number(key)))
    return [load, _compare(operation, value)]


def _interface(key: int, operation: int, name: str) -> list[bytes]:
    return _compare_start(key, operation, name.encode().ljust(_NAME_BYTES, b"\0"))


def _source(address: int) -> list[bytes]:
    load = _expression(
        "payload",
        attribute(1, _number(_REGISTER)),
        attribute(2, _number(_NETWORK_HEADER)),
        attribute(3, _number(_SOURCE_AT)),
        attribute(4, _number(_ADDRESS_BYTES)),
    )
    return [load, _compare(_EQUAL, struct.pack("!I", address))]


def _state(bits: int) -> list[bytes]:
    """Let pass on what is in one of the states; conntrack's bits are in the host's order."""
    load = _expression("ct", attribute(1, _number(_REGISTER)), attribute(2, _number(_CT_STATE)))
    mask = _expression(
        "bitwise",
        attribute(1, _number(_REGISTER)),
        attribute(2, _number(_REGISTER)),
        attribute(3, _number(4)),
        nested(4, attribute(1, struct.pack("=I", bits))),
        nested(5, attribute(1, bytes(4))),
    )
    return [load, mask, _compare(_UNEQUAL, bytes(4))]


def _verdict(code: int) -> bytes:
    return _expression(
        "immediate",
        attribute(1, _number(_VERDICT)),
        nested(2, nested(2, attribute(1, _number(code)))),
    )
