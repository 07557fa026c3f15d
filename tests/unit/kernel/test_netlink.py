"""Netlink's messages and attributes: what is written comes back, and anything can be read."""

from __future__ import annotations

import socket
import struct

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sandbox.errors import HostError, SpecError
from sandbox.kernel import netlink
from sandbox.kernel.connections import Connection, parse_connection
from sandbox.kernel.links import Route, parse_route
from sandbox.kernel.private_network import find_free, parse_pool

ATTRIBUTES = st.dictionaries(st.integers(1, 0x3FFF), st.binary(max_size=40), max_size=8)


@given(ATTRIBUTES)
def test_attributes_come_back(values: dict[int, bytes]) -> None:
    data = b"".join(netlink.attribute(kind, payload) for kind, payload in values.items())

    assert len(data) % 4 == 0
    assert netlink.parse_attributes(data) == values


@given(st.binary(max_size=80))
def test_any_bytes_are_read(data: bytes) -> None:
    assert all(isinstance(payload, bytes) for payload in netlink.parse_attributes(data).values())
    assert all(len(body) <= len(data) for _, _, body in netlink.split_messages(data))
    parse_route(data)


def test_a_nested_attribute_holds_others() -> None:
    data = netlink.nested(18, netlink.text(1, "veth"), netlink.attribute(2, b"\1"))

    inner = netlink.parse_attributes(netlink.parse_attributes(data)[18])
    assert inner == {1: b"veth\0", 2: b"\1"}


@given(
    network=st.integers(0, (1 << 32) - 1),
    length=st.integers(0, 32),
    interfaces=st.lists(st.integers(1, 1 << 20), max_size=3),
    table=st.integers(1, 1 << 20),
)
def test_a_route_comes_back(network: int, length: int, interfaces: list[int], table: int) -> None:
    body = struct.pack("=BBBBBBBBI", socket.AF_INET, length, 0, 0, min(table, 252), 0, 0, 1, 0)
    body += netlink.attribute(1, struct.pack("!I", network))
    body += netlink.attribute(15, struct.pack("=I", table))
    if len(interfaces) == 1:
        body += netlink.attribute(4, struct.pack("=i", interfaces[0]))
    else:
        hops = b"".join(struct.pack("=HBBi", 8, 0, 0, index) for index in interfaces)
        body += netlink.attribute(9, hops)

    assert parse_route(body) == Route(network, length, tuple(interfaces), table)


@given(
    protocol=st.integers(0, 255),
    port=st.integers(0, 65535),
    address=st.integers(0, (1 << 32) - 1),
    zone=st.none() | st.integers(1, 65535),
)
def test_a_connection_comes_back(protocol: int, port: int, address: int, zone: int | None) -> None:
    ends = netlink.attribute(1, bytes(4)) + netlink.attribute(2, struct.pack("!I", address))
    kind = netlink.attribute(1, bytes([protocol])) + netlink.attribute(3, struct.pack("!H", port))
    key = netlink.nested(1, netlink.nested(1, ends), netlink.nested(2, kind))
    if zone is not None:
        key += netlink.attribute(18, struct.pack("!H", zone))

    found = parse_connection(bytes(4) + netlink.attribute(3, bytes(4)) + key)

    assert found == Connection(protocol, socket.inet_ntoa(struct.pack("!I", address)), port, key)


@given(st.binary(max_size=120))
def test_any_bytes_are_a_connection_or_none(data: bytes) -> None:
    found = parse_connection(data)
    assert found is None or found.key


def test_a_route_of_another_kind_is_none() -> None:
    assert parse_route(struct.pack("=BBBBBBBBI", socket.AF_INET6, 0, 0, 0, 254, 0, 0, 1, 0)) is None


# --- addresses


def route(text: str) -> Route:
    address, _, length = text.partition("/")
    return Route(int.from_bytes(socket.inet_aton(address), "big"), int(length), (1,), 254)


def free(*routes: str, pools: tuple[str, ...] = ("10.209.0.0/24",)) -> str:
    found = find_free(map(route, routes), [parse_pool(pool) for pool in pools])
    return socket.inet_ntoa(found.to_bytes(4, "big"))


def test_the_first_free_place_is_taken() -> None:
    assert free() == "10.209.0.0"
    assert free("0.0.0.0/0") == "10.209.0.0"
    assert free("10.209.0.0/30") == "10.209.0.4"
    assert free("10.209.0.6/32", "10.209.0.0/30") == "10.209.0.8"
    assert free("10.209.0.4/30") == "10.209.0.0"
    assert free("10.0.0.0/8", pools=("10.209.0.0/16", "172.29.0.0/16")) == "172.29.0.0"


def test_a_full_pool_is_an_error_that_names_the_setting() -> None:
    with pytest.raises(HostError, match="no address") as caught:
        free("10.209.0.0/30", pools=("10.209.0.0/30",))
    assert "SANDBOX_NETWORK_POOL" in (caught.value.hint or "")


@given(
    st.lists(st.tuples(st.integers(0, (1 << 10) - 1), st.integers(20, 32)), max_size=12),
    st.integers(22, 30),
)
def test_what_is_found_overlaps_nothing(taken: list[tuple[int, int]], bits: int) -> None:
    first = 0x0AD10000
    routes = [
        Route((first + offset) >> (32 - length) << (32 - length), length, (1,), 254)
        for offset, length in taken
    ]
    try:
        found = find_free(routes, [(first, bits)])
    except HostError:
        found = -1
    places = range(first, first + (1 << 32 - bits), 4)
    untouched = [place for place in places if not any(_overlap(place, one) for one in routes)]
    assert found == (untouched[0] if untouched else -1)


def _overlap(place: int, one: Route) -> bool:
    return place < one.network + (1 << 32 - one.prefix_length) and one.network < place + 4


@pytest.mark.parametrize(
    "text", ["", "10.0.0.0", "10.0.0.0/31", "10.0.0.1/24", "10.0.0.0/0", "x/8", "::/8", "1.2.3.4/٣"]
)
def test_what_is_no_pool_is_refused(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_pool(text)
    assert caught.value.hint


@given(st.text(max_size=20))
def test_any_text_is_a_pool_or_refused(text: str) -> None:
    try:
        first, bits = parse_pool(text)
    except SpecError:
        return
    assume(text.count("/") == 1)
    assert first % (1 << 32 - bits) == 0
    assert 1 <= bits <= 30
