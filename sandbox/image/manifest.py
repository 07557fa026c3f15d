"""Manifests and indexes of OCI and docker: what an image is made of, and for which machine."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from sandbox.errors import ImageError, SpecError
from sandbox.image.config import load_object
from sandbox.image.reference import is_digest
from sandbox.records.light import dataclass

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
ACCEPTED = (OCI_INDEX, OCI_MANIFEST, DOCKER_LIST, DOCKER_MANIFEST)

LARGEST_DOCUMENT = 8 << 20
DEEPEST_INDEX = 4

_DOCKER_LAYER = "application/vnd.docker.image.rootfs."
_LAYERS = ("application/vnd.oci.image.layer.", _DOCKER_LAYER)
_MOST_LAYERS = 499  # and one of our own: overlayfs takes 500
_MACHINES = {
    "x86_64": "amd64",
    "aarch64": "arm64/v8",
    "armv8l": "arm/v8",
    "armv7l": "arm/v7",
    "armv6l": "arm/v6",
    "i386": "386",
    "i686": "386",
    "ppc64le": "ppc64le",
    "s390x": "s390x",
    "riscv64": "riscv64",
    "loongarch64": "loong64",
    "mips64": "mips64le",
}


@dataclass(frozen=True, kw_only=True)
class Platform:
    """A machine that an image is for, in Go's words."""

    os: str
    architecture: str
    variant: str = ""

    def __str__(self) -> str:
        """Return `linux/arm64/v8`."""
        return "/".join(filter(None, (self.os, self.architecture, self.variant)))


def parse_platform(text: str) -> Platform:
    """Return the platform `linux/arm64`, `arm64` or `linux/arm/v7`.

    Raises:
        SpecError: the text is not one.
    """
    parts = text.strip().lower().split("/")
    if len(parts) == 1:
        parts = ["linux", *parts]
    if not all(parts) or len(parts) > 3:  # noqa: PLR2004 - os, architecture, variant
        raise SpecError(f"`{text}` is not a platform", hint="write such as `linux/arm64`")
    parts[1] = {"x86_64": "amd64", "aarch64": "arm64"}.get(parts[1], parts[1])
    return Platform(os=parts[0], architecture=parts[1], variant="".join(parts[2:]))


def host_platform() -> Platform:
    """Return what this machine runs."""
    machine = os.uname().machine
    return parse_platform(f"linux/{_MACHINES.get(machine, machine)}")


@dataclass(frozen=True, kw_only=True)
class Descriptor:
    """What points to a blob."""

    media_type: str
    digest: str
    size_bytes: int
    platform: Platform | None = None
    name: str = ""
    """The annotation that names it in an OCI layout."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """One image for one platform."""

    config: Descriptor
    layers: tuple[Descriptor, ...]
    """Bottom first."""


@dataclass(frozen=True, kw_only=True)
class Index:
    """Several images, or the same for several platforms."""

    manifests: tuple[Descriptor, ...]


def parse_manifest(data: bytes, media_type: str = "") -> Manifest | Index:
    """Return what a manifest or an index says.

    Args:
        data: The document.
        media_type: What it was announced as; it then has to be that.

    Raises:
        ImageError: it is neither, could be read as either, or is of docker's first version.
    """
    document = load_object(data, "the image's manifest")
    own_type = document.get("mediaType")
    if document.get("schemaVersion") == 1:
        raise ImageError(
            "the image has a manifest of docker's first version, which says too little",
            hint="push the image again with a docker of this decade",
        )
    if own_type is not None and media_type in ACCEPTED and own_type != media_type:
        raise ImageError(f"a manifest says that it is {own_type}, but came as {media_type}")
    is_index = "manifests" in document
    if is_index == ("layers" in document or "config" in document):
        raise ImageError("a document is not clearly either a manifest or an index")
    if is_index:
        return Index(manifests=_descriptors(document.get("manifests"), "manifests"))
    return _manifest(document)


def _manifest(document: Mapping[str, Any]) -> Manifest:
    config = _descriptor(document.get("config"), "config")
    layers = _descriptors(document.get("layers"), "layers")
    if config.media_type not in {OCI_CONFIG, DOCKER_CONFIG, ""}:
        raise ImageError(f"this is no image to run, but {config.media_type}")
    if len(layers) > _MOST_LAYERS:
        raise ImageError(f"the image has {len(layers)} layers, more than {_MOST_LAYERS}")
    for layer in layers:
        known = layer.media_type.startswith(_LAYERS) or not layer.media_type
        if not known or "encrypted" in layer.media_type:
            raise ImageError(f"the image has a layer of type {layer.media_type}")
    return Manifest(config=config, layers=layers)


def layer_type(media_type: str) -> str:
    """Return OCI's name of a layer's type, which old registries do not use."""
    if not media_type.startswith(_DOCKER_LAYER):
        return media_type
    return OCI_LAYER + ("+gzip" if media_type.endswith("gzip") else "")


def write_manifest(config: tuple[str, int], layers: Sequence[Descriptor]) -> bytes:
    """Return a manifest in OCI's form; the configuration by its digest and its size."""
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": {"mediaType": OCI_CONFIG, "digest": config[0], "size": config[1]},
        "layers": [
            {
                "mediaType": layer_type(layer.media_type),
                "digest": layer.digest,
                "size": layer.size_bytes,
            }
            for layer in layers
        ],
    }
    return json.dumps(document).encode()


