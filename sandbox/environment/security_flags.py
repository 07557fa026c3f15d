"""Docker's syntax for privileges, devices and GPUs, to values."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from sandbox.errors import SpecError
from sandbox.records.security import UNCONFINED, Device, DeviceRule, Gpus, Sharing

_ALL_PERMISSIONS = frozenset("rwm")
_TRUE, _FALSE = frozenset({"", "true", "1"}), frozenset({"false", "0"})
_CONTAINERS = "container:"
_LARGEST_DEVICE_NUMBER = (1 << 20) - 1


def parse_capability(text: str) -> str:
    """Return `sys_admin` of `SYS_ADMIN`, `CAP_SYS_ADMIN` or `sys_admin`; `all` stays.

    Raises:
        SpecError: there is no such capability.
    """
    from sandbox.kernel.capabilities import NAMES

    name = text.lower().removeprefix("cap_")
    if name != "all" and name not in NAMES:
        raise SpecError(
            f"there is no capability `{text}`", hint="`man 7 capabilities` lists them, or use ALL"
        )
    return name


def parse_security_opts(texts: Iterable[str]) -> dict[str, Any]:
    """Return fields of `Security` for `no-new-privileges[=BOOL]` and `seccomp=…`, as docker's.

    Raises:
        SpecError: an option is unknown, or would be a promise that cannot be kept.
    """
    fields: dict[str, Any] = {}
    for text in texts:
        name, sign, value = _split(text)
        match name:
            case "no-new-privileges":
                fields["no_new_privileges"] = _parse_flag(value, text)
            case "seccomp" if sign:
                fields["seccomp"] = _parse_seccomp(value)
            case "apparmor" if value == UNCONFINED:
                pass  # there is no profile here that would confine it
            case "label" if value == "disable":
                pass  # likewise
            case "apparmor" | "label":
                raise SpecError(
                    f"--security-opt {text}: no {name} is set here, so it cannot be promised",
                    hint="leave it out; the filter of system calls and the capabilities hold",
                )
            case _:
                raise SpecError(
                    f"there is no security option `{text}` here",
                    hint="there are no-new-privileges[=true|false], seccomp=unconfined and "
                    "seccomp=PROFILE.json",
                )
    return fields


def _split(text: str) -> tuple[str, str, str]:
    """Return name, sign and value; docker takes a colon in the place of `=` still."""
    sign = "=" if "=" in text else ":"
    return text.partition(sign)


def _parse_flag(value: str, text: str) -> bool:
    if value.lower() in _TRUE:
        return True
    if value.lower() in _FALSE:
        return False
    raise SpecError(
        f"--security-opt {text}: `{value}` is neither true nor false",
        hint="write `true` or `false`",
    )


def _parse_seccomp(value: str) -> str:
    if value in {"builtin", "default"}:
        return ""
    if not value:
        raise SpecError(
            "--security-opt seccomp= names no profile",
            hint="write `seccomp=FILE`, or `seccomp=unconfined`",
        )
    return value if value == UNCONFINED else os.path.abspath(value)  # noqa: PTH100 - as it is typed


def parse_device(text: str) -> Device:
    """Return the device of `SOURCE[:TARGET][:rwm]`.

    Raises:
        SpecError: the text is not one.
    """
    parts = text.split(":")
    source, target, permissions = parts[0], parts[0], "rwm"
    if len(parts) == 2:  # noqa: PLR2004 - a target or permissions
        if parts[1].startswith("/"):
            target = parts[1]
        else:
            permissions = parts[1]
    elif len(parts) == 3:  # noqa: PLR2004 - both
        target, permissions = parts[1] or source, parts[2]
    if len(parts) > 3 or not source.startswith("/") or not target.startswith("/"):  # noqa: PLR2004
        raise SpecError(
            f"`{text}` is not a device", hint="write `/dev/NAME` or `/dev/NAME:/dev/OTHER:rwm`"
        )
    if not permissions or not set(permissions) <= _ALL_PERMISSIONS:
        raise SpecError(
            f"`{text}`: `{permissions}` are not permissions",
            hint="use letters of `rwm`: to read, to write, to make",
        )
    if ".." in target.split("/") or "\0" in text:
        raise SpecError(
            f"`{text}`: the target {target} cannot be", hint="write a place below `/dev`"
        )
    return Device(source=source, target=target, permissions=permissions)


def parse_device_rule(text: str) -> DeviceRule:
    """Return the rule of `TYPE MAJOR:MINOR ACCESS`, as docker's `c 42:* rmw`.

    Raises:
        SpecError: the text is not one.
    """
    kind, numbers, access = (*text.split(" "), "", "", "")[:3]
    major, colon, minor = numbers.partition(":")
    is_whole = text.count(" ") == 2 and colon and kind in {"a", "b", "c"}  # noqa: PLR2004
    if (
        not is_whole
        or not all(map(_is_device_number, (major, minor)))
        or not (access and set(access) <= _ALL_PERMISSIONS)
    ):
        raise SpecError(
            f"`{text}` is not a rule on devices", hint="write it as `c 42:* rwm`, or `b 8:0 r`"
        )
    return DeviceRule(
        kind=kind,
        major=None if major == "*" else int(major),
        minor=None if minor == "*" else int(minor),
        access=access,
    )


def _is_device_number(text: str) -> bool:
    if text == "*":
        return True
    return text.isascii() and text.isdecimal() and int(text) <= _LARGEST_DEVICE_NUMBER


def parse_gpus(text: str) -> Gpus:
    """Return the GPUs of `all`, `2`, `device=0,1` and docker's quoted `"device=0,1"`.

    Raises:
        SpecError: the text does not say which.
    """
    plain = text.strip().strip('"').strip("'")
    if plain == "all":
        return Gpus()
    if plain.isascii() and plain.isdecimal() and int(plain) > 0:
        return Gpus(count=int(plain))
    key, _, value = plain.partition("=")
    names = tuple(filter(None, value.split(",")))
    if key != "device" or not names or any("=" in name for name in names):
        raise SpecError(
            f"`{text}` does not say which GPUs", hint="write `all`, a number, or `device=0,1`"
        )
    return Gpus(devices=names)


def parse_ipc(text: str) -> Sharing:
    """Return whether shared memory is the run's own, the host's or not there.

    Raises:
        SpecError: it is another container's, or no such word.
    """
    if text == "shareable":  # nobody else can join it here
        return Sharing.PRIVATE
    return _parse_sharing("--ipc", text, tuple(Sharing))


def parse_pid(text: str) -> Sharing:
    """Return whether processes are the run's own or the host's.

    Raises:
        SpecError: they are another container's, or no such word.
    """
    return _parse_sharing("--pid", text, (Sharing.PRIVATE, Sharing.HOST))


def _parse_sharing(flag: str, text: str, words: tuple[Sharing, ...]) -> Sharing:
    if text in words:
        return Sharing(text)
    if text.startswith(_CONTAINERS):
        raise SpecError(
            f"{flag} {text}: a run cannot join another one's namespace here",
            hint="write `private` or `host`",
        )
    raise SpecError(f"{flag} cannot be `{text}`", hint="use " + " or ".join(words))


def parse_places(volumes: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what a hardened run can write to and what it can read, of `-v DIR:DIR[:ro]`.

    Raises:
        SpecError: a place would be another inside, and there is no inside.
    """
    from sandbox.environment.root_flags import parse_volume

    writable: list[str] = []
    readable: list[str] = []
    for text in volumes:
        mount = parse_volume(text)
        source = mount.target if mount.source is None else os.path.abspath(mount.source)  # noqa: PTH100
        if source != mount.target:
            raise SpecError(
                f"--volume {text}: on the host's own root a place cannot be another",
                hint=f"write `-v {source}:{source}`",
            )
        (readable if mount.read_only else writable).append(source)
    return tuple(writable), tuple(readable)
