"""Images beside the programs that made them: a real registry, skopeo, umoci, overlayfs."""

from __future__ import annotations

import base64
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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PROGRAMS = ("docker-registry", "skopeo", "umoci", "htpasswd", "openssl", "mmdebstrap")


@pytest.fixture(scope="module", autouse=True)
def _peers(request: pytest.FixtureRequest) -> None:
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing or os.geteuid() != 0:
        reason = f"not installed: {', '.join(missing)}" if missing else "not root"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


def do(*command: object, **options: Any) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        timeout=200,
        check=False,
        text=True,
        **options,
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def sandbox(home: Path, *words: object, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "sandbox", "image", *map(str, words)],
        env={**os.environ, "SANDBOX_HOME": str(home), **(env or {})},
        capture_output=True,
        timeout=200,
        check=False,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("peers")
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def layout(work: Path) -> Path:
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


def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def registry(work: Path, name: str, extra: str = "", *, secure: bool = False) -> Iterator[str]:
    """A real registry; all of them have the same images."""
    host = f"127.0.0.1:{port()}"
    settings = work / f"{name}.yml"
    settings.write_text(
        f"version: 0.1\nlog: {{level: error}}\n"
        f"storage: {{filesystem: {{rootdirectory: {work / 'registry'}}}}}\n"
        f"http:\n  addr: {host}\n"
        + (f"  tls: {{certificate: {work}/tls.crt, key: {work}/tls.key}}\n" if secure else "")
        + extra
    )
    with (work / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(["docker-registry", "serve", settings], stdout=log, stderr=log)
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


@pytest.fixture(scope="module")
def served(work: Path, layout: Path) -> Path:
    """The image in a registry's files, in all forms: the directory to serve them from."""
    with registry(work, "fill") as host:
        to = f"docker://{host}/base"
        copy = ("skopeo", "copy", "--dest-tls-verify=false")
        do(*copy, f"oci:{layout}:base", f"{to}:oci")
        do(*copy, f"oci:{layout}:small", f"docker://{host}/small:oci")
        do(*copy, "--format", "v2s2", f"oci:{layout}:base", f"{to}:docker")
        do("skopeo", "copy", "--dest-decompress", f"oci:{layout}:base", f"dir:{work}/plain")
        cache = Path("/var/lib/containers/cache/blob-info-cache-v1.boltdb")
        cache.unlink(missing_ok=True)
        zstd = ("--dest-compress", "--dest-compress-format", "zstd")
        do(*copy, "--format", "oci", *zstd, f"dir:{work}/plain", f"oci:{work}/zstd:base")
        do(*copy, f"oci:{work}/zstd:base", f"{to}2:zstd")
        shutil.rmtree(work / "plain")
        push_index(host)
    return work


def push_index(host: str) -> None:
    """Make an index by hand: another platform, ours, and an attestation."""
    from urllib.request import Request, urlopen

    kind = "application/vnd.oci.image.manifest.v1+json"
    ask = Request(f"http://{host}/v2/base/manifests/oci", headers={"Accept": kind})
    with urlopen(ask, timeout=10) as answer:
        data, digest = answer.read(), answer.headers["Docker-Content-Digest"]
    entry = {"mediaType": kind, "digest": digest, "size": len(data)}
    platforms = (("linux", "s390x"), ("linux", "amd64"), ("unknown", "unknown"))
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [
            {**entry, "platform": {"os": system, "architecture": machine}}
            for system, machine in platforms
        ],
    }
    put = Request(
        f"http://{host}/v2/base/manifests/index",
        data=json.dumps(index).encode(),
        method="PUT",
        headers={"Content-Type": str(index["mediaType"])},
    )
    with urlopen(put, timeout=10) as answer:
        assert answer.status == 201


Tree = dict[bytes, tuple[Any, ...]]


