"""Trees beside those of `umoci unpack` and of a real Docker Engine's `docker export`.

What differs on purpose is named here, and in docs/explanation/images.md, and nothing else may.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import shutil
import stat
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Tree = dict[bytes, dict[str, Any]]

BENCHMARKS = Path(__file__).resolve().parents[3] / "scripts/benchmarks"
IMAGES = ("debian", "python", "stacked", "built")
DEVICES = (stat.S_IFCHR, stat.S_IFBLK)
# What an engine puts into every container, over whatever the image has there.
DOCKERS_OWN = (b".dockerenv", b"dev", b"proc", b"sys", b"etc/hosts", b"etc/hostname",
               b"etc/resolv.conf", b"etc/mtab")  # fmt: skip
# Of all attributes an engine exports this one.
EXPORTED = "security.capability"
BUILD = """\
FROM sandbox-bench
SHELL ["/bin/busybox", "sh", "-c"]
RUN /bin/busybox --install -s /bin; mkdir -p /etc /a/b /c && echo x >/a/b/f && ln /a/b/f /a/b/g
RUN chmod 2750 /a && chown 7:8 /a/b/f && echo z >/c/z && echo own >/etc/own
RUN rm -r /a/b /c && mkdir /a/b && echo y >/a/b/new
RUN ln -s /a/b /c && touch /c/new && echo m >/a/b/m
CMD ["true"]
"""


# --- images ---------------------------------------------------------------------------------------

Entry = tuple[str, Any, dict[str, Any]]


def archive(*entries: Entry) -> bytes:
    """An archive: bytes are a file, text is a link, None a directory, a tuple a hard link."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as made:
        for name, content, more in entries:
            entry = tarfile.TarInfo(name)
            entry.mode, entry.mtime, data = 0o755, 1_000_000_000, None
            if content is None:
                entry.type = tarfile.DIRTYPE
            elif isinstance(content, tuple):
                entry.type, entry.linkname = tarfile.LNKTYPE, content[0]
            elif isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
            else:
                entry.size, data = len(content), io.BytesIO(content)
            for key, value in more.items():
                setattr(entry, key, value)
            made.addfile(entry, data)
    return buffer.getvalue()


