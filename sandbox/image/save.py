"""Images out of the store: one archive that docker, podman and this program can load."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from sandbox.errors import ImageError
from sandbox.image.manifest import (
    DOCKER_CONFIG,
    OCI_INDEX,
    OCI_MANIFEST,
    Manifest,
    parse_manifest,
    write_manifest,
)
from sandbox.image.reference import parse_reference
from sandbox.image.store import ImageStore, StoredImage

_LAYOUT = {"imageLayoutVersion": "1.0.0"}


def save(store: ImageStore, names: Sequence[str], target: Path) -> None:
    """Write images into one archive: an OCI layout, with docker's manifest.json beside it.

    The blobs are those that were fetched, so their digests stay.

    Args:
        store: Where from.
        names: References, or ids and their beginnings.
        target: The archive; it appears when it is whole, and is not there yet.

    Raises:
        ImageError: an image is not there, or the archive cannot be written.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    with _held(store, names) as images:
        try:
            if target.exists():
                raise ImageError(f"{target} is there already", hint="remove it, or write another")
            with tarfile.open(temporary, "x", format=tarfile.PAX_FORMAT) as archive:
                _write(store, images, archive)
            temporary.rename(target)
        except OSError as exc:
            raise ImageError(f"cannot write {target}: {exc.strerror}") from exc
        finally:
            temporary.unlink(missing_ok=True)


def save_to(store: ImageStore, names: Sequence[str], stream: BinaryIO) -> None:
    """Write the same archive to a stream, such as a pipe.

    Raises:
        ImageError: an image is not there, or the stream takes no more.
    """
    with _held(store, names) as images:
        try:
            sink = _Sink(stream)
            with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT) as archive:
                try:
                    _write(store, images, archive)
                except BaseException:
                    sink.is_given_up = True
                    raise
            stream.flush()
        except OSError as exc:
            raise ImageError(f"cannot write the archive: {exc.strerror}") from exc


class _Sink(io.RawIOBase):
    """A stream that an archive is written to; `tarfile` ends even one that was given up."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.is_given_up = False

    def write(self, data: Any) -> int:
        """Write it; once given up, nothing, as nobody may be reading."""
        return len(data) if self.is_given_up else self._stream.write(data)


@contextmanager
def _held(store: ImageStore, names: Sequence[str]) -> Iterator[list[StoredImage]]:
    """Give images that nobody can remove meanwhile."""
    images = [store.find(name) for name in names]
    held = [store.hold(image) for image in images]
    try:
        yield images
    finally:
        for fd in held:
            os.close(fd)


def _write(store: ImageStore, images: Sequence[StoredImage], archive: tarfile.TarFile) -> None:
    entries: list[dict[str, Any]] = []
    docker: list[dict[str, Any]] = []
    blobs: dict[str, None] = {}
    documents: dict[str, bytes] = {}
    for image in images:
        manifest, data = _manifest(store, image)
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        entry = {"mediaType": OCI_MANIFEST, "digest": digest, "size": len(data)}
        documents[_path(digest)] = data
        names = image.references or ("",)
        entries += [
            {**entry, "annotations": _annotations(name)} if name else entry for name in names
        ]
        docker.append(
            {
                "Config": _path(image.id),
                "RepoTags": [_docker_name(name) for name in image.references if "@" not in name],
                "Layers": [_path(layer.digest) for layer in manifest.layers],
            }
        )
        blobs.update(dict.fromkeys([image.id, *(layer.digest for layer in manifest.layers)]))
    for digest in blobs:
        member = tarfile.TarInfo(_path(digest))
        with store.blob_path(digest).open("rb") as file:
            member.size = os.fstat(file.fileno()).st_size
            blob = _Checked(file, digest)
            archive.addfile(member, blob)  # type: ignore[arg-type]
            blob.check()
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}
    documents["oci-layout"] = json.dumps(_LAYOUT).encode()
    documents["index.json"] = json.dumps(index).encode()
    documents["manifest.json"] = json.dumps(docker).encode()
    for name, data in documents.items():
        member = tarfile.TarInfo(name)
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))


class _Checked:
    """A blob that is read once, and must be what it is called."""

    def __init__(self, file: BinaryIO, digest: str) -> None:
        self._file = file
        self._digest = digest
        self._hash = hashlib.new(digest.partition(":")[0])

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._hash.update(data)
        return data

    def check(self) -> None:
        if f"{self._hash.name}:{self._hash.hexdigest()}" != self._digest:
            raise ImageError(
                f"the blob {self._digest} is damaged on this disk",
                hint="pull or load the image again, or build it: that replaces a blob that was cut",
            )


def _manifest(store: ImageStore, image: StoredImage) -> tuple[Manifest, bytes]:
    """Return the manifest, whose blobs are all there; docker's in OCI's form, as a layout wants."""
    data = store.blob_path(image.manifest_digest).read_bytes()
    manifest = parse_manifest(data)
    if not isinstance(manifest, Manifest):
        raise ImageError(f"image {image.short_id} is damaged: pull or load it again")
    for digest in (image.id, *(layer.digest for layer in manifest.layers)):
        if not store.blob_path(digest).exists():
            raise ImageError(f"image {image.short_id} lacks {digest}: pull or load it again")
    if manifest.config.media_type == DOCKER_CONFIG:
        data = write_manifest((image.id, manifest.config.size_bytes), manifest.layers)
    return manifest, data


def _path(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/", 1)


def _annotations(name: str) -> dict[str, str]:
    tag = parse_reference(name).tag
    note = {"io.containerd.image.name": name}
    return {**note, "org.opencontainers.image.ref.name": tag} if tag else note


def _docker_name(name: str) -> str:
    return parse_reference(name).short()
