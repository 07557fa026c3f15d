"""Docker's syntax for mounts, hosts and networks, to values."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sandbox.errors import SpecError
from sandbox.records.enclosure import Mount, MountKind, Network
from sandbox.units import parse_size

_LONGEST_HOSTNAME = 64
_HOSTNAME = re.compile(r"(?a)[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
_OURS = ("/proc", "/sys")
_VOLUME_WORDS = {"rw", "z", "Z", "nocopy", "consistent", "cached", "delegated"}
"""Words of docker's that change nothing here; those of propagation are refused."""
_TMPFS_WORDS = {"rw", "nosuid", "nodev", "noatime", "relatime"}
_TMPFS_OWN = {"size", "mode", "exec", "noexec", "ro"}
_MOUNT_OPTIONS = {
    "bind": "source, target, readonly",
    "tmpfs": "target, readonly, tmpfs-size, tmpfs-mode",
    "volume": "target, readonly",
}
_MODE = re.compile(r"0?[0-7]{3,4}")
_KEYS = {
    "src": "source",
    "dst": "target",
    "destination": "target",
    "ro": "readonly",
}


def parse_volume(text: str) -> Mount:
    """Return the mount of `SOURCE:TARGET[:ro]`, or of `TARGET` alone, which gives room to write.

    Raises:
        SpecError: the text is not one, or means what there is not here.
    """
    parts = text.split(":")
    if len(parts) == 1:
        return Mount(kind=MountKind.VOLUME, target=_target(parts[0], text))
    if len(parts) > 3 or not parts[0]:  # noqa: PLR2004 - source, target, words
        raise SpecError(f"`{text}` is not a volume", hint="write `SOURCE:TARGET` or `…:ro`")
    words = set(parts[2].split(",")) if len(parts) == 3 and parts[2] else set()  # noqa: PLR2004
    if unknown := words - _VOLUME_WORDS - {"ro"}:
        raise SpecError(
            f"`{text}`: there is no volume option `{min(unknown)}` here",
            hint=f"known are {', '.join(sorted(_VOLUME_WORDS | {'ro'}))}",
        )
    return Mount(
        kind=MountKind.BIND,
        source=_source(parts[0], text),
        target=_target(parts[1], text),
        read_only="ro" in words,
    )


def parse_mount(text: str) -> Mount:
    """Return the mount of `type=bind,source=…,target=…[,readonly]`, `type=tmpfs`, `type=volume`.

    Raises:
        SpecError: the text is not one, or means what there is not here.
    """
    values: dict[str, str] = {}
    for part in text.split(","):
        key, _, value = part.partition("=")
        values[_KEYS.get(key, key)] = value
    kind = values.pop("type", "volume")
    target = _target(values.pop("target", ""), text)
    read_only = _flag(values.pop("readonly", "false"), text)
    match kind:
        case "bind":
            source = _source(values.pop("source", ""), text)
            mount = Mount(kind=MountKind.BIND, source=source, target=target, read_only=read_only)
        case "tmpfs":
            mount = Mount(
                kind=MountKind.TMPFS,
                target=target,
                read_only=read_only,
                size_bytes=_size(values.pop("tmpfs-size", None)),
                mode=_mode(values.pop("tmpfs-mode", "1777"), text),
            )
        case "volume" if not values.get("source"):
            values.pop("source", None)
            mount = Mount(kind=MountKind.VOLUME, target=target, read_only=read_only)
        case _:
            raise SpecError(
                f"`{text}`: there are no mounts of type {kind} with a name here",
                hint="use type=bind with a directory, type=tmpfs, or type=volume without a source",
            )
    if values:
        raise SpecError(
            f"`{text}`: there is no mount option `{min(values)}` here for type={kind}",
            hint=f"known are {_MOUNT_OPTIONS[kind]}",
        )
    return mount