def layout_of(directory: Path, *layers: bytes) -> Path:
    """Write an OCI layout with one image, `a`."""
    blobs = directory / "blobs/sha256"
    blobs.mkdir(parents=True)

    def add(data: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        media_type = f"application/vnd.oci.image.{kind}"
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    described = [add(layer, "layer.v1.tar") for layer in layers]
    diff_ids = [layer["digest"] for layer in described]
    config = {"architecture": "amd64", "os": "linux", "config": {"Cmd": ["true"]},
              "rootfs": {"type": "layers", "diff_ids": diff_ids}}  # fmt: skip
    manifest = {
        "schemaVersion": 2,
        "config": add(json.dumps(config).encode(), "config.v1+json"),
        "layers": described,
    }
    entry = add(json.dumps(manifest).encode(), "manifest.v1+json")
    entry["annotations"] = {"org.opencontainers.image.ref.name": "a"}
    index = json.dumps({"schemaVersion": 2, "manifests": [entry]})
    (directory / "index.json").write_text(index)
    (directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return directory


def stack() -> list[bytes]:
    """Layers that replace, hide and add to each other in all ways."""
    note = {"pax_headers": {"SCHILY.xattr.user.note": "kept"}}
    odd, long = os.fsdecode(b"odd\xff\xfe"), "long/" + "n" * 120 + "/" + "m" * 200
    lowest = archive(
        ("a", None, {"mode": 0o2750, "uid": 5, "gid": 6, **note}),
        ("a/f", b"f" * 5000, {"mode": 0o4711, "uid": 1000, **note}),
        ("a/g", ("a/f",), {"mode": 0o4711, "uid": 1000}),  # Docker believes the last one
        ("b/x/y", None, {}),
        ("b/x/y/z", b"deep", {}),
        ("c", "a", {}),
        ("d", None, {"mode": 0o1777}),
        ("d/in", b"in", {}),
        ("e", b"a file", {}),
        ("etc", None, {}),
        (odd, b"odd", {}),
        ("new\nline", b"n", {}),
        (long, b"long", {"uid": 3_000_000_000}),
        ("pipe", b"", {"type": tarfile.FIFOTYPE}),
        ("dangling", "/nowhere", {"uid": 7}),
        ("closed", None, {"mode": 0}),
        ("closed/in", b"x", {"mode": 0}),
    )
    middle = archive(
        ("a", None, {"mode": 0o700, "uid": 9, **note}),
        ("a/.wh.f", b"", {}),
        ("d", b"now a file", {}),
        ("e", None, {"mode": 0o711}),
        ("e/inside", b"now in a directory", {}),
        ("c", None, {}),
        ("c/new", b"was a link", {}),
        ("b", None, {}),
        ("b/.wh..wh..opq", b"", {}),
        ("b/new", b"new", {}),
    )
    upper = archive(
        ("b", None, {}),
        ("b/x", None, {}),
        ("b/x/other", b"comes back empty", {}),
        (".wh.e", b"", {}),
        (".wh.pipe", b"", {}),
        ("dangling", b"no link any more", {}),
    )
    return [lowest, middle, upper, archive(), archive(("e", b"a file again", {}))]


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    """A Docker Engine of our own."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        spec = importlib.util.spec_from_file_location("_docker", BENCHMARKS / "_docker.py")
        assert spec is not None
        assert spec.loader is not None
        engines = importlib.util.module_from_spec(spec)
        sys.modules["_docker"] = engines  # dataclasses look their module up
        spec.loader.exec_module(engines)
    finally:
        sys.path.remove(str(BENCHMARKS))
    try:
        with engines.daemon() as docker:
            yield docker
    except sys.modules["_measure"].SkippedError as reason:
        if os.environ.get("CI"):
            pytest.fail(str(reason))
        pytest.skip(str(reason))


Source = Callable[[str], str]


@pytest.fixture(scope="module")
def source(work: Path, engine: Any, request: pytest.FixtureRequest, do: Any) -> Source:
    """`source("stacked")` is that image in skopeo's words; each has other layers, by others."""
    made = request.getfixturevalue  # what an image is made of, if it is asked for

    def find(name: str) -> str:
        if name == "debian":
            if not (work / "debian").exists():
                do("skopeo", "copy", f"oci:{made('layout')}:base", f"oci:{work}/debian:a")
            return f"oci:{work}/debian:a"
        if name == "python":
            return f"oci-archive:{made('python_image')}"
        if name != "built":
            layers = stack() if name == "stacked" else LAYERS[name]
            place = work / f"layout-{name}"
            return f"oci:{place if place.exists() else layout_of(place, *layers)}:a"
        saved = work / "built.tar"
        if not saved.exists():
            (work / "context").mkdir()
            (work / "context/Dockerfile").write_text(BUILD)
            build = ("build", "--network", "none", "--cgroup-parent", engine.parent)
            words = engine.command(*build, "--tag", "built:1", str(work / "context"))
            do(*words, env={**os.environ, "DOCKER_BUILDKIT": "0"})
            do(*engine.command("save", "-o", str(saved), "built:1"))
        return f"docker-archive:{saved}"

    return find


Look = Callable[[str], Tree]


@pytest.fixture
def ours(source: Source, home: Path, sandbox: Any, stacked: Any) -> Look:
    """`ours("stacked")` is the tree that a run sees."""

    def look(name: str) -> Tree:
        path = source(name).split(":")[1]
        status, _, errors = sandbox(home, "image", "load", path, "--tag", "tree:1")
        assert status == 0, errors
        found: Tree = stacked(home, "tree:1")
        return found

    return look


@pytest.fixture
def umocis(source: Source, tmp_path: Path, do: Any, tree_of: Any) -> Look:
    """`umocis("stacked")` is the tree that `umoci unpack` makes."""

    def look(name: str) -> Tree:
        do("skopeo", "copy", source(name), f"oci:{tmp_path}/umoci:a")
        do("umoci", "unpack", "--image", f"{tmp_path}/umoci:a", tmp_path / "bundle")
        found: Tree = tree_of(tmp_path / "bundle/rootfs")
        do("rm", "-rf", tmp_path / "bundle", tmp_path / "umoci")
        return found

    return look


@pytest.fixture
def dockers(source: Source, tmp_path: Path, engine: Any, do: Any, tree_of: Any) -> Look:
    """`dockers("stacked")` is the tree that `docker export` writes."""

    def look(name: str) -> Tree:
        packed, exported, tree = (tmp_path / part for part in ("packed", "exported", "tree"))
        do("skopeo", "copy", source(name), f"docker-archive:{packed}:tree-{name}:1")
        do(*engine.command("load", "-i", str(packed)))
        container = do(*engine.command("create", f"tree-{name}:1", "true")).strip()
        do(*engine.command("export", "-o", str(exported), container))
        do(*engine.command("rm", container))
        do(*engine.command("rmi", f"tree-{name}:1"))
        tree.mkdir()
        do("tar", "-C", tree, "--xattrs", "--xattrs-include=*", "--numeric-owner", "-xpf", exported)
        found: Tree = tree_of(tree)
        do("rm", "-rf", tree)
        return found

    return look


# --- what they agree on ---------------------------------------------------------------------------


def differences(found: Tree, wanted: Tree) -> dict[bytes, tuple[Any, Any]]:
    """What one has and the other has not, or has otherwise; device nodes are left out by us."""

    def kept(tree: Tree) -> Tree:
        return {
            key: entry
            for key, entry in tree.items()
            if stat.S_IFMT(int(entry["mode"], 8)) not in DEVICES
        }

    one, other = kept(found), kept(wanted)
    return {
        key: (one.get(key), other.get(key))
        for key in one.keys() | other.keys()
        if one.get(key) != other.get(key)
    }


def as_exported(tree: Tree) -> Tree:
    """The part of a tree that an engine writes out as it is in the image."""
    return {
        key: {
            **{name: value for name, value in entry.items() if name != "time"},
            "xattrs": {k: v for k, v in entry["xattrs"].items() if k == EXPORTED},
        }
        for key, entry in tree.items()
        if not any(key == own or key.startswith(own + b"/") for own in DOCKERS_OWN)
    }


@pytest.mark.parametrize("name", IMAGES)
def test_the_tree_is_umocis(name: str, ours: Look, umocis: Look) -> None:
    assert differences(ours(name), umocis(name)) == {}


@pytest.mark.parametrize("name", IMAGES)
def test_the_tree_is_dockers(name: str, ours: Look, dockers: Look) -> None:
    found, wanted = as_exported(ours(name)), as_exported(dockers(name))

    assert len(found) > 10
    assert differences(found, wanted) == {}


# --- what they do not agree on --------------------------------------------------------------------

LAYERS = {
    # A file in what is a link below: overlayfs, and Docker with it, hides the link.
    "usrmerge": [
        archive(
            ("etc", None, {}),
            ("usr/lib", None, {}),
            ("usr/lib/old", b"old", {}),
            ("lib", "usr/lib", {}),
        ),
        archive(("lib/new", b"new", {})),
    ],
    # A directory that an upper layer has no entry for: what it says below remains.
    "implied": [
        archive(("etc", None, {}), ("a", None, {"mode": 0o2750, "uid": 5, "gid": 6})),
        archive(("a/new", b"new", {})),
    ],
    # A hard link that says something else of the file than the file's own entry.
    "relinked": [
        archive(("etc", None, {}), ("f", b"f", {"mode": 0o711}), ("h", ("f",), {"mode": 0o700}))
    ],
    # A link to a file of a lower layer.
    "borrowed": [archive(("a/f", b"f", {})), archive(("h", ("a/f",), {}))],
}


def test_a_file_in_what_is_a_link_below_hides_the_link(
    ours: Look, umocis: Look, dockers: Look
) -> None:
    found, flat, docker = ours("usrmerge"), umocis("usrmerge"), dockers("usrmerge")

    assert differences(as_exported(found), as_exported(docker)) == {}
    assert stat.S_ISDIR(int(found[b"lib"]["mode"], 8))
    assert set(found) >= {b"lib/new", b"usr/lib/old"}
    assert b"usr/lib/new" not in found
    assert stat.S_ISLNK(int(flat[b"lib"]["mode"], 8))
    assert b"usr/lib/new" in flat


def test_a_directory_without_an_entry_stays_as_it_is_below(
    ours: Look, umocis: Look, dockers: Look
) -> None:
    found, flat, docker = ours("implied"), umocis("implied"), dockers("implied")

    assert differences(found, flat) == {}
    assert (found[b"a"]["mode"], found[b"a"]["owner"]) == ("0o42750", (5, 6))
    assert (docker[b"a"]["mode"], docker[b"a"]["owner"]) != ("0o42750", (5, 6))


def test_a_hard_link_changes_nothing_of_its_file(ours: Look, umocis: Look, dockers: Look) -> None:
    found, flat, docker = ours("relinked"), umocis("relinked"), dockers("relinked")

    assert differences(found, flat) == {}
    assert found[b"f"]["mode"] == "0o100711"
    assert docker[b"f"]["mode"] == "0o100700"


def test_a_hard_link_to_a_lower_layer_is_one(ours: Look, umocis: Look, source: Source) -> None:
    found = ours("borrowed")

    assert differences(found, umocis("borrowed")) == {}
    assert found[b"a/f"]["twin"] == b"h"
    shutil.rmtree(source("borrowed").split(":")[1])
