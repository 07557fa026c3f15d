"""Image references as docker writes them: what a short name stands for."""

from __future__ import annotations

import re
from typing import TypeGuard

from sandbox.errors import SpecError
from sandbox.records.light import dataclass

DOCKER_HUB = "docker.io"
DEFAULT_TAG = "latest"

_HUB_NAMES = frozenset({"docker.io", "index.docker.io", "registry-1.docker.io"})
_LONGEST_NAME = 255
_LABEL = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]{{1,5}})?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = rf"{_PART}(?:/{_PART})*"
_TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_DIGEST = r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}"
_IDENTIFIER = r"[0-9a-f]{64}"


@dataclass(frozen=True)
class Reference:
    """The full name of an image; never short, so that two spellings compare equal."""

    registry: str
    """A host with its port, or `docker.io`."""
    repository: str
    """Such as `library/debian`."""
    tag: str | None
    """None when only a digest was given."""
    digest: str | None
    """Of the manifest or the index that is meant, such as `sha256:…`."""

    def __str__(self) -> str:
        """Return the full name: `docker.io/library/debian:12`."""
        return f"{self.registry}/{self.repository}{self._suffix()}"

    def short(self) -> str:
        """Return the name as people type it: `debian:12`."""
        if self.registry != DOCKER_HUB:
            return str(self)
        return self.repository.removeprefix("library/") + self._suffix()

    def _suffix(self) -> str:
        tag = "" if self.tag is None else f":{self.tag}"
        return tag if self.digest is None else f"{tag}@{self.digest}"


def parse_reference(text: str) -> Reference:
    """Return what `debian`, `ghcr.io/owner/name:tag` or `name@sha256:…` stands for.

    The registry is docker.io unless the first part has a dot or a port or is `localhost`, the tag
    `latest` unless one or a digest is given.

    Raises:
        SpecError: the text is not a reference.
    """
    rest, at, digest = text.partition("@")
    if at and not re.fullmatch(_DIGEST, digest):
        raise _refusal(text, f"`{digest}` is not a digest", "a digest is `sha256:` and 64 digits")
    # A colon before the last slash belongs to a port.
    head, slash, last = rest.rpartition("/")
    last, colon, tag = last.partition(":")
    if colon and not re.fullmatch(_TAG, tag):
        raise _refusal(text, f"`{tag}` is not a tag", "a tag has letters, digits, `_`, `.` and `-`")
    registry, repository = _split_registry(head + slash + last)
    if not re.fullmatch(_HOST, registry):
        raise _refusal(text, f"`{registry}` is not a host", "such as `registry.example.com:5000`")
    _check_repository(text, repository)
    if registry == DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    if not colon:
        tag = "" if at else DEFAULT_TAG
    return Reference(registry, repository, tag or None, digest or None)


def _split_registry(name: str) -> tuple[str, str]:
    first, slash, rest = name.partition("/")
    looks_like_host = "." in first or ":" in first or first == "localhost" or first != first.lower()
    if not (slash and looks_like_host):
        return DOCKER_HUB, name
    return (DOCKER_HUB if first in _HUB_NAMES else first), rest


def _check_repository(text: str, repository: str) -> None:
    if not re.fullmatch(_REPOSITORY, repository):
        if re.fullmatch(_REPOSITORY, repository.lower()):
            hint = f"write `{text.replace(repository, repository.lower())}`"
            raise _refusal(text, "a repository is written in small letters", hint)
        raise _refusal(
            text, f"`{repository}` is not a repository", "such as `debian` or `owner/name`"
        )
    if len(repository) > _LONGEST_NAME:
        raise _refusal(text[:40], "the name is too long", f"{_LONGEST_NAME} letters are allowed")
    if re.fullmatch(_IDENTIFIER, repository):
        raise _refusal(text, "this is an image's id, not its name", "write where it comes from")


def _refusal(text: str, why: str, hint: str) -> SpecError:
    return SpecError(f"`{text}` is not an image reference: {why}", hint=hint)


def is_digest(text: object) -> TypeGuard[str]:
    """Return whether `text` is a digest that we can check, and safe as a file's name."""
    return isinstance(text, str) and re.fullmatch(_DIGEST, text) is not None
