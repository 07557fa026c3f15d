"""ADD of an address: fetched by the transport that images are fetched with."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from sandbox.errors import ImageError, SpecError
from sandbox.image.ingest import Ingest
from sandbox.records.light import dataclass

if TYPE_CHECKING:
    from sandbox.image.transport import Patience, Transport

_OK = 200


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """A file that was fetched."""

    path: Path
    digest: str
    """`sha256:…`."""
    mtime_sec: int | None
    """When its server says that it was changed."""


def name_of(address: str) -> bytes:
    """Return what a fetched file is called in a directory.

    Raises:
        SpecError: the address does not say.
    """
    from urllib.parse import unquote, urlsplit

    name = unquote(urlsplit(address).path).rpartition("/")[2]
    if name in {"", ".", ".."} or "\0" in name:
        raise SpecError(
            f"`{address}` does not say how the file is called",
            hint="write its name at the end of the destination, not a directory",
        )
    return os.fsencode(name)


def fetch(ingest: Ingest, address: str, insecure: frozenset[str]) -> Fetched:
    """Fetch a file to a place of its own; it is the caller's to remove.

    Raises:
        ImageError: it cannot be fetched.
        OSError: it cannot be written.
    """
    from urllib.parse import urlsplit

    from sandbox.image.transport import Patience, Transport

    parts = urlsplit(address)
    is_plain = parts.scheme.lower() == "http" or parts.netloc in insecure
    transport = Transport(
        parts.netloc, insecure=is_plain, patience=Patience(attempts=3), flag=ingest.flag
    )
    path = ingest.new_path("fetched")
    try:
        with path.open("xb") as file:
            answer = _ask(transport, address)
            digest = _copy(answer, file, transport.patience, address)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return Fetched(path=path, digest=digest, mtime_sec=_changed(answer.headers))


def _ask(transport: Transport, address: str) -> Any:
    from sandbox.image.transport import discard

    answer = transport.get(address, {})
    if answer.status != _OK:
        discard(answer)
        raise ImageError(f"{address} answers with status {answer.status}")
    return answer


def _copy(answer: Any, file: BinaryIO, patience: Patience, address: str) -> str:
    from sandbox.image.transport import pieces, read_failures

    found = hashlib.sha256()
    size = 0
    try:
        for piece in pieces(answer, patience):
            found.update(piece)
            size += len(piece)
            file.write(piece)
    except read_failures() as exc:
        raise ImageError(f"{address} was cut off after {size} bytes", hint="try again") from exc
    expected = answer.headers.get("Content-Length", "")
    is_plain = not answer.headers.get("Content-Encoding")
    if is_plain and expected.isdecimal() and int(expected) != size:
        raise ImageError(f"{address} has {expected} bytes, but {size} came", hint="try again")
    return f"sha256:{found.hexdigest()}"


def _changed(headers: Any) -> int | None:
    from email.utils import parsedate_to_datetime

    try:
        return int(parsedate_to_datetime(headers.get("Last-Modified", "")).timestamp())
    except (TypeError, ValueError):
        return None
