"""The end of a build: its last stage as an image of the store, with its names."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.build.builder import Moment
from sandbox.build.state import ImageState
from sandbox.errors import ImageError
from sandbox.image.config import parse_config
from sandbox.image.ingest import Ingest
from sandbox.image.manifest import Descriptor, write_manifest


def add_image(ingest: Ingest, state: ImageState, moment: Moment, names: Sequence[str]) -> str:
    """Add the image of a stage, or find that it is there, and return its id.

    Raises:
        ImageError: its layers do not fit together.
        OSError: something cannot be written.
    """
    created = moment.text if moment.latest_sec is not None else state.created or moment.text
    data = state.write(created)
    image_id = ingest.put_bytes(data)
    layers = [
        Descriptor(media_type=meta.media_type, digest=meta.digest, size_bytes=meta.blob_size_bytes)
        for meta in state.layers
    ]
    manifest = ingest.put_bytes(write_manifest((image_id, len(data)), layers))
    try:
        ingest.store.read(image_id)
    except ImageError:
        return ingest.add_image(image_id, parse_config(data), manifest, state.layers, names)
    known = ingest.store.read_references()
    for name in names:
        if known.get(name) != {"id": image_id, "digest": manifest}:
            ingest.store.tag(name, image_id, manifest)
    return image_id
