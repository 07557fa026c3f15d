"""Docker's words for privileges, devices and GPUs: what they mean, and what is refused."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.environment import security_flags as flags
from sandbox.errors import SpecError
from sandbox.records.security import Device, DeviceRule, Gpus, Sharing

PARSERS = (
    flags.parse_capability,
    flags.parse_device,
    flags.parse_device_rule,
    flags.parse_gpus,
    flags.parse_ipc,
    flags.parse_pid,
    lambda text: flags.parse_security_opts([text]),
    lambda text: flags.parse_places([text]),
)


@pytest.mark.parametrize("parse", PARSERS)
@given(text=st.one_of(st.text(), st.from_regex(r"[/a-z=:,\" 0-9]{0,12}", fullmatch=True)))
def test_any_text_is_a_value_or_one_error(parse: object, text: str) -> None:
    assert callable(parse)
    with suppress(SpecError):
        parse(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [("SYS_ADMIN", "sys_admin"), ("CAP_CHOWN", "chown"), ("cap_bpf", "bpf"), ("ALL", "all")],
)
def test_capabilities_have_several_spellings(text: str, name: str) -> None:
    assert flags.parse_capability(text) == name


@pytest.mark.parametrize(
    ("texts", "fields"),
    [
        (["no-new-privileges"], {"no_new_privileges": True}),
        (["no-new-privileges:false"], {"no_new_privileges": False}),
        (
            ["no-new-privileges=true", "seccomp=unconfined"],
            {"no_new_privileges": True, "seccomp": "unconfined"},
        ),
        (["seccomp=/a/b.json"], {"seccomp": "/a/b.json"}),
        (["seccomp:unconfined"], {"seccomp": "unconfined"}),
        (["apparmor=unconfined", "label=disable"], {}),
    ],
)
def test_security_options_are_docker_s(texts: list[str], fields: dict[str, object]) -> None:
    found = flags.parse_security_opts(texts)

    assert found == fields


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("apparmor=docker-default", "cannot be promised"),
        ("label=level:s0", "cannot be promised"),
        ("seccomp=", "names no profile"),
        ("no-new-privileges=maybe", "neither true nor false"),
        ("systempaths=unconfined", "no security option"),
    ],
)
def test_what_would_be_an_empty_promise_is_refused(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        flags.parse_security_opts([text])


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("/dev/fuse", Device(source="/dev/fuse", target="/dev/fuse")),
        ("/dev/fuse:rwm", Device(source="/dev/fuse", target="/dev/fuse")),
        ("/dev/a:/dev/b", Device(source="/dev/a", target="/dev/b")),
        ("/dev/a:/dev/b:rw", Device(source="/dev/a", target="/dev/b", permissions="rw")),
        ("/dev/a:r", Device(source="/dev/a", target="/dev/a", permissions="r")),
    ],
)
def test_devices_have_a_place_inside(text: str, device: Device) -> None:
    assert flags.parse_device(text) == device


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/dev/a:x", "are not permissions"),
        ("fuse", "is not a device"),
        ("/dev/a:/../b:rw", "cannot be"),
        ("/dev/a:/b:rw:x", "is not a device"),
    ],
)
def test_what_is_no_device_is_refused(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        flags.parse_device(text)


NUMBERS = st.none() | st.integers(0, (1 << 20) - 1)
ACCESS = st.lists(st.sampled_from("rwm"), min_size=1, max_size=3).map("".join)


@given(kind=st.sampled_from("abc"), major=NUMBERS, minor=NUMBERS, access=ACCESS)
def test_rules_on_devices_are_dockers(
    kind: str, major: int | None, minor: int | None, access: str
) -> None:
    first, second = ("*" if number is None else number for number in (major, minor))

    rule = flags.parse_device_rule(f"{kind} {first}:{second} {access}")

    assert rule == DeviceRule(kind=kind, major=major, minor=minor, access=access)


@pytest.mark.parametrize(
    "text",
    [
        *("", "a", "c 1:3", "c 1:3 ", "c 1 r", "c x:3 r", "d 1:3 r", "c 1:-3 r", "c 1:3 x"),
        *("c 1:3 r ", "c  1:3 r", "c 1:1048576 r", "c 1:٣ r"),
    ],
)
def test_what_is_no_rule_on_devices_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="not a rule on devices"):
        flags.parse_device_rule(text)


def test_gpus_are_all_some_or_named() -> None:
    assert flags.parse_gpus("all") == Gpus()
    assert flags.parse_gpus("2") == Gpus(count=2)
    assert flags.parse_gpus('"device=0,1"') == Gpus(devices=("0", "1"))
    for text in ("0", "none", "device=", "device=0,capabilities=utility"):
        with pytest.raises(SpecError, match="does not say which"):
            flags.parse_gpus(text)


def test_namespaces_of_others_cannot_be_joined() -> None:
    assert flags.parse_ipc("shareable") is Sharing.PRIVATE
    assert flags.parse_pid("host") is Sharing.HOST
    with pytest.raises(SpecError, match="cannot join"):
        flags.parse_ipc("container:x")
    with pytest.raises(SpecError, match="cannot be `none`"):
        flags.parse_pid("none")


def test_places_stay_where_they_are() -> None:
    assert flags.parse_places(["/a:/a", "/b:/b:ro", "/c"]) == (("/a", "/c"), ("/b",))
    with pytest.raises(SpecError, match="a place cannot be another"):
        flags.parse_places(["/a:/b"])
