"""What carries a plain user's packets, and when its network is ready."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import HostError
from sandbox.kernel.ports import reserve
from sandbox.kernel.user_network import (
    _find_ports,
    find_carrier,
    has_default_route,
    has_default_route6,
)
from sandbox.records.light import replace
from sandbox.records.ports import PublishedPort

HEAD = b"Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
LOCAL = b"eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
DEFAULT = b"eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
ZERO = b"0" * 32
LOOPBACK6 = (
    ZERO + b" 00 " + ZERO + b" 00 " + ZERO + b" ffffffff 00000001 00000000 00200200       lo\n"
)


def programs(directory: Path, *names: str) -> str:
    for name in names:
        (directory / name).write_text("#!/bin/sh\n")
        (directory / name).chmod(0o755)
    return str(directory)


def test_pasta_is_preferred_and_lets_nothing_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", programs(tmp_path, "pasta", "slirp4netns"))

    words = find_carrier(42)

    assert words[0] == str(tmp_path / "pasta")
    assert words[-1] == "42"
    assert words.count("none") == 4
    assert "--no-map-gw" in words


def test_pasta_lets_in_by_the_ports_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", programs(tmp_path, "pasta"))
    ports = [
        PublishedPort(container_port=80, host_port=8080),
        PublishedPort(container_port=81, host_port=8081, host_address="127.0.0.1"),
    ]

    words = " ".join(find_carrier(42, ports))

    assert "-t 0.0.0.0/8080:80 -t 127.0.0.1/8081:81 -u none -T none -U none" in words


def test_a_free_port_of_udp_is_the_same_one_if_it_is_free() -> None:
    asked = PublishedPort(container_port=1, protocol="udp", host_address="127.0.0.1")
    with ExitStack() as held:
        (one,) = reserve([asked], held)
        taken = replace(one, container_port=one.host_port or 0, host_port=None)
        (other,) = _find_ports([taken])
    (same,) = _find_ports([taken])

    assert same.host_port == taken.container_port
    assert other.host_port not in {None, taken.container_port}


def test_slirp_publishes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", programs(tmp_path, "slirp4netns"))

    with pytest.raises(HostError, match="published by `pasta`") as caught:
        find_carrier(42, [PublishedPort(container_port=80, host_port=8080)])
    assert "apt install passt" in (caught.value.hint or "")


def test_slirp_will_do_and_does_not_reach_the_hosts_loopback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", programs(tmp_path, "slirp4netns"))

    words = find_carrier(42)

    assert words[0] == str(tmp_path / "slirp4netns")
    assert "--disable-host-loopback" in words
    assert "--userns-path=/proc/42/ns/user" in words


def test_without_either_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(HostError, match="neither is here") as caught:
        find_carrier(42)
    assert "apt install passt" in (caught.value.hint or "")


def test_a_default_route_is_told_from_others() -> None:
    assert not has_default_route(b"")
    assert not has_default_route(HEAD + LOCAL)
    assert has_default_route(HEAD + LOCAL + DEFAULT)
    assert not has_default_route6(LOOPBACK6)
    assert has_default_route6(LOOPBACK6 + LOOPBACK6.replace(b"      lo", b"    eth0"))


@given(st.binary(max_size=200))
def test_any_bytes_are_read(data: bytes) -> None:
    assert has_default_route(HEAD + data) in {True, False}
    assert has_default_route6(data) in {True, False}
