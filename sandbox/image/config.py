"""What an image says about how it wants to be run: the configuration, of OCI or of docker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sandbox.errors import ImageError
from sandbox.image.reference import is_digest
from sandbox.records.light import dataclass

DEFAULT_ARCHITECTURE = "amd64"


@dataclass(frozen=True, kw_only=True)
class ImageConfig:
    """An image's configuration; what it does not say is empty or None."""

    env: tuple[tuple[str, str], ...] = ()
    """In the image's order, each name once: the last value that was given holds."""
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    working_dir: str = ""
    """Absolute in most images; it may not exist, and it may be a link."""
    user: str = ""
    """`name`, `uid`, `name:group` or `uid:gid`, by the image's own passwd and group."""
    volumes: tuple[str, ...] = ()
    stop_signal: str | None = None
    """A name or a number, as written: `SIGTERM`, `15`."""
    exposed_ports: tuple[str, ...] = ()
    """Such as `80/tcp`; information only."""
    labels: tuple[tuple[str, str], ...] = ()
    architecture: str = ""
    """In Go's words: `amd64`, `arm64`."""
    variant: str = ""
    """Of the architecture: `v8`."""
    os: str = ""
    created: str | None = None
    """As written, RFC 3339."""
    diff_ids: tuple[str, ...] = ()
    """Digests of the uncompressed layers, bottom first."""


def parse_config(data: bytes) -> ImageConfig:
    """Return the configuration that an OCI or docker configuration blob holds.

    Raises:
        ImageError: the blob is not one.
    """
    document = load_object(data, "the image's configuration")
    inner = _mapping(document.get("config"), "config")
    rootfs = _mapping(document.get("rootfs"), "rootfs")
    diff_ids = _strings(rootfs.get("diff_ids"), "rootfs.diff_ids")
    for diff_id in diff_ids:
        if not is_digest(diff_id):
            raise _refusal("rootfs.diff_ids", diff_id)
    return ImageConfig(
        env=_environment(_strings(inner.get("Env"), "Env")),
        entrypoint=_strings(inner.get("Entrypoint"), "Entrypoint"),
        cmd=_strings(inner.get("Cmd"), "Cmd"),
        working_dir=_string(inner.get("WorkingDir"), "WorkingDir"),
        user=_string(inner.get("User"), "User"),
        volumes=tuple(_mapping(inner.get("Volumes"), "Volumes")),
        stop_signal=_string(inner.get("StopSignal"), "StopSignal") or None,
        exposed_ports=tuple(_mapping(inner.get("ExposedPorts"), "ExposedPorts")),
        labels=_pairs(_mapping(inner.get("Labels"), "Labels")),
        architecture=_string(document.get("architecture"), "architecture"),
        variant=_string(document.get("variant"), "variant"),
        os=_string(document.get("os"), "os"),
        created=_string(document.get("created"), "created") or None,
        diff_ids=diff_ids,
    )


def load_object(data: bytes, what: str) -> dict[str, Any]:
    """Return the JSON object in `data`; `what` names it in the error.

    Raises:
        ImageError: it is not JSON, or not an object.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise ImageError(f"{what} is not JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise ImageError(f"{what} is no JSON object")
    return value


def _environment(entries: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not name or "\0" in entry:
            raise _refusal("Env", entry)
        if equals:  # docker takes a bare name as a variable that is not set
            found[name] = value
    return tuple(found.items())


def _pairs(mapping: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((key, _string(value, "Labels")) for key, value in mapping.items())


def _mapping(value: object, name: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _refusal(name, value)
    return value


def _strings(value: object, name: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):  # what docker's own parser takes for a list of one
        return (value,)
    if not isinstance(value, list):
        raise _refusal(name, value)
    return tuple(_string(item, name) for item in value)


def _string(value: object, name: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or "\0" in value:
        raise _refusal(name, value)
    return value


def _refusal(name: str, value: object) -> ImageError:
    return ImageError(f"the image's configuration has a wrong {name}: {value!r:.80}")
