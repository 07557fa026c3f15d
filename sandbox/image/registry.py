"""A registry (v2): manifests and blobs of one repository, and whatever it takes to be let in."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode, urlsplit

from sandbox.errors import ImageError
from sandbox.image.auth import Credentials
from sandbox.image.config import load_object
from sandbox.image.manifest import ACCEPTED, LARGEST_DOCUMENT
from sandbox.image.reference import DOCKER_HUB, Reference
from sandbox.image.transport import Transport, discard, pieces, read_failures

_HUB_HOST = "registry-1.docker.io"
_OK, _PARTIAL, _UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND = 200, 206, 401, 403, 404
_RANGE = 416
_CHALLENGE = r'(?P<key>[A-Za-z]+)=(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^\s,]+))'


def api_host(registry: str) -> str:
    """Return the host to ask for images of a registry."""
    return _HUB_HOST if registry == DOCKER_HUB else registry


class Repository:
    """One repository of a registry, to read from."""

    def __init__(
        self, reference: Reference, transport: Transport, credentials: Credentials | None
    ) -> None:
        """Nothing is asked yet."""
        self._reference = reference
        self.transport = transport
        self._credentials = credentials
        self._host = api_host(reference.registry)
        self._scheme: str | None = None
        self._authorization: str | None = None

    def manifest(self, tag_or_digest: str) -> tuple[bytes, str]:
        """Return a manifest or an index, unverified, and the media type it was announced as.

        Raises:
            ImageError: there is none, it is too large, or we are not let in.
        """
        answer = self._get(f"manifests/{tag_or_digest}", {"Accept": ", ".join(ACCEPTED)})
        data = self._read(answer, f"the manifest of {self._reference.short()}")
        media_type = str(answer.headers.get("Content-Type", "")).partition(";")[0].strip()
        return data, media_type

    def small_blob(self, digest: str) -> bytes:
        """Return a blob, unverified.

        Raises:
            ImageError: there is none, it is too large, or we are not let in.
        """
        return self._read(self._get(f"blobs/{digest}", {}), f"blob {digest}")

    def open_blob(self, digest: str, offset: int, entity_tag: str | None = None) -> Any:
        """Return an answer with the blob from an offset on, or from its start if it is 200.

        Args:
            digest: Which.
            offset: How many bytes are here already.
            entity_tag: What the answer was tagged with that they came from, if it was the same
                server: if it has something else by now, it sends that from its start.

        Raises:
            ImageError: there is none, or we are not let in.
        """
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        if offset and entity_tag is not None:
            headers["If-Range"] = entity_tag
        return self._get(f"blobs/{digest}", headers)

    def _read(self, answer: Any, what: str) -> bytes:
        """Return the body of a small answer; it is not asked for again when it is cut."""
        parts: list[bytes] = []
        size = 0
        try:
            for part in pieces(answer, self.transport.patience):
                parts.append(part)
                size += len(part)
                if size > LARGEST_DOCUMENT:
                    raise ImageError(f"{what} is larger than {LARGEST_DOCUMENT} bytes")
        except read_failures() as exc:
            raise ImageError(f"{what} was cut off: {exc}", hint="try again") from exc
        finally:
            answer.close()
        return b"".join(parts)

    # --- being let in -----------------------------------------------------------------------------

    def _get(self, path: str, headers: dict[str, str]) -> Any:
        """Ask, and once more with what the registry wants to see."""
        answer = self._ask(path, headers, used := self._authorization)
        if answer.status == _UNAUTHORIZED:
            challenge = answer.headers.get("WWW-Authenticate", "")
            discard(answer)
            if self._authorization == used:  # else another thread was faster
                self._authorization = self._answer(challenge)
            answer = self._ask(path, headers, self._authorization)
        if answer.status in {_OK, _PARTIAL} or (answer.status == _RANGE and "Range" in headers):
            return answer
        discard(answer)
        raise self._refusal(answer.status, path)

    def _ask(self, path: str, headers: dict[str, str], authorization: str | None) -> Any:
        known = {} if authorization is None else {"Authorization": authorization}
        return self.transport.get(self._url(path), {**headers, **known})

    def _url(self, path: str) -> str:
        return f"{self._find_scheme()}://{self._host}/v2/{self._reference.repository}/{path}"

    def _find_scheme(self) -> str:
        """Return https; for a host that may do without, what it answers to."""
        if self._scheme is None:
            self._scheme = "https"
            if self.transport.insecure and not self.transport.answers(f"https://{self._host}/v2/"):
                self._scheme = "http"
        return self._scheme

    def _answer(self, challenge: str) -> str:
        """Return the Authorization that a challenge asks for."""
        scheme, _, rest = challenge.strip().partition(" ")
        fields = {
            match["key"].lower(): match["plain"] or re.sub(r"\\(.)", r"\1", match["quoted"] or "")
            for match in re.finditer(_CHALLENGE, rest)
        }
        if scheme.lower() == "bearer" and fields.get("realm"):
            return f"Bearer {self._token(fields)}"
        if scheme.lower() == "basic":
            if self._credentials is None or self._credentials.identity_token:
                raise self._refusal(_UNAUTHORIZED, "")
            return self._credentials.basic()
        raise ImageError(f"{self._host} wants to be shown something unknown: {challenge!r:.100}")

    def _token(self, fields: dict[str, str]) -> str:
        realm = fields["realm"]
        parts = urlsplit(realm)
        is_plain = parts.scheme == "http" and self.transport.insecure and self._scheme == "http"
        if (parts.scheme != "https" and not is_plain) or not parts.hostname:
            raise ImageError(f"{self._host} wants us to get a token from {realm:.100}, without TLS")
        scope = fields.get("scope") or f"repository:{self._reference.repository}:pull"
        asked = {"service": fields.get("service", ""), "scope": scope}
        credentials = self._credentials
        if credentials is not None and credentials.identity_token:
            body = {
                **asked,
                "grant_type": "refresh_token",
                "refresh_token": credentials.identity_token,
                "client_id": "cgroup-sandbox",
            }
            answer = self.transport.get(realm, {}, body=body)
        else:
            separator = "&" if parts.query else "?"
            headers = {} if credentials is None else {"Authorization": credentials.basic()}
            answer = self.transport.get(f"{realm}{separator}{urlencode(asked)}", headers)
        if answer.status != _OK:
            discard(answer)
            raise self._refusal(answer.status, "a token")
        document = load_object(self._read(answer, "the token"), f"the token of {parts.netloc}")
        token = document.get("token") or document.get("access_token")
        if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]+", token):
            raise ImageError(f"{parts.netloc} gives no token")
        return token

    def _refusal(self, status: int, path: str) -> ImageError:
        name = self._reference.short()
        if status in {_UNAUTHORIZED, _FORBIDDEN}:
            user = None if self._credentials is None else self._credentials.username
            who = "without a login" if user is None else f"for the user {user}"
            return ImageError(
                f"{self._host} refuses {name} {who}",
                hint=f"check the name; `docker login {self._reference.registry}` or `podman login` "
                "stores a login that is used here too",
            )
        if status == _NOT_FOUND:
            what = "" if path.startswith("manifests/") else f" ({path})"
            return ImageError(
                f"{self._host} has no {name}{what}", hint="check the name and the tag"
            )
        return ImageError(f"{self._host} answers with status {status} for {path}")
