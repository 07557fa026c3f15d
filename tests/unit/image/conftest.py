"""Archives made byte by byte, also such as no program would write."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.image.layer import unpack_layer
from sandbox.image.places import remove_tree
from sandbox.image.unpack import Bounds, Unpacked

BLOCK = 512


def as_bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


class TarMaker:
    """An archive under construction; each `add` returns it, for the next."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def add(
        self,
        name: str | bytes,
        kind: str = "0",
        data: str | bytes = b"",
        link: str | bytes = b"",
        mode: int = 0o644,
        uid: int = 0,
        gid: int = 0,
        mtime: int = 1_000_000_000,
        size: int | None = None,
        device: tuple[int, int] = (0, 0),
        pax: dict[str, str | bytes] | None = None,
        magic: bytes = b"ustar\x0000",
    ) -> TarMaker:
        data = as_bytes(data)
        if pax is not None:
            self.pax(pax)
        length = len(data) if size is None else size
        fields = [
            as_bytes(name)[:100].ljust(100, b"\0"),
            b"%07o\0" % mode,
            b"%07o\0" % uid if uid < 1 << 21 else b"\x80" + uid.to_bytes(7, "big"),
            b"%07o\0" % gid if gid < 1 << 21 else b"\x80" + gid.to_bytes(7, "big"),
            b"%011o\0" % length if length >= 0 else length.to_bytes(12, "big", signed=True),
            b"%011o\0" % mtime,
            b"        ",
            as_bytes(kind),
            as_bytes(link)[:100].ljust(100, b"\0"),
            magic,
            bytes(64),
            b"%07o\0" % device[0],
            b"%07o\0" % device[1],
        ]
        header = b"".join(fields).ljust(BLOCK, b"\0")
        return self.block(header).raw(data + bytes(-len(data) % BLOCK))

    def block(self, header: bytes) -> TarMaker:
        """Add a header, with its checksum."""
        blank = header[:148] + b" " * 8 + header[156:]
        return self.raw(blank[:148] + b"%06o\0 " % sum(blank) + blank[156:])

    def pax(self, records: dict[str, str | bytes], kind: str = "x") -> TarMaker:
        data = b"".join(_record(as_bytes(k), as_bytes(v)) for k, v in records.items())
        return self.add("pax", kind, data)

    def raw(self, data: bytes) -> TarMaker:
        self.parts.append(data)
        return self

    def end(self) -> bytes:
        return b"".join(self.parts) + bytes(2 * BLOCK)


def _record(key: bytes, value: bytes) -> bytes:
    rest = len(key) + len(value) + 3
    length = rest + len(str(rest))
    length = rest + len(str(length))
    return b"%d %s=%s\n" % (length, key, value)


@pytest.fixture
def make_tar() -> type[TarMaker]:
    """`make_tar().add("f", data="x").end()` is an archive."""
    return TarMaker


Unpack = Callable[..., tuple[Unpacked, Path]]


@pytest.fixture
def unpack(tmp_path: Path) -> Unpack:
    """Unpack bytes into `tmp_path/tree`; the digest is checked unless it is told not to."""

    def run(data: bytes, *, bounds: Bounds | None = None, checked: bool = True) -> Any:
        tree = tmp_path / "tree"
        if tree.exists():
            remove_tree(tree)
        diff_id = f"sha256:{hashlib.sha256(data).hexdigest()}" if checked else None
        unpacked, _ = unpack_layer(io.BytesIO(data), tree, diff_id, bounds or Bounds())
        return unpacked, tree

    return run


def snapshot(root: Path) -> dict[str, tuple[Any, ...]]:
    """All that can be seen of the files of a tree but the times of directories."""
    found: dict[str, tuple[Any, ...]] = {}
    for directory, inner, files in os.walk(root):
        for name in [*inner, *files, "."]:
            path = Path(directory, name)
            seen = path.lstat()
            kind = stat.S_IFMT(seen.st_mode)
            content: Any = str(path.readlink()) if kind == stat.S_IFLNK else None
            if kind == stat.S_IFREG:
                content = path.read_bytes()
            times = seen.st_mtime_ns if kind != stat.S_IFDIR else 0
            found[str(path.relative_to(root))] = (
                oct(seen.st_mode),
                seen.st_uid,
                seen.st_gid,
                times,
                content,
            )
    return found


def image_layout(root: Path, layers: list[bytes], **config: Any) -> Path:
    """Write an OCI layout of these uncompressed layers; they are compressed with gzip."""
    blobs = root / "blobs/sha256"
    blobs.mkdir(parents=True)

    def put(data: bytes, media_type: str) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    document = {
        "architecture": "amd64",
        "os": "linux",
        "config": config,
        "rootfs": {
            "type": "layers",
            "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers],
        },
    }
    oci = "application/vnd.oci.image."
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{oci}manifest.v1+json",
        "config": put(json.dumps(document).encode(), f"{oci}config.v1+json"),
        "layers": [
            put(gzip.compress(layer, 1, mtime=0), f"{oci}layer.v1.tar+gzip") for layer in layers
        ],
    }
    entry = put(json.dumps(manifest).encode(), f"{oci}manifest.v1+json")
    entry["annotations"] = {"org.opencontainers.image.ref.name": "test:1"}
    (root / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (root / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return root


@pytest.fixture
def make_layout(tmp_path: Path) -> Callable[..., Path]:
    """`make_layout([tar, tar], Cmd=["sh"])` is the path of an OCI layout."""

    def make(layers: list[bytes], *, name: str = "layout", **config: Any) -> Path:
        return image_layout(tmp_path / name, layers, **config)

    return make


@pytest.fixture
def seen() -> Callable[[Path], dict[str, tuple[Any, ...]]]:
    """`seen(path)` is all that can be seen of a tree."""
    return snapshot
