"""The store: what is loaded is found, shared, held, removed; nothing half-made is ever seen."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import ImageError
from sandbox.image.collect import prune, remove
from sandbox.image.ingest import adding
from sandbox.image.load import load
from sandbox.image.save import save
from sandbox.image.store import ImageStore

Layout = Callable[..., Path]


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "images")


@pytest.fixture
def base(make_tar: Any) -> bytes:
    archive = make_tar().add("./", "5", mode=0o755).add("etc/", "5", mode=0o700)
    return bytes(archive.add("etc/name", data="base").add("etc/other", data="other").end())


def files(store: ImageStore) -> list[str]:
    """All that is in the store but locks and the tree's inner files."""
    found = []
    for place in ("blobs/sha256", "layers", "mends", "records", "work"):
        if (store.root / place).exists():
            found += [f"{place}/{path.name}" for path in (store.root / place).iterdir()]
    return sorted(found)


def docker_archive(
    path: Path, layers: list[bytes], *, tags: list[str] | None, linked: bool = False
) -> Path:
    """Write what `docker save` of old writes; `linked` as skopeo does, layers by links."""
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Cmd": ["sh"]},
            "rootfs": {
                "type": "layers",
                "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers],
            },
        }
    ).encode()
    names = [f"{number}/layer.tar" for number in range(len(layers))]
    manifest = json.dumps([{"Config": "config.json", "RepoTags": tags, "Layers": names}]).encode()
    with tarfile.open(path, "w") as archive:

        def add(name: str, data: bytes = b"", link: str = "") -> None:
            member = tarfile.TarInfo(name)
            member.size, member.linkname = len(data), link
            member.type = tarfile.SYMTYPE if link else tarfile.REGTYPE
            archive.addfile(member, io.BytesIO(data))

        for number, (name, layer) in enumerate(zip(names, layers, strict=True)):
            if linked:
                add(f"real{number}.tar", layer)
                add(name, link=f"../real{number}.tar")
            else:
                add(name, layer)
        add("config.json", config)
        add("manifest.json", manifest)
    return path


# --- loading --------------------------------------------------------------------------------------


def test_a_layout_is_loaded_and_found(store: ImageStore, make_layout: Layout, base: bytes) -> None:
    (image_id,) = load(store, make_layout([base], Cmd=["sh"], Env=["A=1"]))

    image = store.find("test:1")

    assert image.id == image_id
    assert image == store.find(image_id) == store.find(image.short_id)
    assert (image.config.cmd, image.config.env) == (("sh",), (("A", "1"),))
    assert (image.layers[0] / "etc/name").read_text() == "base"
    assert [path.stat().st_mode & 0o777 for path in (store.root, image.layers[0].parent)] == [
        0o700,
        0o700,
    ]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("linked", [False, True])
def test_what_docker_saves_is_loaded(
    store: ImageStore, tmp_path: Path, base: bytes, *, packed: bool, linked: bool
) -> None:
    path = docker_archive(tmp_path / "a.tar", [base], tags=["one:1", "two:2"], linked=linked)
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))

    load(store, path)

    assert store.find("one:1") == store.find("two:2")
    assert store.find("one:1").config.cmd == ("sh",)


def test_docker_25_may_leave_the_index_empty(
    store: ImageStore, tmp_path: Path, base: bytes
) -> None:
    path = docker_archive(tmp_path / "a.tar", [base], tags=["one:1"])
    with tarfile.open(path, "a") as archive:
        data = b'{"schemaVersion": 2, "manifests": null}'
        member = tarfile.TarInfo("index.json")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))

    load(store, path)

    assert store.find("one:1").layers


def test_an_archive_of_a_layout_is_loaded(
    store: ImageStore, tmp_path: Path, make_layout: Layout, base: bytes
) -> None:
    with tarfile.open(tmp_path / "oci.tar", "w") as archive:
        archive.add(make_layout([base]), ".")

    load(store, tmp_path / "oci.tar", name="mine:7")

    assert store.find("mine:7").references == ("docker.io/library/mine:7",)


