"""An image from a registry into the store."""

from __future__ import annotations

import hashlib
from functools import partial

from sandbox.errors import ImageError
from sandbox.image.auth import find_credentials
from sandbox.image.config import ImageConfig, parse_config
from sandbox.image.download import fetch_blob
from sandbox.image.ingest import Ingest, adding, check_blob
from sandbox.image.install import ImagePlan, LayerPlan, install
from sandbox.image.manifest import (
    DEEPEST_INDEX,
    OCI_LAYER,
    Descriptor,
    Manifest,
    Platform,
    check_platform,
    choose,
    host_platform,
    parse_manifest,
)
from sandbox.image.progress import NoProgress, Progress
from sandbox.image.reference import Reference, parse_reference
from sandbox.image.registry import Repository, api_host
from sandbox.image.store import ImageStore
from sandbox.image.transport import Patience, Transport, UnreachedError
from sandbox.image.unpack import Bounds
from sandbox.records.light import dataclass, field


@dataclass(frozen=True, kw_only=True)
class PullOptions:
    """How to fetch."""

    platform: Platform | None = None
    """Which image of an index; this machine's unless given."""
    insecure: frozenset[str] = frozenset()
    """Hosts, with their ports, that may do without TLS or with any certificate."""
    bounds: Bounds = field(default_factory=Bounds)
    patience: Patience = field(default_factory=Patience)


def pull(
    store: ImageStore,
    name: str,
    options: PullOptions | None = None,
    progress: Progress | None = None,
) -> str:
    """Fetch an image, verified in all of its parts, and return its id.

    What is there already is not fetched again: layers by their content, whatever they are called
    and however they were compressed.

    Args:
        store: Where to.
        name: A reference.
        options: How.
        progress: Told how far it is.

    Raises:
        SpecError: the name is none.
        ImageError: it cannot be fetched, is not for this platform, or is not to be trusted.
    """
    reference = parse_reference(name)
    asked = options or PullOptions()
    host = api_host(reference.registry)
    try:
        with adding(store, asked.bounds) as ingest:
            transport = Transport(
                host,
                insecure=bool({reference.registry, host} & asked.insecure),
                patience=asked.patience,
                flag=ingest.flag,
            )
            credentials = find_credentials(reference.registry, reference.repository)
            repository = Repository(reference, transport, credentials)
            source = _Source(ingest, repository, progress or NoProgress())
            return install(ingest, source.plan(reference, asked.platform))
    except UnreachedError as exc:
        raise ImageError(
            f"cannot fetch {reference}: {exc}",
            hint=f"{exc.hint}; without a network, `sandbox image load` takes a file that "
            "`docker save` or `sandbox image save` wrote elsewhere",
        ) from exc
    except OSError as exc:
        raise ImageError(f"cannot store {reference.short()}: {exc.strerror or exc}") from exc


class _Source:
    """A repository as the source of one image."""

    def __init__(self, ingest: Ingest, repository: Repository, progress: Progress) -> None:
        self._ingest = ingest
        self._repository = repository
        self._progress = progress

    def plan(self, reference: Reference, platform: Platform | None) -> ImagePlan:
        """Return what there is to fetch and to unpack; only documents are fetched for it."""
        wanted = platform or host_platform()
        data, digest, manifest = self._manifest(reference, wanted)
        config_data = self._config(manifest.config)
        config = parse_config(config_data)
        found = Platform(os=config.os, architecture=config.architecture, variant=config.variant)
        if platform is not None and not check_platform(found, platform):
            raise ImageError(f"{reference.short()} is for {found}, not for {platform}")
        if len(manifest.layers) != len(config.diff_ids):
            raise ImageError(
                f"the image's manifest has {len(manifest.layers)} layers, "
                f"its configuration {len(config.diff_ids)}"
            )
        return ImagePlan(
            config_data=config_data,
            config=config,
            manifest=(data, digest),
            layers=self._layers(manifest, config),
            names=(str(reference),),
            blobs=tuple(layer.digest for layer in manifest.layers),
        )

    def _manifest(self, reference: Reference, wanted: Platform) -> tuple[bytes, str, Manifest]:
        asked = reference.digest or reference.tag or ""
        digest, size = reference.digest, None
        for _ in range(DEEPEST_INDEX):
            data, media_type = self._repository.manifest(asked)
            algorithm = "sha256" if digest is None else digest.partition(":")[0]
            found = f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"
            check_blob(found, len(data), digest, size)
            document = parse_manifest(data, media_type)
            if isinstance(document, Manifest):
                return data, found, document
            chosen = choose(document.manifests, wanted)
            asked = digest = chosen.digest
            size = chosen.size_bytes
        raise ImageError(f"the image has indexes in indexes, more than {DEEPEST_INDEX} deep")

    def _config(self, descriptor: Descriptor) -> bytes:
        if self._ingest.has_blob(descriptor.digest, descriptor.size_bytes):
            return self._ingest.store.blob_path(descriptor.digest).read_bytes()
        data = self._repository.small_blob(descriptor.digest)
        algorithm = descriptor.digest.partition(":")[0]
        found = f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"
        check_blob(found, len(data), descriptor.digest, descriptor.size_bytes)
        return data

    def _layers(self, manifest: Manifest, config: ImageConfig) -> tuple[LayerPlan, ...]:
        plans = []
        expected: set[str] = set()
        for descriptor, diff_id in zip(manifest.layers, config.diff_ids, strict=True):
            if diff_id not in expected and self._ingest.find_layer(diff_id) is None:
                self._progress.expect(descriptor.size_bytes)
            expected.add(diff_id)
            fetch = partial(fetch_blob, self._ingest, self._repository, descriptor, self._progress)
            media_type = descriptor.media_type or OCI_LAYER
            plans.append(LayerPlan(diff_id=diff_id, media_type=media_type, fetch=fetch))
        return tuple(plans)
