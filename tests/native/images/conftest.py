"""The programs that made images before us, and what the tests beside them share."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

HERE = Path(__file__).resolve().parent
PROGRAMS = ("docker-registry", "skopeo", "umoci", "htpasswd", "openssl", "mmdebstrap")
OCI = "application/vnd.oci.image"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in this directory; the hook is called for the whole session."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session", autouse=True)
def _peers() -> None:
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing or os.geteuid() != 0:
        reason = f"not installed: {', '.join(missing)}" if missing else "not root"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


# --- commands -------------------------------------------------------------------------------------


def _do(*command: object, **options: Any) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        timeout=280,
        check=False,
        text=True,
        **options,
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return str(done.stdout)


def _sandbox(home: Path, *words: object, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "sandbox", *map(str, words)],
        env={**os.environ, "SANDBOX_HOME": str(home), **(env or {})},
        capture_output=True,
        timeout=200,
        check=False,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="session")
def do(_peers: None) -> Callable[..., str]:
    """`do("skopeo", …)` runs a command that has to succeed, and returns what it prints."""
    return _do


@pytest.fixture(scope="session")
def sandbox() -> Callable[..., tuple[int, str, str]]:
    """`sandbox(home, "image", "ls")` returns status, output and errors."""
    return _sandbox


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home for images, emptied at the end: a tree may hold what pytest cannot remove."""
    yield tmp_path / "home"
    _sandbox(tmp_path / "home", "image", "prune", "--all")


# --- images ---------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory for all of the session."""
    path = tmp_path_factory.mktemp("peers")
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def layout(work: Path, do: Callable[..., str]) -> Path:
    """An OCI layout of Debian with two layers on it: whiteouts, an opaque directory, links."""
    archive, path = work / "debian.tar", work / "oci"
    packages = "--include=base-files,bash,coreutils,perl-base,login"
    do("mmdebstrap", "--variant=extract", packages, "bookworm", archive)
    tree, first, second = work / "tree", work / "first", work / "second"
    tree.mkdir()
    do("tar", "-C", tree, "--exclude=./dev/*", "-xpf", archive)
    archive.unlink()
    (tree / "etc/setuid").write_text("x")
    (tree / "etc/setuid").chmod(0o4755)
    os.setxattr(tree / "etc/setuid", "user.note", b"n\xff")
    os.setxattr(
        tree / "etc/setuid", "security.capability", bytes.fromhex("0100000200200000" + "0" * 24)
    )
    (tree / "etc/gone").mkdir()
    (tree / "etc/gone/file").write_text("old")
    (tree / "etc/gone/other").write_text("old")
    (tree / os.fsdecode(b"etc/\xff\xfe")).write_text("odd")
    first.mkdir()
    (first / "big").write_bytes(os.urandom(3_000_000))
    os.link(first / "big", first / "twin")
    (first / "readonly").mkdir(mode=0o555)
    (first / "readonly/inner").symlink_to("../big")
    os.mkfifo(first / "pipe")
    os.utime(first / "readonly", ns=(10**18, 10**18 + 5))
    second.mkdir(mode=0o711)
    (second / "new").write_text("new")
    os.chown(second / "new", 4_000_000_000, 12345)
    do("umoci", "init", "--layout", path)
    do("umoci", "new", "--image", f"{path}:base")
    do("umoci", "insert", "--image", f"{path}:base", tree, "/")
    do("umoci", "insert", "--image", f"{path}:base", first, "/opt/first")
    do("umoci", "insert", "--image", f"{path}:base", "--whiteout", "/etc/gone/file")
    do("umoci", "insert", "--image", f"{path}:base", "--opaque", second, "/usr/share/doc")
    do("umoci", "config", "--image", f"{path}:base", "--config.cmd", "/bin/sh", "--os", "linux",
       "--architecture", "amd64")  # fmt: skip
    do("umoci", "new", "--image", f"{path}:small")
    do("umoci", "insert", "--image", f"{path}:small", first, "/opt")
    for directory in (tree, first, second):
        do("rm", "-rf", directory)
    return path


@pytest.fixture(scope="session")
def python_image(do: Callable[..., str]) -> Path:
    """An OCI archive: Debian by mmdebstrap, Python, and what examples/infer needs."""
    script = Path(__file__).resolve().parents[3] / "scripts/_infer_image"
    return Path(do(script).strip())


# --- registries -----------------------------------------------------------------------------------

Serve = Callable[..., AbstractContextManager[str]]


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def registry(work: Path) -> Serve:
    """Run a real registry for a block, whose host it is given; all have the same images."""

    @contextmanager
    def serve(name: str, extra: str = "", *, secure: bool = False) -> Iterator[str]:
        host = f"127.0.0.1:{_port()}"
        settings = work / f"{name}.yml"
        settings.write_text(
            f"version: 0.1\nlog: {{level: error}}\n"
            f"storage: {{filesystem: {{rootdirectory: {work / 'registry'}}}}}\n"
            f"http:\n  addr: {host}\n"
            + (f"  tls: {{certificate: {work}/tls.crt, key: {work}/tls.key}}\n" if secure else "")
            + extra
        )
        with (work / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                ["docker-registry", "serve", settings], stdout=log, stderr=log
            )
        try:
            until = time.monotonic() + 30
            while True:
                try:
                    socket.create_connection(("127.0.0.1", int(host.split(":")[1])), 1).close()
                    break
                except OSError:
                    assert time.monotonic() < until
                    time.sleep(0.02)
            yield host
        finally:
            process.terminate()
            process.wait(20)

    return serve


