"""A base image of busybox, and a context that has a bit of everything."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

APPLETS = """
awk cat chmod chown cut dd echo env expr find grep head id kill ln ls mkdir mkfifo mknod mv ps pwd
readlink rm sed sh sleep sort stat tail test touch true false wc wget
"""
PASSWD = "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n"
GROUP = "root:x:0:\nvideo:x:44:alice\nalice:x:1000:\n"


def find_busybox() -> Path:
    """Return the static busybox of this machine."""
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("busybox-static is not installed")
    return Path(busybox)


def box_archive() -> bytes:
    """Return a root file system of busybox as an archive, the same bytes every time."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in ("./", "bin", "etc", "root", "tmp"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(entry)
        contents = {
            "bin/busybox": find_busybox().read_bytes(),
            "etc/passwd": PASSWD.encode(),
            "etc/group": GROUP.encode(),
        }
        for name, data in contents.items():
            entry = tarfile.TarInfo(name)
            entry.mode, entry.size = 0o755 if name.startswith("bin") else 0o644, len(data)
            archive.addfile(entry, io.BytesIO(data))
        for applet in APPLETS.split():
            entry = tarfile.TarInfo(f"bin/{applet}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(entry)
    return buffer.getvalue()


def make_context(directory: Path) -> Path:
    """Fill a directory with files, links, modes and archives to copy."""
    files = {
        "a.txt": "a\n",
        "b.go": "package b\n",
        "c.go": "package c\n",
        "sp ace.txt": "space\n",
        ".hidden": "hidden\n",
        "dir/b.txt": "b\n",
        "dir/exe": "#!/bin/sh\necho executed\n",
        "dir/sub/c.txt": "c\n",
        "dir/sub/deeper/d.txt": "d\n",
        "secret.key": "secret\n",
        "logs/one.log": "log\n",
        "logs/kept.log": "kept\n",
        "cache/x/ignored": "ignored\n",
        ".dockerignore": "# what stays here\n*.key\nlogs/*\n!logs/kept.log\n**/ignored\n\nbusy*\n"
        "!busybox\n",
    }
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o644)
    (directory / "dir/exe").chmod(0o755)
    (directory / "dir/sub").chmod(0o750)
    (directory / "dir/b.txt").chmod(0o600)
    (directory / "empty").mkdir()
    for name, target in {
        "dir/link": "b.txt",
        "dir/dangling": "/nowhere",
        "dir/sub/up": "../..",
        "link-to-a": "a.txt",
        "link-to-dir": "dir",
        "out-of-context": "/etc/passwd",
    }.items():
        (directory / name).symlink_to(target)
    shutil.copy(find_busybox(), directory / "busybox")
    _make_archives(directory)
    return directory


def _make_archives(directory: Path) -> None:
    inner = _archive({"inner": None, "inner/file": b"of the archive\n", "top": b"top\n"})
    root = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(box_archive())) as box,
        tarfile.open(fileobj=root, mode="w") as archive,
    ):
        for member in box:
            archive.addfile(member, box.extractfile(member) if member.isreg() else None)
        entry = tarfile.TarInfo("from-archive")
        entry.size = 3
        archive.addfile(entry, io.BytesIO(b"ok\n"))
    import bz2
    import gzip
    import lzma

    (directory / "inner.tar").write_bytes(inner)
    (directory / "inner.tar.gz").write_bytes(gzip.compress(inner, mtime=0))
    (directory / "inner.tar.xz").write_bytes(lzma.compress(inner))
    (directory / "inner.tar.bz2").write_bytes(bz2.compress(inner))
    (directory / "root.tar.gz").write_bytes(gzip.compress(root.getvalue(), 1, mtime=0))
    (directory / "not-an-archive.gz").write_bytes(gzip.compress(b"only text\n" * 100, mtime=0))


def _archive(files: dict[str, bytes | None]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.uid, entry.gid, entry.mtime = 21, 22, 1_000_000_000
            if data is None:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o751
            else:
                entry.mode, entry.size = 0o640, len(data)
            archive.addfile(entry, io.BytesIO(data or b""))
    return buffer.getvalue()


def write_box(path: Path) -> Path:
    """Write the base image as `docker save` would, under the name `box`."""
    import hashlib

    layer = box_archive()
    diff_id = hashlib.sha256(layer).hexdigest()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["PATH=/bin"], "Cmd": ["sh"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{diff_id}"]},
        }
    ).encode()
    name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = [{"Config": name, "RepoTags": ["box:latest"], "Layers": ["layer.tar"]}]
    documents = {name: config, "layer.tar": layer, "manifest.json": json.dumps(manifest).encode()}
    with tarfile.open(path, "w") as archive:
        for member, data in documents.items():
            entry = tarfile.TarInfo(member)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


@pytest.fixture(scope="session")
def box(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The base image as an archive."""
    return write_box(tmp_path_factory.mktemp("box") / "box.tar")


@pytest.fixture
def context(tmp_path: Path) -> Path:
    """A context of the test's own."""
    return make_context(tmp_path / "context")


@pytest.fixture
def build(cli: Callable[..., Any], box: Path, context: Path) -> Callable[..., Any]:
    """`build("FROM box", "--target", "x")` builds `built:latest` of a text."""
    if os.geteuid() != 0:
        pytest.skip("namespaces without a user namespace need root")
    loaded = cli("image", "load", "-q", box)
    assert loaded.status == 0, loaded.stderr

    def run(text: str, *flags: str | Path, **options: Any) -> Any:
        (context / "Dockerfile").write_text(text)
        return cli("image", "build", "-t", "built", *flags, context, **options)

    return run