def tree_of(root: Path) -> Tree:
    """All that can be seen of a tree."""
    found: Tree = {}
    inodes: dict[int, bytes] = {}
    for directory, inner, files in os.walk(os.fsencode(root)):
        for name in [b".", *inner, *files]:
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
            twin = inodes.setdefault(seen.st_ino, key) if kind == stat.S_IFREG else key
            xattrs = {
                name: os.getxattr(path, name, follow_symlinks=False)
                for name in os.listxattr(path, follow_symlinks=False)
            }
            # What umoci writes itself while it stacks: the times of directories.
            times = seen.st_mtime_ns if kind != stat.S_IFDIR else None
            found[key] = (
                oct(seen.st_mode), seen.st_uid, seen.st_gid, seen.st_rdev, times, twin, content,
                tuple(sorted(xattrs.items())),
            )  # fmt: skip
    return found


@contextmanager
def mounted(layers: list[str], place: Path) -> Iterator[Path]:
    place.mkdir()
    if len(layers) == 1:
        do("mount", "--bind", layers[0], place)
    else:
        lower = ":".join(reversed(layers))
        do("mount", "-t", "overlay", "overlay", "-o", f"ro,lowerdir={lower}", place)
    try:
        yield place
    finally:
        do("umount", place)


@pytest.mark.parametrize("form", ["base:oci", "base:docker", "base2:zstd", "base:index"])
def test_the_tree_is_the_one_that_umoci_unpacks(
    form: str, served: Path, layout: Path, tmp_path: Path
) -> None:
    if not (served / "bundle").exists():
        do("umoci", "unpack", "--image", f"{layout}:base", served / "bundle")
    wanted = tree_of(served / "bundle/rootfs")
    home = tmp_path / "home"
    with registry(served, "plain") as host:
        status, _, errors = sandbox(home, "pull", f"{host}/{form}", "--insecure", host)
        assert status == 0, errors
        again, _, errors = sandbox(home, "pull", f"{host}/{form}", "--insecure", host)
        assert again == 0, errors
    _, text, _ = sandbox(home, "inspect", f"{host}/{form}")
    trees = json.loads(text)[0]["trees"]

    saved, tag = tmp_path / "saved.tar", form.partition(":")[2]
    assert sandbox(home, "save", f"{host}/{form}", "-o", saved)[0] == 0
    assert "layers" in do("skopeo", "inspect", "--raw", f"oci-archive:{saved}:{tag}")
    saved.unlink()
    with mounted(trees, tmp_path / "mounted") as place:
        found = tree_of(place)

    assert found.keys() == wanted.keys()
    # umoci keeps what lower layers say of a directory's attributes that an upper one replaces.
    assert {key: value for key, value in found.items() if value != wanted[key]} == {}
    sandbox(home, "prune", "--all")


