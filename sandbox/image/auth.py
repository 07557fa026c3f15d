"""Who we are to a registry: what docker and podman have written down, and their helpers know."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sandbox.errors import ImageError
from sandbox.image.config import load_object
from sandbox.image.reference import DOCKER_HUB
from sandbox.records.light import dataclass, field

_HUB_KEY = "https://index.docker.io/v1/"
_HELPER_NAME = r"[A-Za-z0-9._-]+"
_HELPER_SEC = 30
_TOKEN_USER = "<token>"  # noqa: S105 - what helpers call a user who has a token
_NONE_FOUND = "credentials not found"


def _nobody() -> str:
    return ""


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """A user with a password, or a token that stands for both; never shown."""

    username: str
    password: str = field(default_factory=_nobody, repr=False)
    identity_token: str = field(default_factory=_nobody, repr=False)

    def basic(self) -> str:
        """Return the value of an Authorization header."""
        pair = f"{self.username}:{self.password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"


def find_credentials(
    registry: str, repository: str, environ: Mapping[str, str] | None = None
) -> Credentials | None:
    """Return the credentials for a registry; None to be anonymous.

    Asked are, in this order: $REGISTRY_AUTH_FILE, podman's auth.json, docker's config.json. In
    each, a helper for this registry comes before what is written there, and that before a helper
    for all.

    Raises:
        ImageError: a file is damaged, or a helper fails.
    """
    variables = os.environ if environ is None else environ
    for path in auth_files(variables):
        try:
            document = load_object(path.read_bytes(), str(path))
        except FileNotFoundError:
            continue
        except OSError as exc:
            raise ImageError(f"cannot read {path}: {exc.strerror}") from exc
        found = _from_file(document, registry, repository, path)
        if found is not None:
            return found
    return None


def auth_files(variables: Mapping[str, str]) -> list[Path]:
    """Return the files to ask, in order; they need not exist."""
    if asked := variables.get("REGISTRY_AUTH_FILE"):
        return [Path(asked)]
    files = []
    if runtime := variables.get("XDG_RUNTIME_DIR"):
        files.append(Path(runtime, "containers", "auth.json"))
    home = variables.get("HOME")
    settings = variables.get("XDG_CONFIG_HOME") or (home and f"{home}/.config")
    if settings:
        files.append(Path(settings, "containers", "auth.json"))
    docker = variables.get("DOCKER_CONFIG") or (home and f"{home}/.docker")
    if docker:
        files.append(Path(docker, "config.json"))
    return files


def _from_file(
    document: Mapping[str, Any], registry: str, repository: str, path: Path
) -> Credentials | None:
    helpers = document.get("credHelpers")
    entries = document.get("auths")
    for key in _keys(registry, repository):
        if isinstance(helpers, dict) and key in helpers:
            return _ask_helper(helpers[key], key)
        if isinstance(entries, dict) and _has_entry(entries, key):
            return _decode(_entry(entries, key), key, path)
    if store := document.get("credsStore"):
        return _ask_helper(store, _HUB_KEY if registry == DOCKER_HUB else registry)
    return None


def _keys(registry: str, repository: str) -> Iterator[str]:
    """Yield what the credentials may be kept under, the closest first."""
    parts = repository.split("/")
    for count in range(len(parts), 0, -1):
        yield "/".join([registry, *parts[:count]])
    yield registry
    if registry == DOCKER_HUB:
        yield _HUB_KEY
        yield "index.docker.io"
        yield "registry-1.docker.io"


def _entry(entries: Mapping[str, Any], key: str) -> Any:
    """Return what is kept under a key, which old docker wrote as an address."""
    for spelling in (key, f"https://{key}", f"http://{key}", f"https://{key}/v1/"):
        if spelling in entries:
            return entries[spelling]
    return None


def _has_entry(entries: Mapping[str, Any], key: str) -> bool:
    entry = _entry(entries, key)
    # An empty one is docker's note that a helper knows.
    return isinstance(entry, dict) and bool(entry)


def _decode(entry: Mapping[str, Any], key: str, path: Path) -> Credentials:
    token = entry.get("identitytoken")
    if isinstance(token, str) and token:
        return Credentials(username=_TOKEN_USER, identity_token=token)
    if isinstance(entry.get("username"), str) and isinstance(entry.get("password"), str):
        return Credentials(username=entry["username"], password=entry["password"])
    try:
        text = base64.b64decode(entry["auth"], validate=True).decode().rstrip("\0")
    except (KeyError, TypeError, ValueError, binascii.Error) as exc:
        raise _damaged(path, key) from exc
    username, _, password = text.partition(":")
    if not username:
        raise _damaged(path, key)
    return Credentials(username=username, password=password)


def _damaged(path: Path, key: str) -> ImageError:
    return ImageError(
        f"{path} has damaged credentials for {key}", hint="log in again with docker or podman"
    )


def _ask_helper(name: object, server: str) -> Credentials | None:
    import subprocess

    if not isinstance(name, str) or not re.fullmatch(_HELPER_NAME, name):
        raise ImageError(f"`{name}` is no name of a credential helper")
    program = f"docker-credential-{name}"
    try:
        done = subprocess.run(
            [program, "get"],
            input=server.encode(),
            capture_output=True,
            timeout=_HELPER_SEC,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise ImageError(
            f"cannot ask {program} for the credentials of {server}: {exc}",
            hint="docker's or podman's settings name it: install it, or log in again",
        ) from exc
    if done.returncode != 0:
        said = (done.stdout + done.stderr).decode("utf-8", "replace").strip()
        if _NONE_FOUND in said:
            return None
        raise ImageError(f"{program} does not tell the credentials of {server}: {said:.200}")
    return _decode_helper(done.stdout, program)


def _decode_helper(output: bytes, program: str) -> Credentials:
    try:
        answer = json.loads(output)
        username, secret = str(answer["Username"]), str(answer["Secret"])
    except (ValueError, KeyError, TypeError) as exc:
        raise ImageError(f"{program} answers what cannot be understood") from exc
    if username == _TOKEN_USER:
        return Credentials(username=username, identity_token=secret)
    return Credentials(username=username, password=secret)
