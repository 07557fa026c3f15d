"""Manifests and indexes: told apart, and the right platform chosen."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import ImageError, SpecError
from sandbox.image.manifest import (
    DOCKER_CONFIG,
    DOCKER_LIST,
    DOCKER_MANIFEST,
    OCI_CONFIG,
    OCI_INDEX,
    OCI_LAYER,
    OCI_MANIFEST,
    Descriptor,
    Index,
    Manifest,
    choose,
    host_platform,
    parse_manifest,
    parse_platform,
)

DIGEST = "sha256:" + "0" * 64


def descriptor(media_type: str = OCI_LAYER, **more: Any) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": DIGEST, "size": 5, **more}


def manifest(**more: Any) -> dict[str, Any]:
    return {
        "schemaVersion": 2,
        "config": descriptor(OCI_CONFIG),
        "layers": [descriptor()],
        **more,
    }


def parse(document: Any, media_type: str = "") -> Manifest | Index:
    return parse_manifest(json.dumps(document).encode(), media_type)


def offered(*platforms: str) -> list[Descriptor]:
    return [
        Descriptor(
            media_type=OCI_MANIFEST,
            digest="sha256:" + f"{number:064x}",
            size_bytes=1,
            platform=parse_platform(text) if text else None,
        )
        for number, text in enumerate(platforms)
    ]


@pytest.mark.parametrize("media_type", [OCI_MANIFEST, DOCKER_MANIFEST, ""])
def test_a_manifest_lists_its_layers(media_type: str) -> None:
    found = parse(manifest(), media_type)

    assert isinstance(found, Manifest)
    assert [layer.digest for layer in found.layers] == [DIGEST]


@pytest.mark.parametrize("media_type", [OCI_INDEX, DOCKER_LIST, ""])
def test_an_index_lists_manifests(media_type: str) -> None:
    entry = descriptor(OCI_MANIFEST, platform={"os": "linux", "architecture": "arm64"})

    found = parse({"schemaVersion": 2, "manifests": [entry]}, media_type)

    assert isinstance(found, Index)
    assert str(found.manifests[0].platform) == "linux/arm64"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (manifest(manifests=[]), "clearly"),
        ({"schemaVersion": 2}, "clearly"),
        ({"schemaVersion": 1, "fsLayers": []}, "first version"),
        (manifest(mediaType=DOCKER_MANIFEST), "came as"),
        (manifest(layers=[descriptor(digest="sha256:../x")]), "digest"),
        (manifest(layers=[descriptor(size=-1)]), "size"),
        (manifest(layers=[descriptor(size=True)]), "size"),
        (manifest(layers=[descriptor("text/html")]), "layer of type"),
        (manifest(layers=[descriptor(OCI_LAYER + "+encrypted")]), "layer of type"),
        (manifest(layers={}), "wrong layers"),
        (manifest(layers=[descriptor()] * 500), "500 layers"),
        (manifest(config=descriptor("application/vnd.helm.config")), "no image to run"),
        ([], "no JSON object"),
    ],
)
def test_what_is_not_clear_is_refused(document: Any, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        parse(document, OCI_MANIFEST)


def test_docker_writes_an_empty_list_as_null() -> None:
    assert parse({"schemaVersion": 2, "manifests": None}) == Index(manifests=())


def test_dockers_configuration_is_one_too() -> None:
    assert isinstance(parse(manifest(config=descriptor(DOCKER_CONFIG))), Manifest)


@pytest.mark.parametrize(
    ("wanted", "platforms", "chosen"),
    [
        ("linux/amd64", ["linux/arm64", "linux/amd64"], 1),
        ("linux/amd64", ["unknown/unknown", "linux/amd64"], 1),
        ("linux/arm64/v8", ["linux/arm64"], 0),
        ("linux/arm64", ["linux/arm64/v8"], 0),
        ("linux/arm/v7", ["linux/arm/v5", "linux/arm/v6", "linux/arm/v8"], 1),
        ("linux/arm/v7", ["linux/arm/v6", "linux/arm/v7"], 1),
        ("linux/amd64", ["linux/amd64/v3", "linux/amd64"], 1),
        ("linux/amd64", ["linux/amd64", "linux/amd64"], 0),
        ("linux/amd64", [""], 0),
    ],
)
def test_the_nearest_platform_is_chosen(wanted: str, platforms: list[str], chosen: int) -> None:
    manifests = offered(*platforms)

    assert choose(manifests, parse_platform(wanted)) is manifests[chosen]


@pytest.mark.parametrize(
    ("wanted", "platforms"),
    [("linux/amd64", ["linux/arm64", "windows/amd64"]), ("linux/arm/v6", ["linux/arm/v7"])],
)
def test_what_there_is_instead_is_named(wanted: str, platforms: list[str]) -> None:
    with pytest.raises(ImageError, match=", ".join(sorted(platforms))):
        choose(offered(*platforms, "unknown/unknown"), parse_platform(wanted))


@pytest.mark.parametrize("text", ["", "/", "linux/", "a/b/c/d", "//"])
def test_what_is_no_platform_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        parse_platform(text)


def test_this_machine_has_a_platform() -> None:
    assert host_platform().os == "linux"
    assert str(parse_platform("aarch64")) == "linux/arm64"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.just(DIGEST),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["manifests", "layers", "config", "digest", "size", "platform"]),
                inner,
            )
        ),
        max_leaves=12,
    )
)
def test_any_document_is_read_or_refused(document: Any) -> None:
    with contextlib.suppress(ImageError):
        parse(document)
