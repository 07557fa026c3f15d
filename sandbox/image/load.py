"""Images that come as files: OCI layouts, docker's and OCI's archives, plain trees."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from sandbox.errors import ImageError, SpecError
from sandbox.image.compression import Counter, kind_of, unpacked_pieces
from sandbox.image.config import ImageConfig, parse_config
from sandbox.image.ingest import Ingest, adding, check_blob
from sandbox.image.install import ImagePlan, LayerPlan, install
from sandbox.image.manifest import (
    DEEPEST_INDEX,
    OCI_LAYER,
    Descriptor,
    Index,
    Manifest,
    Platform,
    choose,
    host_platform,
    parse_manifest,
)
from sandbox.image.members import ArchiveMembers, DirectoryMembers, Members, read_document
from sandbox.image.reference import parse_reference
from sandbox.image.rootfs import write_tree
from sandbox.image.store import ImageStore
from sandbox.image.unpack import Bounds

_HEAD = 1024
_PIECE = 1 << 20


def load(
    store: ImageStore,
    path: Path,
    *,
    name: str | None = None,
    platform: Platform | None = None,
    bounds: Bounds | None = None,
) -> tuple[str, ...]:
    """Add all images of a file or a directory to the store, and return their ids.

    Args:
        store: Where to.
        path: An archive of docker's or OCI's form, an OCI layout, or a tree: a directory or an
            archive of its files. Any archive may be compressed.
        name: What to call the image instead of what the file says; then it must be one.
        platform: Which image of an index; this machine's unless given.
        bounds: What is too much.

    Raises:
        ImageError: the file is no image, or damaged, or one that is not to be trusted.
        SpecError: the name is none.
    """
    names = () if name is None else (str(parse_reference(name)),)
    wanted = platform or host_platform()
    try:
        with adding(store, bounds) as ingest, _members(ingest, path) as members:
            plans = list(_plans(ingest, path, members, wanted))
            if names and len(plans) != 1:
                raise ImageError(f"{path} has {len(plans)} images, which cannot share a name")
            if not plans:
                raise ImageError(f"{path} has no image in it")
            return tuple(install(ingest, _renamed(plan, names)) for plan in plans)
    except OSError as exc:
        place = f" ({exc.filename})" if exc.filename and str(exc.filename) != str(path) else ""
        raise ImageError(
            f"cannot load {path}: {exc.strerror}{place}",
            hint="name an archive of `docker save`, or a directory",
        ) from exc


@contextmanager
def spooled(store: ImageStore, stream: BinaryIO) -> Iterator[Path]:
    """Give what comes through a pipe as a file that can be loaded; it is removed afterwards.

    Raises:
        ImageError: it cannot be read or written.
    """
    try:
        with adding(store) as ingest:
            path = ingest.new_path("stream")
            try:
                with path.open("xb") as target:
                    shutil.copyfileobj(stream, target, _PIECE)
                yield path
            except ImageError as exc:
                said = str(exc).replace(str(path), "what came through the pipe")
                raise ImageError(said, hint=exc.hint) from exc
            finally:
                path.unlink(missing_ok=True)
    except OSError as exc:
        raise ImageError(f"cannot keep what is to be loaded: {exc.strerror or exc}") from exc


def _renamed(plan: ImagePlan, names: tuple[str, ...]) -> ImagePlan:
    return ImagePlan(**{**plan.__dict__, "names": names or plan.names})


@contextmanager
def _members(ingest: Ingest, path: Path) -> Iterator[Members]:
    """Yield the files of a directory or an archive, which is first uncompressed if need be."""
    if path.is_dir():
        yield DirectoryMembers(path)
        return
    with path.open("rb", buffering=0) as file:
        head = file.read(_HEAD)
    try:
        kind = kind_of(head)
    except ImageError as exc:
        raise ImageError(
            f"{path} is no image: neither a directory nor an archive",
            hint="`docker save` and `podman save` write one",
        ) from exc
    if kind == "tar":
        yield ArchiveMembers(path)
        return
    plain = ingest.new_path("archive")
    try:
        with path.open("rb", buffering=0) as file, plain.open("xb") as target:
            size = 0
            for piece in unpacked_pieces(Counter(file)):
                size += target.write(piece)
                if size > ingest.bounds.size_bytes:
                    raise ImageError(f"{path} unpacks to more than {size} bytes")
        yield ArchiveMembers(plain)
    finally:
        plain.unlink(missing_ok=True)


def _plans(ingest: Ingest, path: Path, members: Members, wanted: Platform) -> Iterator[ImagePlan]:
    if members.has("index.json"):
        index = parse_manifest(read_document(members, "index.json"))
        if isinstance(index, Manifest):
            raise ImageError(f"{path}: its index.json is no index")
        if index.manifests or not members.has("manifest.json"):
            yield from _layout_plans(ingest, members, index, wanted)
            return
    if members.has("manifest.json"):
        yield from _docker_plans(ingest, members)
    else:
        yield _tree_plan(ingest, path, wanted)


# --- OCI ------------------------------------------------------------------------------------------


def _layout_plans(
    ingest: Ingest, members: Members, index: Index, wanted: Platform
) -> Iterator[ImagePlan]:
    by_name: dict[str, list[Descriptor]] = {}
    for descriptor in index.manifests:
        by_name.setdefault(descriptor.name, []).append(descriptor)
    for name, descriptors in by_name.items():
        data, digest, manifest = _manifest(members, choose(descriptors, wanted), wanted)
        config_data = _small_blob(members, manifest.config)
        config = parse_config(config_data)
        yield ImagePlan(
            config_data=config_data,
            config=config,
            manifest=(data, digest),
            layers=_layer_plans(ingest, members, manifest, config),
            names=_names([name]),
            blobs=tuple(layer.digest for layer in manifest.layers),
        )


def _manifest(
    members: Members, descriptor: Descriptor, wanted: Platform
) -> tuple[bytes, str, Manifest]:
    for _ in range(DEEPEST_INDEX):
        data = _small_blob(members, descriptor)
        found = parse_manifest(data, descriptor.media_type)
        if isinstance(found, Manifest):
            return data, descriptor.digest, found
        descriptor = choose(found.manifests, wanted)
    raise ImageError(f"the image has indexes in indexes, more than {DEEPEST_INDEX} deep")


def _blob_name(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/", 1)


def _small_blob(members: Members, descriptor: Descriptor) -> bytes:
    data = read_document(members, _blob_name(descriptor.digest))
    algorithm = descriptor.digest.partition(":")[0]
    digest = f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"
    check_blob(digest, len(data), descriptor.digest, descriptor.size_bytes)
    return data


def _layer_plans(
    ingest: Ingest, members: Members, manifest: Manifest, config: ImageConfig
) -> tuple[LayerPlan, ...]:
    if len(manifest.layers) != len(config.diff_ids):
        raise ImageError(
            f"the image's manifest has {len(manifest.layers)} layers, "
            f"its configuration {len(config.diff_ids)}"
        )
    return tuple(
        LayerPlan(
            diff_id=diff_id,
            media_type=descriptor.media_type or OCI_LAYER,
            fetch=partial(_copy, ingest, members, descriptor),
        )
        for descriptor, diff_id in zip(manifest.layers, config.diff_ids, strict=True)
    )


def _copy(ingest: Ingest, members: Members, descriptor: Descriptor) -> str:
    if not ingest.has_blob(descriptor.digest, descriptor.size_bytes):
        with members.open(_blob_name(descriptor.digest)) as file:
            ingest.copy_blob(file, descriptor.digest, descriptor.size_bytes)
    return descriptor.digest


# --- docker ---------------------------------------------------------------------------------------


def _docker_plans(ingest: Ingest, members: Members) -> Iterator[ImagePlan]:
    try:
        images = json.loads(read_document(members, "manifest.json"))
    except (ValueError, RecursionError) as exc:
        raise ImageError(f"the archive's manifest.json is not JSON: {exc}") from exc
    if not isinstance(images, list):
        raise ImageError("the archive's manifest.json is no list of images")
    for image in images:
        config_name = image.get("Config") if isinstance(image, dict) else None
        if not isinstance(config_name, str):
            raise ImageError("the archive's manifest.json has an image without a configuration")
        config_data = read_document(members, config_name)
        config = parse_config(config_data)
        files = _strings(image.get("Layers"))
        if len(files) != len(config.diff_ids):
            raise ImageError(
                f"the archive has {len(files)} layers for an image of {len(config.diff_ids)}"
            )
        yield ImagePlan(
            config_data=config_data,
            config=config,
            manifest=None,
            layers=tuple(
                _docker_layer(ingest, members, file, diff_id)
                for file, diff_id in zip(files, config.diff_ids, strict=True)
            ),
            names=_names(_strings(image.get("RepoTags"))),
        )


def _docker_layer(ingest: Ingest, members: Members, file: str, diff_id: str) -> LayerPlan:
    with members.open(file) as opened:
        kind = kind_of(opened.read(_HEAD))
    return LayerPlan(
        diff_id=diff_id,
        media_type=OCI_LAYER if kind == "tar" else f"{OCI_LAYER}+{kind}",
        fetch=_fetching(ingest, partial(members.open, file)),
    )


def _fetching(ingest: Ingest, opener: Callable[[], Any]) -> Callable[[], str]:
    def fetch() -> str:
        with opener() as file:
            return ingest.copy_blob(file, None, None)[0]

    return fetch


def _strings(value: object) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ImageError(f"the archive's manifest.json is wrong: {value!r:.80}")
    return value


# --- a tree ---------------------------------------------------------------------------------------


def _tree_plan(ingest: Ingest, path: Path, platform: Platform) -> ImagePlan:
    def fetch() -> str:
        if not path.is_dir():
            with path.open("rb", buffering=0) as file:
                return ingest.copy_blob(file, None, None)[0]
        archive = ingest.new_path("tree")
        try:
            write_tree(path, archive)
            with archive.open("rb", buffering=0) as file:
                return ingest.copy_blob(file, None, None)[0]
        finally:
            archive.unlink(missing_ok=True)

    return ImagePlan(
        config_data=None,
        config=ImageConfig(
            architecture=platform.architecture, variant=platform.variant, os=platform.os
        ),
        manifest=None,
        layers=(LayerPlan(diff_id=None, media_type=_tree_type(path), fetch=fetch),),
        names=(),
    )


def _tree_type(path: Path) -> str:
    if path.is_dir():
        return OCI_LAYER
    with path.open("rb") as file:
        kind = kind_of(file.read(_HEAD))
    return OCI_LAYER if kind == "tar" else f"{OCI_LAYER}+{kind}"


def _names(texts: Sequence[str]) -> tuple[str, ...]:
    """Return full references; what is not one, as a mere note may be, names nothing."""
    names = []
    for text in texts:
        try:
            names.append(str(parse_reference(text)))
        except SpecError:
            continue
    return tuple(names)