def test_a_tree_is_loaded_from_a_directory_and_from_an_archive(
    store: ImageStore, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    (tree / "d").mkdir(parents=True)
    (tree / "d/f").write_text("x")
    os.link(tree / "d/f", tree / "d/g")
    (tree / "l").symlink_to("d/f")
    os.mkfifo(tree / "p")
    os.setxattr(tree / "d/f", "user.note", b"\xff")
    with tarfile.open(tmp_path / "tree.tar.gz", "w:gz") as archive:
        archive.add(tree, ".")

    for name, path in (("dir", tree), ("tar", tmp_path / "tree.tar.gz")):
        load(store, path, name=name)
        found = store.find(name).layers[0]
        assert (found / "d/f").read_text() == "x"
        assert (found / "d/f").stat().st_nlink == 2
        assert (found / "l").readlink() == Path("d/f")
    found = store.find("dir").layers[0]
    assert os.getxattr(found / "d/f", "user.note") == b"\xff"
    assert load(store, tree) == load(store, tree)


@pytest.mark.parametrize(
    "content", [b"", b"hello", bytes(1024), b"\x1f\x8b\x08broken", b"PK\x03\x04", b"BZh9"]
)
def test_what_is_no_image_is_refused(store: ImageStore, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    if content == bytes(1024):
        assert load(store, tmp_path / "file")  # an empty tree is one
        return

    with pytest.raises(ImageError):
        load(store, tmp_path / "file")

    assert files(store) == []


def test_a_damaged_archive_leaves_nothing(store: ImageStore, tmp_path: Path, base: bytes) -> None:
    path = docker_archive(tmp_path / "a.tar", [base], tags=["one:1"])
    data = path.read_bytes()
    path.write_bytes(data.replace(b"base", b"evil"))

    with pytest.raises(ImageError, match="diff_id"):
        load(store, path)

    assert files(store) == []


def test_layers_are_shared(
    store: ImageStore, make_layout: Layout, make_tar: Any, base: bytes
) -> None:
    load(store, make_layout([base], name="a"), name="a")
    upper = make_tar().add("new", data="x").end()
    load(store, make_layout([base, upper], name="b"), name="b")

    assert store.find("a").layers[0] == store.find("b").layers[0]
    assert len(store.find("b").layers) >= 2


def test_of_equal_layers_only_the_topmost_is_stacked(
    store: ImageStore, make_layout: Layout, make_tar: Any, base: bytes
) -> None:
    upper = make_tar().add("./", "5").add("etc/", "5", mode=0o700).add("etc/name", data="n").end()

    load(store, make_layout([base, upper, base]))

    image = store.find("test:1")
    assert len(image.blobs) == 3
    assert [(tree / "etc/name").read_text() for tree in image.layers] == ["n", "base"]


@pytest.mark.parametrize("form", ["oci", "docker"])
def test_what_is_saved_can_be_loaded(
    store: ImageStore, tmp_path: Path, make_layout: Layout, base: bytes, make_tar: Any, form: str
) -> None:
    upper = make_tar().add("new", data="x").end()
    if form == "oci":
        load(store, make_layout([base, upper]))
    else:
        load(store, docker_archive(tmp_path / "a.tar", [base, upper], tags=["test:1"]))
    image = store.find("test:1")

    save(store, ["test:1"], tmp_path / "saved.tar")

    other = ImageStore(tmp_path / "other")
    assert load(other, tmp_path / "saved.tar") == (image.id,)
    assert other.find("test:1").manifest_digest == image.manifest_digest
    with tarfile.open(tmp_path / "saved.tar") as archive:
        docker = json.load(archive.extractfile("manifest.json") or io.BytesIO())
    assert docker[0]["RepoTags"] == ["test:1"]
    with pytest.raises(ImageError, match="there already"):
        save(store, ["test:1"], tmp_path / "saved.tar")


def test_the_same_layers_compressed_otherwise_can_be_saved(
    store: ImageStore, tmp_path: Path, make_layout: Layout, base: bytes
) -> None:
    load(store, docker_archive(tmp_path / "a.tar", [base], tags=["test:1"]))
    load(store, make_layout([base]), name="other")

    save(store, ["other"], tmp_path / "saved.tar")

    assert load(ImageStore(tmp_path / "again"), tmp_path / "saved.tar")


# --- what a stack needs on top --------------------------------------------------------------------


def test_a_directory_that_a_layer_only_implies_stays_as_it_was(
    store: ImageStore, make_layout: Layout, make_tar: Any, base: bytes
) -> None:
    upper = make_tar().add("etc/new", data="x").end()

    load(store, make_layout([base, upper]))

    top = store.find("test:1").layers[-1]
    assert (top / "etc").stat().st_mode & 0o777 == 0o700
    assert list((top / "etc").iterdir()) == []


def test_whiteouts_in_a_directory_of_one_layer_are_not_seen(
    store: ImageStore, make_layout: Layout, make_tar: Any, base: bytes
) -> None:
    upper = make_tar().add("./", "5").add("new/", "5", mode=0o711).add("new/.wh.nothing").end()

    load(store, make_layout([base, upper]))

    *_, lower, top = store.find("test:1").layers
    assert (lower / "new/nothing").is_char_device()
    assert (top / "new").stat().st_mode & 0o777 == 0o711  # so that overlayfs merges two
    assert list((top / "new").iterdir()) == []


def test_a_hard_link_to_a_lower_layer_is_mended(
    store: ImageStore, make_layout: Layout, make_tar: Any, base: bytes
) -> None:
    upper = make_tar().add("./", "5").add("link", "1", link="etc/name").end()

    load(store, make_layout([base, upper]))

    top = store.find("test:1").layers[-1]
    assert (top / "link").read_text() == "base"
    assert (top / "link").stat().st_ino == (top / "etc/name").stat().st_ino
    assert (top / "etc").stat().st_mode & 0o777 == 0o700


def test_a_hard_link_to_nothing_is_refused(
    store: ImageStore, make_layout: Layout, make_tar: Any, base: bytes
) -> None:
    hidden = make_tar().add("etc/.wh.name").end()
    upper = make_tar().add("link", "1", link="etc/name").end()

    with pytest.raises(ImageError, match="which no layer has"):
        load(store, make_layout([base, hidden, upper]))

    assert store.list_images() == ()


# --- finding, holding, removing -------------------------------------------------------------------


def test_nothing_is_found_where_nothing_is(store: ImageStore) -> None:
    with pytest.raises(ImageError, match="no image `debian`") as caught:
        store.find("debian")

    assert "sandbox image pull debian" in str(caught.value.hint)
    assert store.list_images() == ()
    assert prune(store).freed_bytes == 0


def test_an_id_may_not_be_clear(
    store: ImageStore, make_layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "list_ids", lambda: [f"sha256:{d * 64}"[:-1] + d for d in "aa"])

    with pytest.raises(ImageError, match="2 images"):
        store.find("aaaa")


def test_the_last_name_takes_the_image_along(
    store: ImageStore, make_layout: Layout, base: bytes
) -> None:
    layout = make_layout([base])
    load(store, layout)
    load(store, layout, name="other")

    assert remove(store, "test:1").deleted == ()
    assert remove(store, "other").deleted
    assert files(store) == []


def test_an_image_of_several_names_is_removed_by_its_id_only_by_force(
    store: ImageStore, make_layout: Layout, base: bytes
) -> None:
    layout = make_layout([base])
    load(store, layout)
    (image_id,) = load(store, layout, name="other")

    with pytest.raises(ImageError, match="several names"):
        remove(store, image_id)
    assert len(remove(store, image_id, force=True).untagged) == 2


def test_an_image_that_is_held_stays(store: ImageStore, make_layout: Layout, base: bytes) -> None:
    load(store, make_layout([base]))
    image = store.find("test:1")
    fd = store.hold(image)
    other = store.hold(image)

    with pytest.raises(ImageError, match="in use"):
        remove(store, "test:1")
    assert prune(store, every=True).deleted == ()
    os.close(fd)
    os.close(other)
    assert (image.layers[0] / "etc/name").exists()

    assert prune(store, every=True).deleted == (image.id,)
    with pytest.raises(ImageError, match="removed meanwhile"):
        store.hold(image)


def test_a_name_that_moves_on_leaves_an_image_without_one(
    store: ImageStore, make_layout: Layout, make_tar: Any, base: bytes
) -> None:
    load(store, make_layout([base], name="a"))
    old = store.find("test:1")
    load(store, make_layout([make_tar().add("new").end()], name="b"))

    assert prune(store).deleted == (old.id,)
    assert store.find("test:1").id != old.id


def test_garbage_is_not_collected_while_something_is_added(
    store: ImageStore, make_layout: Layout, base: bytes
) -> None:
    load(store, make_layout([base]))

    with adding(store):
        removed = remove(store, "test:1")

    assert removed.freed_bytes is None
    assert files(store)
    assert prune(store).freed_bytes
    assert files(store) == []


def test_what_was_being_written_when_somebody_was_killed_is_garbage(
    store: ImageStore, make_layout: Layout, base: bytes
) -> None:
    load(store, make_layout([base]))
    left = [store.root / ".references.json.1.ab", store.root / "records" / ".x.json.1.ab"]
    for path in left:
        path.write_text("{")

    with adding(store):
        prune(store)
    assert all(path.exists() for path in left)  # somebody may be writing it
    prune(store)

    assert not any(path.exists() for path in left)
    assert store.find("test:1").layers


def test_a_store_of_another_version_is_left_alone(
    store: ImageStore, make_layout: Layout, base: bytes
) -> None:
    (image_id,) = load(store, make_layout([base]))
    path = store.record_path(image_id)
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 9'))

    with pytest.raises(ImageError, match="another version"):
        store.find("test:1")
    with pytest.raises(ImageError, match="another version"):
        prune(store)
    assert (store.layer_path(f"sha256:{hashlib.sha256(base).hexdigest()}") / "tree").exists()


def test_a_layer_from_before_a_power_cut_is_believed_only_if_an_image_has_it(
    store: ImageStore, make_layout: Layout, base: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (image_id,) = load(store, make_layout([base]))
    diff_id = store.find(image_id).config.diff_ids[0]
    monkeypatch.setattr("sandbox.image.ingest.boot_id", lambda: "another")

    with adding(store) as ingest:
        assert ingest.find_layer(diff_id) is not None
        store.record_path(image_id).unlink()
        assert ingest.find_layer(diff_id) is None

    load(store, make_layout([base], name="again"))
    assert (store.find("test:1").layers[0] / "etc/name").read_text() == "base"


LOAD = """
import sys
from pathlib import Path
from sandbox.image.load import load
from sandbox.image.save import save
from sandbox.image.store import ImageStore
load(ImageStore(Path(sys.argv[1])), Path(sys.argv[2]))
"""


@pytest.mark.parametrize(
    "kills", [4, pytest.param(50, marks=[pytest.mark.slow, pytest.mark.timeout(180)])]
)
def test_killed_at_any_point_it_can_be_done_again(
    tmp_path: Path, make_layout: Layout, make_tar: Any, seen: Any, kills: int
) -> None:
    archive = make_tar().add("./", "5")
    for number in range(400):
        archive.add(f"d{number % 20}/f{number}", data=str(number) * 100)
    layout = make_layout([archive.end()])
    whole = ImageStore(tmp_path / "whole")
    load(whole, layout)
    wanted = seen(whole.find("test:1").layers[0])
    store = ImageStore(tmp_path / "killed")

    for _ in range(kills):
        process = subprocess.Popen(
            [sys.executable, "-c", LOAD, str(store.root), str(layout)], stderr=subprocess.PIPE
        )
        with process:
            time.sleep(0.08 + random.random() * 0.25)
            process.send_signal(signal.SIGKILL)
            process.wait(20)
        for image in store.list_images():  # what is seen, is whole
            assert seen(image.layers[0]) == wanted
            remove(store, image.id)

    load(store, layout)
    assert seen(store.find("test:1").layers[0]) == wanted
    prune(store, every=True)
    assert files(store) == []
