"""Docker's words for published ports, and which of them cannot be meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.environment.port_flags import parse_all, parse_publish
from sandbox.errors import SpecError
from sandbox.records.enclosure import Network, RootSpec
from sandbox.records.ports import PublishedPort, check_ports
from sandbox.spec import RunSpec

PORTS = st.integers(1, 65535)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("80", "0.0.0.0:?->80/tcp"),
        (":80", "0.0.0.0:?->80/tcp"),
        ("0:80", "0.0.0.0:?->80/tcp"),
        ("8080:80", "0.0.0.0:8080->80/tcp"),
        ("8080:80/UDP", "0.0.0.0:8080->80/udp"),
        ("127.0.0.1:8080:80/tcp", "127.0.0.1:8080->80/tcp"),
        ("127.0.0.1::80", "127.0.0.1:?->80/tcp"),
        (":8080:80", "0.0.0.0:8080->80/tcp"),
    ],
)
def test_docker_writes_it_so(text: str, shown: str) -> None:
    (port,) = parse_publish(text)

    assert port.text == shown


def test_ranges_are_as_many_ports() -> None:
    assert [port.text for port in parse_publish("8000-8002:80-82/udp")] == [
        "0.0.0.0:8000->80/udp",
        "0.0.0.0:8001->81/udp",
        "0.0.0.0:8002->82/udp",
    ]
    assert [port.outside for port in parse_publish("80-81")] == ["0.0.0.0:?"] * 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "80/",
        "80/sctp",
        "70000",
        "0",
        "80:",
        "1:2:3:4",
        "localhost:8080:80",
        "127.0.0.1:80",
        "[::1]:8080:80",
        "::1:8080:80",
        "8000-8001:80",
        "82-80",
        "-1:80",
        "٣:80",
    ],
)
def test_what_is_no_port_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_publish(text)
    assert caught.value.hint


@given(st.text(max_size=24))
def test_any_text_is_ports_or_refused(text: str) -> None:
    try:
        ports = parse_publish(text)
    except SpecError:
        return
    assert ports


@given(inside=PORTS, outside=st.none() | PORTS, protocol=st.sampled_from(["tcp", "udp"]))
def test_what_is_written_comes_back(inside: int, outside: int | None, protocol: str) -> None:
    host = "" if outside is None else f"{outside}:"

    assert parse_publish(f"{host}{inside}/{protocol}") == (
        PublishedPort(container_port=inside, host_port=outside, protocol=protocol),
    )


def test_the_same_words_count_once_and_two_ends_are_refused() -> None:
    assert len(parse_all(["80:80", "80:80", "80", "81"])) == 3
    for texts in (["80:80", "80:81"], ["80:80", "127.0.0.1:80:81"]):
        with pytest.raises(SpecError, match="twice"):
            check_ports(parse_all(texts), "private")
    check_ports(parse_all(["80:80", "80:80/udp", "80", "80/udp"]), "private")
    check_ports(parse_all(["127.0.0.1:80:80", "127.0.0.2:80:80"]), "private")


@pytest.mark.parametrize("network", ["host", "none"])
def test_only_a_private_network_has_ports(network: str) -> None:
    ports = parse_all(["80"])
    with pytest.raises(SpecError, match=f"--network {network}") as caught:
        RunSpec(command=("true",), network=network, ports=ports)
    assert "--network private" in (caught.value.hint or "")
    with pytest.raises(SpecError, match=f"--network {network}"):
        RunSpec(root=RootSpec(image="x", network=Network(network)), command=(), ports=ports)
    RunSpec(root=RootSpec(image="x", network=Network.PRIVATE), command=(), ports=ports)