def parse_tmpfs(text: str) -> Mount:
    """Return the mount of `TARGET[:size=SIZE,mode=MODE,exec,ro]`.

    Raises:
        SpecError: the text is not one.
    """
    target, _, rest = text.partition(":")
    values: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        values[key] = value
    if unknown := values.keys() - _TMPFS_WORDS - _TMPFS_OWN:
        raise SpecError(
            f"`{text}`: there is no tmpfs option `{min(unknown)}` here",
            hint=f"known are {', '.join(sorted(_TMPFS_WORDS | _TMPFS_OWN))}",
        )
    return Mount(
        kind=MountKind.TMPFS,
        target=_target(target, text),
        read_only="ro" in values,
        size_bytes=_size(values.get("size")),
        mode=_mode(values.get("mode", "1777"), text),
        executable=_is_executable(values),
    )


def _is_executable(values: Mapping[str, str]) -> bool:
    return [word for word in values if word in {"exec", "noexec"}][-1:] == ["exec"]


def _size(text: str | None) -> int | None:
    return None if text is None else parse_size(text)


def _mode(text: str, whole: str) -> int:
    if not _MODE.fullmatch(text):
        raise SpecError(f"`{whole}`: `{text}` is not a mode", hint="write it as in `mode=1777`")
    return int(text, 8)


def _flag(text: str, whole: str) -> bool:
    if text.lower() in {"", "true", "1"}:
        return True
    if text.lower() in {"false", "0"}:
        return False
    raise SpecError(
        f"`{whole}`: `{text}` is neither true nor false", hint="write `true` or `false`"
    )


def _source(text: str, whole: str) -> str:
    if "\0" in text or (not text.startswith(("/", "./", "../")) and text not in {".", ".."}):
        raise SpecError(
            f"`{whole}`: `{text}` would be the name of a volume, and there are none here",
            hint=f"a directory is written with a slash in front: `./{text}`",
        )
    return text


def _target(text: str, whole: str) -> str:
    """Return a place inside, without `.` and double slashes."""
    if text.startswith("~"):
        raise SpecError(f"`{whole}`: `~` means nothing inside", hint="write the directory in full")
    if not text.startswith("/") or "\0" in text:
        raise SpecError(
            f"`{whole}`: the target `{text}` is not absolute",
            hint="write where it is inside, from `/` on",
        )
    parts = [part for part in text.split("/") if part not in {"", "."}]
    target = "/" + "/".join(parts)
    if target == "/" or ".." in parts:
        raise SpecError(
            f"`{whole}`: nothing can be mounted at {text}",
            hint="choose a directory of its own, such as `/mnt`",
        )
    if any(target == ours or target.startswith(ours + "/") for ours in _OURS):
        raise SpecError(
            f"`{whole}`: nothing can be mounted at {text}", hint="the kernel's own files are there"
        )
    return target


def parse_hostname(text: str) -> str:
    """Return a host name.

    Raises:
        SpecError: it cannot be one.
    """
    if len(text) > _LONGEST_HOSTNAME or not _HOSTNAME.fullmatch(text):
        raise SpecError(
            f"`{text}` cannot be a host name",
            hint="write letters, digits and `-`, 63 at most, with `.` between the parts",
        )
    return text


def parse_add_host(text: str) -> tuple[str, str]:
    """Return name and address of `NAME:ADDRESS` or `NAME=ADDRESS`.

    Raises:
        SpecError: the text is not one.
    """
    from ipaddress import ip_address

    name, _, address = text.partition("=") if "=" in text else text.partition(":")
    address = address.removeprefix("[").removesuffix("]")
    if address == "host-gateway":  # the network is the host's own
        address = "127.0.0.1"
    try:
        ip_address(address)
    except ValueError:
        raise SpecError(
            f"`{text}` is not a host and its address", hint="write it as in `db:10.0.0.7`"
        ) from None
    if not _HOSTNAME.fullmatch(name.replace("_", "-")):
        raise SpecError(
            f"`{name}` cannot be a host name", hint="write `NAME:ADDRESS`, as in `db:10.0.0.7`"
        )
    return name, address


def parse_network(text: str) -> Network:
    """Return which network is meant.

    Raises:
        SpecError: there is no such one here.
    """
    if text in {"bridge", "default"}:  # docker's words for it
        return Network.PRIVATE
    try:
        return Network(text)
    except ValueError:
        raise SpecError(
            f"there is no network `{text}` here",
            hint="use `host`, `private` for one of its own, or `none` for no network",
        ) from None
