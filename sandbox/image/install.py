"""From a plan of an image, wherever it comes from, to the image in the store."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from sandbox.errors import ImageError
from sandbox.image.cancel import CancelledError
from sandbox.image.config import ImageConfig, parse_config
from sandbox.image.ingest import Ingest, LayerMeta
from sandbox.image.manifest import Descriptor, write_manifest
from sandbox.records.light import dataclass

_AT_ONCE = 4


@dataclass(frozen=True, kw_only=True)
class LayerPlan:
    """One layer that an image needs."""

    diff_id: str | None
    """None for a tree whose archive we make the image of."""
    media_type: str
    fetch: Callable[[], str]
    """Bring its blob into the store, verified, and return its digest."""


@dataclass(frozen=True, kw_only=True)
class ImagePlan:
    """An image that is about to be added."""

    config_data: bytes | None
    """None to make one: `config` is then what it says, its diff_ids left out."""
    config: ImageConfig
    manifest: tuple[bytes, str] | None
    """The manifest with its digest; None to write one."""
    layers: tuple[LayerPlan, ...]
    names: tuple[str, ...]
    """Full references."""
    blobs: tuple[str, ...] = ()
    """Digests of the layers' blobs, as the manifest lists them."""


def install(ingest: Ingest, plan: ImagePlan) -> str:
    """Add an image with its layers, several at once, and return its id.

    Raises:
        ImageError: a layer cannot be fetched or trusted.
        OSError: something cannot be written.
    """
    if plan.config_data is not None and len(plan.layers) != len(plan.config.diff_ids):
        raise ImageError(
            f"the image has {len(plan.layers)} layers, "
            f"but its configuration lists {len(plan.config.diff_ids)}"
        )
    metas = _layers(ingest, plan.layers)
    config, data = plan.config, plan.config_data
    if data is None:
        data = write_config(config, [meta.diff_id for meta in metas])
        config = parse_config(data)
    config_digest = ingest.put_bytes(data)
    if plan.manifest is None or plan.blobs != tuple(meta.digest for meta in metas):
        # Its layers were here already, from blobs that were compressed in another way.
        layers = [
            Descriptor(
                media_type=meta.media_type, digest=meta.digest, size_bytes=meta.blob_size_bytes
            )
            for meta in metas
        ]
        manifest = write_manifest((config_digest, len(data)), layers)
        manifest_digest = ingest.put_bytes(manifest)
    else:
        manifest, manifest_digest = plan.manifest
        ingest.put_checked(manifest, manifest_digest)
    return ingest.add_image(config_digest, config, manifest_digest, metas, plan.names)


def _layers(ingest: Ingest, plans: Sequence[LayerPlan]) -> list[LayerMeta]:
    """Fetch and unpack; the first failure stops the others."""
    from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        jobs = [pool.submit(_layer, ingest, plan) for plan in plans]
        try:
            done, _ = wait(jobs, return_when=FIRST_EXCEPTION)
        except BaseException:
            ingest.flag.set()
            pool.shutdown(cancel_futures=True)
            raise
        if any(job.exception() for job in done):
            ingest.flag.set()
            pool.shutdown(cancel_futures=True)
    problems = [job.exception() for job in jobs if not job.cancelled() and job.exception()]
    for problem in sorted(problems, key=lambda problem: isinstance(problem, CancelledError)):
        if problem is not None:
            raise problem
    return [job.result() for job in jobs]


def _layer(ingest: Ingest, plan: LayerPlan) -> LayerMeta:
    if plan.diff_id is not None:
        known = ingest.find_layer(plan.diff_id)
        if known is not None:
            return known
    digest = plan.fetch()
    return ingest.add_layer(plan.diff_id, digest, plan.media_type)


def write_config(config: ImageConfig, diff_ids: Sequence[str]) -> bytes:
    """Return a configuration for a tree that has none; the same for the same tree."""
    document = {
        "architecture": config.architecture,
        **({"variant": config.variant} if config.variant else {}),
        "os": config.os,
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": list(diff_ids)},
    }
    return json.dumps(document).encode()
