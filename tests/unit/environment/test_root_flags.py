"""Docker's syntax for mounts and hosts: what is understood, and what is refused with one error."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.environment.root_flags import (
    parse_add_host,
    parse_hostname,
    parse_mount,
    parse_network,
    parse_tmpfs,
    parse_volume,
)
from sandbox.errors import SpecError
from sandbox.records.enclosure import Mount, MountKind, Network

BIND, TMPFS, VOLUME = MountKind.BIND, MountKind.TMPFS, MountKind.VOLUME


@pytest.mark.parametrize(
    ("text", "mount"),
    [
        ("/a:/b", Mount(kind=BIND, source="/a", target="/b")),
        ("./a:/b/./c//d/:ro,z", Mount(kind=BIND, source="./a", target="/b/c/d", read_only=True)),
        (".:/b:rw", Mount(kind=BIND, source=".", target="/b")),
        ("/data", Mount(kind=VOLUME, target="/data")),
    ],
)
def test_a_volume_is_understood(text: str, mount: Mount) -> None:
    assert parse_volume(text) == mount


@pytest.mark.parametrize(
    ("text", "mount"),
    [
        (
            "type=bind,src=/a,dst=/b,readonly",
            Mount(kind=BIND, source="/a", target="/b", read_only=True),
        ),
        ("type=bind,source=/a,target=/b,ro=false", Mount(kind=BIND, source="/a", target="/b")),
        (
            "type=tmpfs,destination=/t,tmpfs-size=1m,tmpfs-mode=0700",
            Mount(kind=TMPFS, target="/t", size_bytes=1 << 20, mode=0o700),
        ),
        ("target=/v", Mount(kind=VOLUME, target="/v")),
    ],
)
def test_a_mount_is_understood(text: str, mount: Mount) -> None:
    assert parse_mount(text) == mount


def test_a_tmpfs_is_understood() -> None:
    assert parse_tmpfs("/t") == Mount(kind=TMPFS, target="/t", executable=False)
    assert parse_tmpfs("/t:size=64k,mode=755,exec,ro") == Mount(
        kind=TMPFS, target="/t", size_bytes=64 << 10, mode=0o755, read_only=True
    )


@pytest.mark.parametrize(
    "text",
    ["name:/b", "/a:b", "/a:/", "/a:/b/../c", "/a:/proc", "/a:/sys/x", "/a:/b:shared", ":/b", ""],
)
def test_a_volume_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        parse_volume(text)


@pytest.mark.parametrize(
    "text", ["type=bind,target=/b", "type=npipe,target=/b", "target=/b,a=b", "source=x,target=/b"]
)
def test_a_mount_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        parse_mount(text)


def test_a_tilde_in_the_target_is_explained() -> None:
    with pytest.raises(SpecError, match="means nothing inside"):
        parse_volume("/data:~/Documents")


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("db:10.0.0.7", ("db", "10.0.0.7")),
        ("db:::1", ("db", "::1")),
        ("db=[::1]", ("db", "::1")),
        ("here:host-gateway", ("here", "127.0.0.1")),
    ],
)
def test_a_host_and_its_address_are_understood(text: str, pair: tuple[str, str]) -> None:
    assert parse_add_host(text) == pair


@pytest.mark.parametrize("text", ["db", "db:", "db:x", ":10.0.0.1", "a b:10.0.0.1", "a\n:1.1.1.1"])
def test_what_is_no_host_and_address_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        parse_add_host(text)


def test_networks_and_host_names_are_understood_or_refused() -> None:
    assert parse_network("none") is Network.NONE
    assert parse_network("private") is parse_network("bridge") is Network.PRIVATE
    assert parse_hostname("box-1.local") == "box-1.local"
    with pytest.raises(SpecError, match="no network"):
        parse_network("container:x")
    with pytest.raises(SpecError, match="host name"):
        parse_hostname("a b")


@pytest.mark.parametrize("parse", [parse_volume, parse_mount, parse_tmpfs, parse_add_host])
@given(text=st.text(st.sampled_from("a/:,=.~rotypeindms1[]\0 "), max_size=30))
def test_any_text_is_understood_or_refused(parse: Callable[[str], object], text: str) -> None:
    try:
        found = parse(text)
    except SpecError:
        return
    if isinstance(found, Mount):
        assert found.target.startswith("/")
        assert ".." not in found.target.split("/")
