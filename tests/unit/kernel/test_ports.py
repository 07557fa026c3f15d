"""Ports of the host that are taken for a run, and why one cannot be."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack, closing

import pytest

from sandbox.errors import HostError
from sandbox.kernel.ports import reserve
from sandbox.records.ports import PublishedPort

LOOPBACK = "127.0.0.1"


def port(number: int | None, **values: str) -> PublishedPort:
    return PublishedPort(container_port=80, host_port=number, host_address=LOOPBACK, **values)


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_taken_port_is_taken_until_it_is_let_go(protocol: str) -> None:
    with ExitStack() as held:
        (taken,) = reserve([port(None, protocol=protocol)], held)
        assert taken.host_port
        with ExitStack() as other, pytest.raises(HostError, match="in use") as caught:
            reserve([taken], other)
        inside = "80" if protocol == "tcp" else "80/udp"
        assert f"`-p {LOOPBACK}:OTHER:{inside}`" in (caught.value.hint or "")
        assert f"`-p {LOOPBACK}::{inside}`" in (caught.value.hint or "")
    with ExitStack() as held:
        assert reserve([taken], held) == (taken,)


def test_the_hint_for_all_addresses_names_none() -> None:
    with ExitStack() as held:
        (taken,) = reserve([PublishedPort(container_port=80)], held)
        with ExitStack() as other, pytest.raises(HostError, match="in use") as caught:
            reserve([taken], other)
    assert caught.value.hint == "another one: `-p OTHER:80`; or any: `-p 80`"


def test_a_server_that_has_just_ended_is_not_in_the_way() -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        place = server.getsockname()
        with closing(socket.create_connection(place)):
            server.accept()[0].close()  # this end closes first, and waits for a minute
    with ExitStack() as held:
        reserve([port(place[1])], held)


def test_a_free_port_is_none_that_was_asked_for() -> None:
    with ExitStack() as held:
        (known,) = reserve([port(None)], held)
    with ExitStack() as held:
        free, asked = reserve([port(None), known], held)
    assert asked == known
    assert free.host_port != known.host_port


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (errno.EACCES, "not allowed"),
        (errno.EADDRNOTAVAIL, "no address of this host"),
        (errno.ENOBUFS, "buffer"),
    ],
)
def test_the_error_says_why(monkeypatch: pytest.MonkeyPatch, code: int, said: str) -> None:
    class Refusing(socket.socket):
        def bind(self, *_: object) -> None:
            raise OSError(code, "no buffer space")

    monkeypatch.setattr(socket, "socket", Refusing)
    with ExitStack() as held, pytest.raises(HostError, match=said) as caught:
        reserve([port(8080)], held)
    assert caught.value.hint


def test_more_ports_than_a_batch_holds_are_refused() -> None:
    ports = [port(number) for number in range(2000, 2065)]
    with ExitStack() as held, pytest.raises(HostError, match="65 published ports") as caught:
        reserve(ports, held)
    assert caught.value.hint