def _descriptors(value: object, name: str) -> tuple[Descriptor, ...]:
    if value is None:  # as docker 25 writes an empty list
        return ()
    if not isinstance(value, list):
        raise ImageError(f"a manifest has a wrong {name}: {value!r:.80}")
    return tuple(_descriptor(item, name) for item in value)


def _descriptor(value: object, name: str) -> Descriptor:
    if not isinstance(value, dict):
        raise ImageError(f"a manifest has a wrong {name}: {value!r:.80}")
    digest, size = value.get("digest"), value.get("size")
    if not is_digest(digest):
        raise ImageError(f"a manifest has a wrong digest in {name}: {digest!r:.80}")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ImageError(f"a manifest has a wrong size in {name}: {size!r:.80}")
    annotations = _object(value, "annotations")
    platform = _object(value, "platform")
    return Descriptor(
        media_type=_text(value, "mediaType"),
        digest=digest,
        size_bytes=size,
        platform=_platform(platform) if platform else None,
        name=_text(annotations, "io.containerd.image.name")
        or _text(annotations, "org.opencontainers.image.ref.name"),
    )


def _platform(value: Mapping[str, Any]) -> Platform:
    return Platform(
        os=_text(value, "os"),
        architecture=_text(value, "architecture"),
        variant=_text(value, "variant"),
    )


def _object(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    inner = value.get(name)
    return inner if isinstance(inner, dict) else {}


def _text(value: Mapping[str, Any], name: str) -> str:
    text = value.get(name)
    return text if isinstance(text, str) else ""


def choose(manifests: Sequence[Descriptor], wanted: Platform) -> Descriptor:
    """Return the one for a platform; the nearest older variant if its own is not there.

    Raises:
        ImageError: there is none; what there is, is named.
    """
    ranked = [
        (rank, -position, manifest)
        for position, manifest in enumerate(manifests)
        if (rank := _rank(manifest, wanted)) > 0
    ]
    if ranked:
        return max(ranked, key=lambda item: item[:2])[2]
    offered = sorted({str(m.platform) for m in manifests if _is_real(m.platform)})
    raise ImageError(
        f"the image is not for {wanted}, only for {', '.join(offered) or 'nothing we know'}",
        hint="`--platform` takes another one; running it needs an emulator" if offered else None,
    )


def _is_real(platform: Platform | None) -> bool:
    """Return whether this is no attestation, whose platform is unknown."""
    return platform is None or platform.os != "unknown"


def _rank(manifest: Descriptor, wanted: Platform) -> int:
    """Return how well a manifest fits, 0 for not at all."""
    platform = manifest.platform
    if platform is None:
        return 1  # it says nothing; its configuration will be looked at
    if (platform.os, platform.architecture) != (wanted.os, wanted.architecture):
        return 0
    if _variant(platform) == _variant(wanted):
        return 1000
    if not wanted.variant or not platform.variant:
        return 500 if not platform.variant else 400 - _variant(platform)
    older = _variant(platform) < _variant(wanted)
    return 100 + _variant(platform) if older else 0


def _variant(platform: Platform) -> int:
    default = {"arm64": "v8", "arm": "v7", "amd64": "v1"}.get(platform.architecture, "")
    digits = (platform.variant or default).removeprefix("v").partition(".")[0]
    return int(digits) if digits.isdecimal() and len(digits) < 3 else 0  # noqa: PLR2004


def check_platform(config_platform: Platform, wanted: Platform) -> bool:
    """Return whether a configuration is for this platform, as far as it says."""
    same_os = config_platform.os in {"", wanted.os}
    return same_os and config_platform.architecture in {"", wanted.architecture}