@pytest.fixture(scope="session")
def push_all(work: Path, do: Callable[..., str]) -> Callable[[str, str, str], None]:
    """Push an image of skopeo's in all forms: NAME:oci, NAME:docker, NAME:index and NAME2:zstd."""

    def push(source: str, host: str, name: str) -> None:
        to = f"docker://{host}/{name}"
        copy = ("skopeo", "copy", "--dest-tls-verify=false")
        plain, zstd = work / f"{name}-plain", work / f"{name}-zstd"
        do(*copy, source, f"{to}:oci")
        do(*copy, "--format", "v2s2", source, f"{to}:docker")
        do("skopeo", "copy", "--dest-decompress", source, f"dir:{plain}")
        # Or skopeo would use the layer again that it knows to be compressed with gzip.
        Path("/var/lib/containers/cache/blob-info-cache-v1.boltdb").unlink(missing_ok=True)
        packing = ("--dest-compress", "--dest-compress-format", "zstd")
        do(*copy, "--format", "oci", *packing, f"dir:{plain}", f"oci:{zstd}:a")
        do(*copy, f"oci:{zstd}:a", f"{to}2:zstd")
        shutil.rmtree(plain)
        shutil.rmtree(zstd)
        _push_index(host, name)

    return push


def _push_index(host: str, name: str) -> None:
    """Make an index by hand: another platform, ours, and an attestation."""
    kind = f"{OCI}.manifest.v1+json"
    ask = Request(f"http://{host}/v2/{name}/manifests/oci", headers={"Accept": kind})
    with urlopen(ask, timeout=10) as answer:
        data, digest = answer.read(), answer.headers["Docker-Content-Digest"]
    entry = {"mediaType": kind, "digest": digest, "size": len(data)}
    platforms = (("linux", "s390x"), ("linux", "amd64"), ("unknown", "unknown"))
    index = {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.index.v1+json",
        "manifests": [
            {**entry, "platform": {"os": system, "architecture": machine}}
            for system, machine in platforms
        ],
    }
    put = Request(
        f"http://{host}/v2/{name}/manifests/index",
        data=json.dumps(index).encode(),
        method="PUT",
        headers={"Content-Type": str(index["mediaType"])},
    )
    with urlopen(put, timeout=10) as answer:
        assert answer.status == 201


@pytest.fixture(scope="session")
def served(
    work: Path, layout: Path, registry: Serve, push_all: Callable[[str, str, str], None]
) -> Path:
    """Both images in a registry's files, the larger one in all forms."""
    with registry("fill") as host:
        push_all(f"oci:{layout}:base", host, "base")
        _do("skopeo", "copy", "--dest-tls-verify=false", f"oci:{layout}:small",
            f"docker://{host}/small:oci")  # fmt: skip
    return work


Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


@pytest.fixture(scope="session")
def answering() -> Callable[[Answer], AbstractContextManager[str]]:
    """Run a server of our own for a block, whose host it is given, to do what no registry does."""

    @contextmanager
    def serve(answer: Answer) -> Iterator[str]:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer(self)

            def do_POST(self) -> None:
                answer(self)

            def log_message(self, *_: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join(5)

    return serve


# --- trees ----------------------------------------------------------------------------------------

Tree = dict[bytes, dict[str, Any]]


def _tree_of(root: Path) -> Tree:
    found: Tree = {}
    inodes: dict[int, bytes] = {}
    for directory, inner, files in os.walk(os.fsencode(root)):
        inner.sort()
        for name in [b".", *inner, *sorted(files)]:
            path = os.path.join(directory, name)  # noqa: PTH118 - names that are no text
            seen = os.lstat(path)
            kind = stat.S_IFMT(seen.st_mode)
            key = os.path.relpath(path, os.fsencode(root))
            content: Any = None
            if kind == stat.S_IFLNK:
                content = os.readlink(path)  # noqa: PTH115 - as above
            elif kind == stat.S_IFREG:
                with open(path, "rb") as file:  # noqa: PTH123 - as above
                    content = hash(file.read())
            found[key] = {
                "mode": oct(seen.st_mode),
                "owner": (seen.st_uid, seen.st_gid),
                "device": seen.st_rdev,
                # What umoci writes itself while it stacks, and we for a whiteout, has its own time.
                "time": seen.st_mtime_ns if kind not in {stat.S_IFDIR, stat.S_IFCHR} else None,
                "twin": inodes.setdefault(seen.st_ino, key) if kind == stat.S_IFREG else key,
                "content": content,
                "xattrs": {
                    name: os.getxattr(path, name, follow_symlinks=False)
                    for name in os.listxattr(path, follow_symlinks=False)
                },
            }
    return found


@pytest.fixture(scope="session")
def tree_of() -> Callable[[Path], Tree]:
    """`tree_of(path)` is all that can be seen of a tree, by path."""
    return _tree_of


@contextmanager
def _mounted(layers: list[str], place: Path) -> Iterator[Path]:
    place.mkdir()
    if len(layers) == 1:
        _do("mount", "--bind", layers[0], place)
    else:
        lower = ":".join(reversed(layers))
        _do("mount", "-t", "overlay", "overlay", "-o", f"ro,lowerdir={lower}", place)
    try:
        yield place
    finally:
        _do("umount", place)


@pytest.fixture
def stacked(tmp_path: Path) -> Callable[[Path, str], Tree]:
    """`stacked(home, name)` is the tree of an image as a run would see it."""

    def look(home: Path, name: str) -> Tree:
        status, text, errors = _sandbox(home, "image", "inspect", name)
        assert status == 0, errors
        with _mounted(json.loads(text)[0]["trees"], tmp_path / "mounted") as place:
            found = _tree_of(place)
        (tmp_path / "mounted").rmdir()
        return found

    return look
