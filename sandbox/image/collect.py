"""Images and their parts taken away: what nobody names, needs or holds."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from sandbox.errors import ImageError, SpecError
from sandbox.image.built import CACHES, forget_steps, layers_of_steps, remove_lent
from sandbox.image.flat import flat_path
from sandbox.image.ingest import COLLECT, PARTIAL
from sandbox.image.owners import LENT
from sandbox.image.reference import parse_reference
from sandbox.image.store import ImageStore, StoredImage
from sandbox.records.light import dataclass

_BLOCK = 512


@dataclass(frozen=True, kw_only=True)
class Removed:
    """What a removal came to."""

    untagged: tuple[str, ...]
    """Full names that mean nothing any more."""
    deleted: tuple[str, ...]
    """Ids of the images that are gone."""
    freed_bytes: int | None
    """On the disk; None when something was being added, so that it has to wait."""


def remove(store: ImageStore, text: str, *, force: bool = False) -> Removed:
    """Take away a name, and with its last one the image; or an image by its id.

    Args:
        store: Where from.
        text: A reference, an id or its beginning.
        force: By its id, also an image that has several names.

    Raises:
        ImageError: there is none, it is in use, or it has several names.
        OSError: something cannot be removed.
    """
    with store.locked("references"):
        image = store.find(text, is_wanted=False)
        name = _name_in(image, text)
        others = [other for other in image.references if other != name]
        if name is not None and others:
            _untag(store, [name])
            return Removed(untagged=(name,), deleted=(), freed_bytes=0)
        if len(others) > 1 and not force:
            raise ImageError(
                f"image {image.short_id} has several names: {', '.join(others)}",
                hint="remove them by their names, or the image with `--force`",
            )
        _delete(store, image)
    return Removed(
        untagged=image.references, deleted=(image.id,), freed_bytes=collect_garbage(store)
    )


def prune(store: ImageStore, *, every: bool = False) -> Removed:
    """Take away the images without a name, and all that no image needs.

    Of builds the steps are forgotten that are no part of an image that stays.

    Args:
        store: Where from.
        every: Also the images with names, all steps, and what apt and pip have fetched for builds.
            What is in use stays in any case.

    Raises:
        ImageError: a record cannot be read, so that nobody knows what is needed.
        OSError: something cannot be removed.
    """
    deleted: list[StoredImage] = []
    with store.locked("references"):
        for image in store.list_images():
            if every or not image.references:
                try:
                    _delete(store, image)
                except ImageError:
                    continue  # in use
                deleted.append(image)
    _forget_steps(store, every=every)
    return Removed(
        untagged=tuple(name for image in deleted for name in image.references),
        deleted=tuple(image.id for image in deleted),
        freed_bytes=collect_garbage(store, partial=True, caches=every),
    )


def _forget_steps(store: ImageStore, *, every: bool) -> None:
    with suppress(BlockingIOError), store.locked(COLLECT, wait=False):  # else a build goes on
        records = [store.read_record(image_id) for image_id in store.list_ids()]
        layers = {layer["diff_id"] for record in records for layer in record["layers"]}
        forget_steps(store, layers, every=every)


def _name_in(image: StoredImage, text: str) -> str | None:
    try:
        name = str(parse_reference(text))
    except SpecError:
        return None
    return name if name in image.references else None


def _untag(store: ImageStore, names: Iterable[str]) -> None:
    references = store.read_references()
    for name in names:
        references.pop(name, None)
    store.write_references(references)


def _delete(store: ImageStore, image: StoredImage) -> None:
    """Forget an image that nobody holds; its parts are garbage then."""
    try:
        with store.locked(f"image-{image.id[7:]}", wait=False):
            store.record_path(image.id).unlink()
            _untag(store, image.references)
    except BlockingIOError as exc:
        raise ImageError(
            f"image {image.short_id} is in use", hint="wait for its runs to end, or kill them"
        ) from exc


def collect_garbage(
    store: ImageStore, *, partial: bool = False, caches: bool = False
) -> int | None:
    """Remove all that no image needs; return the bytes that were freed, None if it has to wait.

    Args:
        store: Where from.
        partial: Also downloads that were cut short, which the next pull would go on with.
        caches: Also what is fetched only once for all builds.

    Raises:
        ImageError: a record cannot be read, so that nobody knows what is needed.
        OSError: something cannot be removed.
    """
    try:
        with store.locked(COLLECT, wait=False):
            needed = _needed(store)
            garbage = _garbage(store, needed)
            if caches:
                garbage += _children(store.root / CACHES)
            freed = sum(
                _discard(path) for path in garbage if partial or not path.name.startswith(PARTIAL)
            )
            with store.locked("references"):  # or somebody might be writing them
                return freed + sum(_discard(path) for path in _half_written(store))
    except BlockingIOError:
        return None


def _needed(store: ImageStore) -> set[Path]:
    needed: set[Path] = set()
    for image_id in store.list_ids():
        record = store.read_record(image_id)
        needed |= {store.blob_path(image_id), store.blob_path(record["manifest"])}
        for layer in record["layers"]:
            needed |= {store.blob_path(layer["digest"]), *_places(store, layer["diff_id"])}
        if record["mend"]:
            needed.add(store.root / "mends" / record["mend"])
            needed.add(store.root / LENT / record["mend"])
    needed |= {flat_path(store, image.layers) for image in store.list_images()}
    for diff_id in layers_of_steps(store):
        needed |= {store.blob_path(diff_id), *_places(store, diff_id)}
    return needed


def _places(store: ImageStore, diff_id: str) -> tuple[Path, Path]:
    layer = store.layer_path(diff_id)
    return layer, store.root / LENT / layer.name


def _garbage(store: ImageStore, needed: set[Path]) -> list[Path]:
    places = ("blobs/sha256", "blobs/sha512", "layers", "mends", "flats", LENT, "work")
    present = [path for place in places for path in _children(store.root / place)]
    return [path for path in present if path not in needed]


def _half_written(store: ImageStore) -> list[Path]:
    """Return the documents whose writer was killed, before they had their name."""
    places = (store.root, store.root / "records")
    return [path for place in places for path in _children(place) if path.name.startswith(".")]


def _children(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except FileNotFoundError:
        return []


def _discard(path: Path) -> int:
    """Remove a file or a tree and return how much it took."""
    size = _usage(path)
    remove_lent(path)
    return size


def _usage(path: Path) -> int:
    found = path.lstat()
    size = found.st_blocks * _BLOCK
    for directory, inner, files in os.walk(path):
        for name in (*inner, *files):
            place = os.lstat(Path(directory, name))
            size += place.st_blocks * _BLOCK // (place.st_nlink if name in files else 1)
    return size
