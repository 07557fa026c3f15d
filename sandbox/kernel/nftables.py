"""The rules that a private network needs, in a table that goes with the socket that made it.

The kernel removes such a table when its owner's socket is closed (NFT_TABLE_F_OWNER, Linux 5.12):
so also when its process is killed, and no `nft` is needed for it.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

from sandbox.kernel import netlink
from sandbox.kernel import nft_words as words
from sandbox.kernel.netlink import Netlink, attribute, nested, text
from sandbox.records.ports import ANY_ADDRESS, PublishedPort

_SUBSYSTEM = 10
_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_NEW_TABLE, _DEL_TABLE, _NEW_CHAIN, _GET_CHAIN, _NEW_RULE, _GET_RULE = 0, 2, 3, 4, 6, 7
_OWNER = 0x2
_HEAD = struct.Struct("!BBH")  # family, version, and for a batch the subsystem
_IPV4 = _HEAD.pack(socket.AF_INET, 0, 0)

_TABLE_NAME, _TABLE_FLAGS = 1, 2
_CHAIN_TABLE, _CHAIN_NAME, _CHAIN_HOOK, _CHAIN_POLICY, _CHAIN_TYPE = 1, 3, 4, 5, 7
_HOOK_NUMBER, _HOOK_PRIORITY = 1, 2
_RULE_TABLE, _RULE_CHAIN, _RULE_EXPRESSIONS = 1, 2, 4

_HOOK_PREROUTING, _HOOK_FORWARD, _HOOK_OUTPUT, _HOOK_POSTROUTING = 0, 2, 3, 4
_PRIORITY_DESTINATION_NAT, _PRIORITY_FILTER, _PRIORITY_SOURCE_NAT = -100, 0, 100
_LOOPBACK, _LOOPBACK_BITS = 0x7F000000, 8


Rule = tuple[str, list[bytes]]
"""Its expressions, and the chain that it belongs to."""


def make_table(  # noqa: PLR0913 - all that the rules are about
    filters: Netlink,
    table: str,
    *,
    veth: str,
    address: int,
    prefix: str,
    opened: Iterable[str],
    ports: Sequence[PublishedPort] = (),
) -> None:
    """Make all the rules of one run, at once.

    Args:
        filters: The socket that owns them.
        table: Its name.
        veth: The host's end of the run's pair.
        address: The run's own, which the host's takes the place of on the way out.
        prefix: What the names of all such ends begin with.
        opened: Interfaces that forward for our sake alone: from these nothing new goes elsewhere.
        ports: Those of the host that lead to the run's.

    Raises:
        OSError: this kernel lacks a part of nf_tables, or is older than 5.12 (EINVAL,
            EOPNOTSUPP); or not allowed.
    """
    chains = [
        _chain(table, "nat", "nat", (_HOOK_POSTROUTING, _PRIORITY_SOURCE_NAT)),
        _chain(table, "forward", "filter", (_HOOK_FORWARD, _PRIORITY_FILTER)),
    ]
    rules = [*_list_published(veth, address, ports)]
    if ports:
        chains += [
            _chain(table, "arriving", "nat", (_HOOK_PREROUTING, _PRIORITY_DESTINATION_NAT)),
            _chain(table, "leaving", "nat", (_HOOK_OUTPUT, _PRIORITY_DESTINATION_NAT)),
        ]
    rules += _list_basic(veth, address, prefix, opened)
    begin = _HEAD.pack(socket.AF_UNSPEC, 0, _SUBSYSTEM)
    flags = attribute(_TABLE_FLAGS, words.number(_OWNER))
    messages = [
        (_BATCH_BEGIN, begin, 0),
        (_kind(_NEW_TABLE), _IPV4 + text(_TABLE_NAME, table) + flags, netlink.CREATE),
        *chains,
        *(_rule(table, chain, expressions) for chain, expressions in rules),
        (_BATCH_END, begin, 0),
    ]
    filters.batch(messages)


def remove_table(filters: Netlink, table: str) -> None:
    """Remove a table now; what the kernel needs for that it does while we go on.

    Closing the socket would wait for it.

    Raises:
        OSError: there is none, or it is not ours.
    """
    begin = _HEAD.pack(socket.AF_UNSPEC, 0, _SUBSYSTEM)
    body = _IPV4 + text(_TABLE_NAME, table)
    filters.batch([(_BATCH_BEGIN, begin, 0), (_kind(_DEL_TABLE), body, 0), (_BATCH_END, begin, 0)])


def _list_basic(veth: str, address: int, prefix: str, opened: Iterable[str]) -> list[Rule]:
    """Return what lets a run out, and nobody in."""
    out = words.interface(words.META_OUT, words.EQUAL, veth)
    elsewhere = words.interface(words.META_OUT, words.UNEQUAL, veth)
    source = words.address(words.SOURCE, address)
    known = words.state(words.ESTABLISHED_OR_RELATED)
    rules = [
        ("nat", [*source, *elsewhere, words.masquerade()]),
        ("forward", [*out, *known, words.verdict(words.ACCEPT)]),
        ("forward", [*out, words.verdict(words.DROP)]),
    ]
    for name in opened:
        into = words.interface(words.META_IN, words.EQUAL, name)
        other = words.compare_start(words.META_OUT, words.UNEQUAL, prefix.encode())
        new = words.state(words.NEW)
        rules.append(("forward", [*into, *other, *new, words.verdict(words.DROP)]))
    return rules


def _list_published(veth: str, address: int, ports: Sequence[PublishedPort]) -> Iterator[Rule]:
    """Yield what lets others in by ports of the host's; before the rules that let nobody in."""
    if not ports:
        return
    out = words.interface(words.META_OUT, words.EQUAL, veth)
    for port in ports:
        here = words.to_this_host()
        if port.host_address != ANY_ADDRESS:
            wanted = int.from_bytes(socket.inet_aton(port.host_address), "big")
            here = words.address(words.DESTINATION, wanted)
        asked = words.to_port(port.protocol, port.host_port or 0)
        for chain in ("arriving", "leaving"):
            yield chain, [*here, *asked, *words.send_to(address, port.container_port)]
    # Answers to the loopback, and to the run by its own port, have to come back by the host.
    from_loopback = words.address(words.SOURCE, _LOOPBACK, _LOOPBACK_BITS)
    for source in (from_loopback, words.address(words.SOURCE, address)):
        yield "nat", [*out, *source, words.masquerade()]
    yield "forward", [*out, *words.redirected(), words.verdict(words.ACCEPT)]


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
        hook.get(_HOOK_NUMBER) == words.number(_HOOK_FORWARD)
        and chain.get(_CHAIN_POLICY) == words.number(words.DROP)
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


def _chain(table: str, name: str, kind: str, place: tuple[int, int]) -> tuple[int, bytes, int]:
    hook, priority = place
    at = nested(
        _CHAIN_HOOK,
        attribute(_HOOK_NUMBER, words.number(hook)),
        attribute(_HOOK_PRIORITY, words.number(priority)),
    )
    body = _IPV4 + text(_CHAIN_TABLE, table) + text(_CHAIN_NAME, name) + at
    body += attribute(_CHAIN_POLICY, words.number(words.ACCEPT)) + text(_CHAIN_TYPE, kind)
    return _kind(_NEW_CHAIN), body, netlink.CREATE


def _rule(table: str, chain: str, expressions: Iterable[bytes]) -> tuple[int, bytes, int]:
    body = _IPV4 + text(_RULE_TABLE, table) + text(_RULE_CHAIN, chain)
    return _kind(_NEW_RULE), body + nested(_RULE_EXPRESSIONS, *expressions), netlink.APPEND