def test_what_skopeo_writes_is_loaded(layout: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    do("skopeo", "copy", f"oci:{layout}:base", f"docker-archive:{tmp_path}/docker.tar:a:docker")
    do("skopeo", "copy", f"oci:{layout}:base", f"oci-archive:{tmp_path}/oci.tar:a:oci")
    ids = set()
    for name in ("docker.tar", "oci.tar"):
        status, output, errors = sandbox(home, "load", tmp_path / name)
        assert status == 0, errors
        ids.add(output.strip())

    assert len(ids) == 1
    assert sandbox(home, "save", "a:oci", "-o", tmp_path / "saved.tar")[0] == 0
    sandbox(home, "prune", "--all")
    do(
        "skopeo",
        "copy",
        f"docker-archive:{tmp_path}/saved.tar:a:docker",
        f"dir:{tmp_path}/from-docker",
    )
    do("skopeo", "copy", f"oci-archive:{tmp_path}/saved.tar:oci", f"dir:{tmp_path}/from-oci")


# --- being let in ---------------------------------------------------------------------------------


def logins(path: Path, host: str, user: str, password: str) -> dict[str, str]:
    auth = base64.b64encode(f"{user}:{password}".encode()).decode()
    path.write_text(json.dumps({"auths": {host: {"auth": auth}}}))
    return {"REGISTRY_AUTH_FILE": str(path)}


def test_a_registry_with_passwords_lets_in(served: Path, tmp_path: Path) -> None:
    (served / "passwords").write_text(do("htpasswd", "-Bbn", "me", "secret"))
    extra = f"auth: {{htpasswd: {{realm: here, path: {served}/passwords}}}}\n"
    with registry(served, "basic", extra) as host:
        name = f"{host}/small:oci"
        refused, _, errors = sandbox(tmp_path / "home", "pull", name, "--insecure", host)
        assert refused == 1
        assert "docker login" in errors
        wrong = logins(tmp_path / "wrong", host, "me", "no")
        assert sandbox(tmp_path / "home", "pull", name, "--insecure", host, env=wrong)[0] == 1
        right = logins(tmp_path / "right", host, "me", "secret")
        status, _, errors = sandbox(tmp_path / "home", "pull", name, "--insecure", host, env=right)
        assert status == 0, errors
    sandbox(tmp_path / "home", "prune", "--all")


@pytest.fixture
def tokens() -> Iterator[tuple[str, list[str]]]:
    """A server of tokens, and what it was asked."""
    asked: list[str] = []

    class Tokens(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            data = b'{"token": "anything"}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Tokens)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/token", asked
    server.shutdown()
    server.server_close()
    thread.join(5)


def test_a_registry_with_tokens_lets_in(
    served: Path, tmp_path: Path, tokens: tuple[str, list[str]]
) -> None:
    realm, asked = tokens
    extra = f"auth: {{silly: {{realm: '{realm}', service: here}}}}\n"
    with registry(served, "bearer", extra) as host:
        name = f"{host}/small:oci"
        status, _, errors = sandbox(tmp_path / "home", "pull", name, "--insecure", host)
    assert status == 0, errors
    assert asked
    assert "scope=repository%3Asmall%3Apull" in asked[0]
    sandbox(tmp_path / "home", "prune", "--all")


def test_a_registry_with_tls_is_trusted_by_its_certificate_only(
    served: Path, tmp_path: Path
) -> None:
    do("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
       "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
       "-keyout", served / "tls.key", "-out", served / "tls.crt")  # fmt: skip
    with registry(served, "tls", secure=True) as host:
        name, home = f"{host}/small:oci", tmp_path / "home"
        refused, _, errors = sandbox(home, "pull", name)
        assert refused == 1
        assert "cannot be trusted" in errors
        assert f"--insecure {host}" in errors
        trusted = {"SSL_CERT_FILE": str(served / "tls.crt")}
        status, _, errors = sandbox(home, "pull", name, env=trusted)
        assert status == 0, errors
        assert sandbox(tmp_path / "other", "pull", name, "--insecure", host)[0] == 0
    sandbox(home, "prune", "--all")
    sandbox(tmp_path / "other", "prune", "--all")


def test_four_pulls_at_once_make_one_download(served: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    counts: dict[str, int] = {}
    with registry(served, "four") as upstream, counting(upstream, counts) as host:
        words = ["pull", f"{host}/small:oci", "--insecure", host]
        command = [sys.executable, "-m", "sandbox", "image", *words]
        environment = {**os.environ, "SANDBOX_HOME": str(home)}
        processes = [
            subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) for _ in range(4)
        ]
        for process in processes:
            process.communicate(timeout=120)
            assert process.returncode == 0
    _, text, _ = sandbox(home, "inspect", f"{host}/small:oci")
    layer = json.loads(text)[0]["layers"][0]["digest"]
    assert counts[f"/v2/small/blobs/{layer}"] == 1
    sandbox(home, "prune", "--all")


@contextmanager
def counting(upstream: str, counts: dict[str, int]) -> Iterator[str]:
    """A host that sends every request on to a registry, and counts it."""

    class Counting(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            counts[self.path] = counts.get(self.path, 0) + 1
            self.send_response(307)
            self.send_header("Location", f"http://{upstream}{self.path}")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Counting)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join(5)
