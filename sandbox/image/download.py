"""One blob from a registry: gone on with after an interruption, verified before it is believed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, BinaryIO

from sandbox.errors import ImageError
from sandbox.image.ingest import Ingest, check_blob
from sandbox.image.manifest import Descriptor
from sandbox.image.progress import Progress
from sandbox.image.registry import Repository
from sandbox.image.stream import write_all
from sandbox.image.transport import pieces, read_failures

_PART_BYTES = 1 << 20
_PARTIAL_CONTENT = 206
_OK = 200


def fetch_blob(
    ingest: Ingest,
    repository: Repository,
    descriptor: Descriptor,
    progress: Progress,
) -> str:
    """Bring a blob into the store and return its digest; whoever wants the same, waits for it.

    Raises:
        ImageError: it cannot be fetched, or it is not what it should be.
        OSError: it cannot be written.
    """
    digest = descriptor.digest
    with ingest.store.locked(f"blob-{digest.partition(':')[2]}"):
        if ingest.has_blob(digest, descriptor.size_bytes):
            progress.advance(descriptor.size_bytes)
            return digest
        path = ingest.partial_path(digest)
        download = _Download(ingest, repository, descriptor, progress, path)
        try:
            download.run()
        finally:
            download.close()
        ingest.adopt_blob(path, digest)
    return digest


class _Download:
    """A download on its way, in a file that outlives us."""

    def __init__(
        self,
        ingest: Ingest,
        repository: Repository,
        descriptor: Descriptor,
        progress: Progress,
        path: Path,
    ) -> None:
        self._flag = ingest.flag
        self._repository = repository
        self._transport = repository.transport
        self._wanted = descriptor
        self._progress = progress
        self._path = path
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._file: BinaryIO = os.fdopen(fd, "r+b", buffering=0)
        self._hash = hashlib.new(descriptor.digest.partition(":")[0])
        self._size = 0
        self._entity_tag: str | None = None

    def close(self) -> None:
        self._file.close()

    def run(self) -> None:
        """Fetch until it is whole and right; what is wrong does not stay."""
        self._take_up()
        resumed = self._size > 0
        self._fetch_all()
        try:
            self._check()
        except ImageError:
            self._start_over()
            if not resumed:
                self._path.unlink()
                raise
            # What an earlier attempt had left was damaged: once more, all of it.
            self._fetch_all()
            try:
                self._check()
            except ImageError:
                self._path.unlink()
                raise

    def _check(self) -> None:
        found = f"{self._hash.name}:{self._hash.hexdigest()}"
        check_blob(found, self._size, self._wanted.digest, self._wanted.size_bytes)

    def _take_up(self) -> None:
        """Hash what is there already."""
        if os.fstat(self._file.fileno()).st_size > self._wanted.size_bytes:
            self._file.truncate(0)
        while data := self._file.read(_PART_BYTES):
            self._note(data)

    def _note(self, data: bytes) -> None:
        self._hash.update(data)
        self._size += len(data)
        self._progress.advance(len(data))

    def _start_over(self) -> None:
        self._file.seek(0)
        self._file.truncate(0)
        self._hash = hashlib.new(self._hash.name)
        self._progress.advance(-self._size)
        self._size = 0

    def _fetch_all(self) -> None:
        failures = 0
        while self._size < self._wanted.size_bytes:
            before = self._size
            problem = self._fetch_some()
            if self._size >= self._wanted.size_bytes:
                return
            # What brought something was no failure: a long download may be cut many times.
            failures = 1 if self._size - before >= _PART_BYTES else failures + 1
            if failures >= self._transport.patience.attempts:
                raise ImageError(
                    f"blob {self._wanted.digest} was cut off again and again: {problem}",
                    hint="pull again: what was fetched is kept",
                )
            self._transport.pause(failures)

    def _fetch_some(self) -> str:
        """Read one answer as far as it goes, and return why it ended."""
        answer = self._repository.open_blob(self._wanted.digest, self._size, self._entity_tag)
        try:
            self._entity_tag = _strong(answer.headers.get("ETag"))
            fits = answer.status == _PARTIAL_CONTENT and self._fits(answer)
            if not fits:
                self._start_over()
            if not fits and answer.status != _OK:
                return f"it sends another part than was asked for (status {answer.status})"
            self._copy(answer)
        except read_failures() as exc:
            return str(exc)
        finally:
            answer.close()
        return "the registry ended it too early"

    def _fits(self, answer: Any) -> bool:
        """Return whether the part is the one that was asked for."""
        return str(answer.headers.get("Content-Range", "")).startswith(f"bytes {self._size}-")

    def _copy(self, answer: Any) -> None:
        for data in pieces(answer, self._transport.patience):
            self._flag.check()
            if self._size + len(data) > self._wanted.size_bytes:
                self._start_over()
                self._path.unlink()
                raise ImageError(
                    f"blob {self._wanted.digest} is longer than its {self._wanted.size_bytes} bytes"
                )
            self._write(data)
            self._note(data)

    def _write(self, data: bytes) -> None:
        try:
            write_all(self._file.fileno(), data)
        except OSError as exc:  # ours, not the registry's: to ask again would not help
            self._file.truncate(self._size)  # a part of it may have been written
            raise ImageError(
                f"cannot write blob {self._wanted.digest}: {exc.strerror}",
                hint="free some space and pull again: what was fetched is kept",
            ) from exc


def _strong(entity_tag: str | None) -> str | None:
    """Return the tag if it stands for the very same bytes (RFC 9110, 13.1.5)."""
    return entity_tag if entity_tag and entity_tag.startswith('"') else None
