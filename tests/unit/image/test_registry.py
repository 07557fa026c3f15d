"""Registries that are slow, broken, unfriendly or hostile: in this process, on loopback."""

from __future__ import annotations

import base64
import errno
import gzip
import hashlib
import http.server
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from sandbox.errors import ImageError
from sandbox.image.manifest import OCI_CONFIG, OCI_INDEX, OCI_LAYER, OCI_MANIFEST, parse_platform
from sandbox.image.pull import PullOptions, pull
from sandbox.image.store import ImageStore
from sandbox.image.transport import Patience

IMPATIENT = Patience(
    connect_sec=5, read_sec=1, attempts=3, backoff_sec=0.01, longest_wait_sec=0.05, slow_sec=0.3
)
RANDOM = b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(20_000))


class Registry:
    """An image, and how to misbehave; everything that was asked is kept."""

    def __init__(self) -> None:
        self.documents: dict[str, tuple[bytes, str]] = {}
        self.blobs: dict[str, bytes] = {}
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.hook: Callable[[Handler, str], bool] = lambda handler, path: False
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.registry = self  # type: ignore[attr-defined]
        self.server.daemon_threads = True
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(5)

    def put(self, data: bytes) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.blobs[digest] = data
        return {"digest": digest, "size": len(data)}

    def document(self, name: str, document: Any, media_type: str) -> dict[str, Any]:
        data = json.dumps(document).encode()
        descriptor = {"mediaType": media_type, **self.put(data)}
        self.documents[name] = self.documents[descriptor["digest"]] = (data, media_type)
        return descriptor

    def image(self, name: str, *layers: bytes, architecture: str = "amd64") -> dict[str, Any]:
        config = {
            "architecture": architecture,
            "os": "linux",
            "rootfs": {
                "type": "layers",
                "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers],
            },
        }
        manifest = {
            "schemaVersion": 2,
            "config": {"mediaType": OCI_CONFIG, **self.put(json.dumps(config).encode())},
            "layers": [
                {
                    "mediaType": f"{OCI_LAYER}+gzip",
                    **self.put(gzip.compress(layer, 1, mtime=0)),
                }
                for layer in layers
            ],
        }
        return self.document(name, manifest, OCI_MANIFEST)

    def count(self, part: str) -> int:
        return sum(part in path for _, path, _ in self.asked)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, data: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        registry: Registry = self.server.registry
        registry.asked.append((self.command, self.path, dict(self.headers)))
        if registry.hook(self, self.path):
            return
        kind, _, name = self.path.rpartition("/")
        if self.path == "/v2/":
            self.answer(200)
        elif kind.endswith("manifests") and name in registry.documents:
            data, media_type = registry.documents[name]
            self.answer(200, data, Content_Type=media_type)
        elif kind.endswith("blobs") and name in registry.blobs:
            self.send_blob(registry.blobs[name])
        else:
            self.answer(404)

    def send_blob(self, data: bytes) -> None:
        wanted = self.headers.get("Range")
        if wanted is None:
            self.answer(200, data)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        span = f"bytes {start}-{len(data) - 1}/{len(data)}"
        self.answer(206, data[start:], Content_Range=span)


@pytest.fixture
def registry() -> Iterator[Registry]:
    made = Registry()
    yield made
    made.close()


@pytest.fixture
def other() -> Iterator[Registry]:
    """Another host, as far as secrets go: its port differs."""
    made = Registry()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """`logins({"auths": …})` is what docker has written down; nothing at first."""
    path = tmp_path / "auth.json"
    path.write_text("{}")
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(path))
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return lambda document: path.write_text(json.dumps(document)) and None


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "images")


@pytest.fixture
def layer(make_tar: Any) -> bytes:
    """Of 640 kB, which no compression makes smaller."""
    return make_tar().add("f", data=RANDOM).end()


def fetch(store: ImageStore, registry: Registry, name: str = "a:1", **options: Any) -> Any:
    asked = {"insecure": frozenset({registry.host}), "patience": IMPATIENT, **options}
    return store.read(pull(store, f"{registry.host}/{name}", PullOptions(**asked)))


def login(user: str = "me", password: str = "secret") -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


def partials(store: ImageStore) -> list[Path]:
    return sorted((store.root / "work").iterdir())


# --- what works -----------------------------------------------------------------------------------


def test_an_image_is_fetched_once(registry: Registry, store: ImageStore, layer: bytes) -> None:
    registry.image("1", layer)

    image = fetch(store, registry)
    again = fetch(store, registry)

    assert (image.layers[0] / "f").read_bytes() == RANDOM
    assert again.id == image.id
    assert again.references == (f"{registry.host}/a:1",)
    assert registry.count("/blobs/") == 2
    assert partials(store) == []


def test_a_layer_of_another_image_is_not_fetched_again(
    registry: Registry, store: ImageStore, layer: bytes, make_tar: Any
) -> None:
    registry.image("1", layer)
    registry.image("2", layer, make_tar().add("g", data="2").end())
    fetch(store, registry)
    before = registry.count("/blobs/")

    image = fetch(store, registry, "a:2")

    assert registry.count("/blobs/") == before + 2
    assert [(tree / "g").exists() for tree in image.layers] == [False, True]


def test_the_platform_is_chosen_from_an_index(
    registry: Registry, store: ImageStore, make_tar: Any
) -> None:
    entries = []
    for name in ("arm64", "amd64", "unknown"):
        entry = registry.image(name, make_tar().add(name).end(), architecture=name)
        system = "unknown" if name == "unknown" else "linux"
        entries.append({**entry, "platform": {"os": system, "architecture": name}})
    inner = registry.document("inner", {"schemaVersion": 2, "manifests": entries}, OCI_INDEX)
    registry.document("1", {"schemaVersion": 2, "manifests": [inner]}, OCI_INDEX)

    image = fetch(store, registry, platform=parse_platform("linux/arm64"))

    assert (image.layers[0] / "arm64").exists()
    with pytest.raises(ImageError, match="only for linux/amd64, linux/arm64"):
        fetch(store, registry, platform=parse_platform("linux/s390x"))


def test_an_image_is_fetched_by_its_digest(
    registry: Registry, store: ImageStore, layer: bytes
) -> None:
    digest = registry.image("1", layer)["digest"]

    assert fetch(store, registry, f"a@{digest}").manifest_digest == digest


def test_all_that_a_manifest_can_be_is_accepted(
    registry: Registry, store: ImageStore, layer: bytes
) -> None:
    registry.image("1", layer)
    fetch(store, registry)

    accepted = next(headers["Accept"] for _, path, headers in registry.asked if "manif" in path)
    assert len(accepted.split(",")) == 4


# --- logins ---------------------------------------------------------------------------------------


def basic(handler: Handler, _path: str) -> bool:
    if handler.headers.get("Authorization") == f"Basic {login()['auth']}":
        return False
    handler.answer(401, WWW_Authenticate='Basic realm="here"')
    return True


def test_a_login_is_shown_to_who_asks(
    registry: Registry, store: ImageStore, layer: bytes, logins: Callable[[Any], None]
) -> None:
    registry.image("1", layer)
    registry.hook = basic
    with pytest.raises(ImageError, match="without a login") as caught:
        fetch(store, registry)
    assert "docker login" in str(caught.value.hint)
    logins({"auths": {registry.host: login()}})

    assert fetch(store, registry).layers


def test_a_wrong_login_is_not_tried_forever(
    registry: Registry, store: ImageStore, layer: bytes, logins: Callable[[Any], None]
) -> None:
    registry.image("1", layer)
    registry.hook = basic
    logins({"auths": {registry.host: login(password="wrong")}})

    with pytest.raises(ImageError, match="for the user me") as caught:
        fetch(store, registry)

    assert registry.count("manifests") == 2
    assert "wrong" not in str(caught.value)


def bearer(realm: str) -> Callable[[Handler, str], bool]:
    def hook(handler: Handler, path: str) -> bool:
        asked = parse_qs(urlsplit(path).query)
        if path.startswith("/token"):
            assert asked["service"] == ["s"]
            assert asked["scope"] == ["repository:a:pull"]
            handler.answer(200, b'{"token": "t0ken"}')
            return True
        if handler.headers.get("Authorization") == "Bearer t0ken":
            return False
        challenge = f'Bearer realm="{realm}",service="s",scope="repository:a:pull"'
        handler.answer(401, WWW_Authenticate=challenge)
        return True

    return hook


def test_a_token_is_got_and_used(
    registry: Registry, store: ImageStore, layer: bytes, logins: Callable[[Any], None]
) -> None:
    registry.image("1", layer)
    registry.hook = bearer(f"http://{registry.host}/token")
    logins({"auths": {f"https://{registry.host}": login()}})

    fetch(store, registry)

    tokens = [headers for _, path, headers in registry.asked if path.startswith("/token")]
    assert len(tokens) == 1
    assert tokens[0]["Authorization"] == f"Basic {login()['auth']}"


def test_a_token_that_stands_for_a_login_is_exchanged(
    registry: Registry, store: ImageStore, layer: bytes, logins: Callable[[Any], None]
) -> None:
    registry.image("1", layer)
    bodies = []

    def hook(handler: Handler, path: str) -> bool:
        if handler.command == "POST":
            length = int(handler.headers["Content-Length"])
            bodies.append(parse_qs(handler.rfile.read(length).decode()))
            handler.answer(200, b'{"access_token": "t0ken"}')
            return True
        return bearer(f"http://{registry.host}/token")(handler, path)

    registry.hook = hook
    logins({"auths": {registry.host: {"identitytoken": "id"}}})

    assert fetch(store, registry).layers
    assert bodies[0]["refresh_token"] == ["id"]


def test_a_token_is_renewed_when_it_is_refused_in_the_middle(
    registry: Registry, store: ImageStore, layer: bytes
) -> None:
    registry.image("1", layer)
    given = []

    def hook(handler: Handler, path: str) -> bool:
        if path.startswith("/token"):
            given.append(f"t{len(given)}")
            handler.answer(200, json.dumps({"token": given[-1]}).encode())
            return True
        good = "t0" if "manifests" in path else "t1"
        if handler.headers.get("Authorization") == f"Bearer {good}":
            return False
        handler.answer(401, WWW_Authenticate=f'Bearer realm="http://{registry.host}/token"')
        return True

    registry.hook = hook

    assert fetch(store, registry).layers
    assert given == ["t0", "t1"]


def test_a_registry_that_never_lets_in_is_left(
    registry: Registry, store: ImageStore, layer: bytes
) -> None:
    registry.image("1", layer)

    def hook(handler: Handler, path: str) -> bool:
        if path.startswith("/token"):
            handler.answer(200, b'{"token": "t0ken"}')
        else:
            realm = f'Bearer realm="http://{registry.host}/token"'
            handler.answer(401, WWW_Authenticate=realm)
        return True

    registry.hook = hook

    with pytest.raises(ImageError, match="refuses"):
        fetch(store, registry)
    assert len(registry.asked) < 8


@pytest.mark.parametrize("challenge", ["", "Digest x=1", "Bearer", "Bearer realm=ftp://x/"])
def test_what_a_registry_wants_may_be_unknown(
    registry: Registry, store: ImageStore, challenge: str
) -> None:
    def hook(handler: Handler, path: str) -> bool:
        handler.answer(401, WWW_Authenticate=challenge)
        return path != "/v2/"

    registry.hook = hook

    with pytest.raises(ImageError, match="wants"):
        fetch(store, registry)


# --- other hosts ----------------------------------------------------------------------------------


def test_secrets_are_not_sent_to_another_host(
    registry: Registry,
    other: Registry,
    store: ImageStore,
    layer: bytes,
    logins: Callable[[Any], None],
) -> None:
    registry.image("1", layer)
    other.blobs = registry.blobs
    logins({"auths": {registry.host: login()}})

    def hook(handler: Handler, path: str) -> bool:
        if basic(handler, path):
            return True
        if "blobs" in path:
            handler.answer(307, Location=f"http://{other.host}{path}")
        return "blobs" in path

    registry.hook = hook

    assert fetch(store, registry).layers
    assert other.asked
    assert not any("Authorization" in headers for _, _, headers in other.asked)


def test_a_redirect_on_the_same_host_keeps_the_login(
    registry: Registry, store: ImageStore, layer: bytes, logins: Callable[[Any], None]
) -> None:
    registry.image("1", layer)
    logins({"auths": {registry.host: login()}})

    def hook(handler: Handler, path: str) -> bool:
        if basic(handler, path):
            return True
        if "blobs" in path and "moved" not in path:
            handler.answer(302, Location=path.replace("/v2/", "/v2/moved/"))
            return True
        return False

    registry.hook = hook

    assert fetch(store, registry).layers


@pytest.mark.parametrize("target", ["file:///etc/passwd", "gopher://x/", "//"])
def test_a_redirect_to_something_else_is_refused(
    registry: Registry, store: ImageStore, layer: bytes, target: str
) -> None:
    registry.image("1", layer)

    def hook(handler: Handler, path: str) -> bool:
        if "blobs" in path:
            handler.answer(302, Location=target)
        return "blobs" in path

    registry.hook = hook

    with pytest.raises(ImageError):
        fetch(store, registry)


def test_redirects_in_a_circle_end(registry: Registry, store: ImageStore) -> None:
    def hook(handler: Handler, path: str) -> bool:
        if path != "/v2/":
            handler.answer(302, Location=path)
        return path != "/v2/"

    registry.hook = hook

    with pytest.raises(ImageError, match="circles"):
        fetch(store, registry)


def test_a_registry_without_tls_has_to_be_named(registry: Registry, store: ImageStore) -> None:
    with pytest.raises(ImageError) as caught:
        fetch(store, registry, insecure=frozenset({"127.0.0.1:1"}))

    assert "does not speak TLS" in str(caught.value)
    assert f"--insecure {registry.host}" in str(caught.value.hint)


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_registry_that_is_busy_is_asked_again(
    registry: Registry, store: ImageStore, layer: bytes, status: int
) -> None:
    registry.image("1", layer)
    failed: set[str] = set()

    def hook(handler: Handler, path: str) -> bool:
        if path in failed:
            return False
        failed.add(path)
        handler.answer(status, Retry_After="0")
        return True

    registry.hook = hook

    assert fetch(store, registry).layers


def test_a_registry_that_stays_busy_is_left(registry: Registry, store: ImageStore) -> None:
    def hook(handler: Handler, path: str) -> bool:
        if path != "/v2/":
            handler.answer(503, Retry_After="86400")
        return path != "/v2/"

    registry.hook = hook

    with pytest.raises(ImageError, match="status 503"):
        fetch(store, registry)


def cut(handler: Handler, data: bytes, at: int) -> None:
    """Promise all, send a part, and hang up."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data[:at])
    handler.close_connection = True


def big_blob(registry: Registry) -> str:
    return max(registry.blobs, key=lambda digest: len(registry.blobs[digest]))


def test_a_download_that_was_cut_off_is_gone_on_with(
    registry: Registry, store: ImageStore, layer: bytes
) -> None:
    registry.image("1", layer)
    digest = big_blob(registry)
    tried = []

    def hook(handler: Handler, path: str) -> bool:
        if digest not in path or handler.headers.get("Range"):
            return False
        tried.append(path)
        cut(handler, registry.blobs[digest], 100_000)
        return True

    registry.hook = hook

    assert fetch(store, registry).layers
    ranges = [headers["Range"] for _, _, headers in registry.asked if "Range" in headers]
    assert len(tried) == len(ranges) == 1
    assert int(ranges[0][6:-1]) > 0


@pytest.mark.parametrize(
    ("entity_tag", "sent"), [('"one"', '"one"'), ('W/"weak"', None), ("", None)]
)
def test_only_a_tag_for_the_very_same_bytes_is_sent_back(
    registry: Registry, store: ImageStore, layer: bytes, entity_tag: str, sent: str | None
) -> None:
    registry.image("1", layer)
    digest = big_blob(registry)
    asked: list[str | None] = []

    def hook(handler: Handler, path: str) -> bool:
        if digest not in path:
            return False
        if handler.headers.get("Range"):
            asked.append(handler.headers.get("If-Range"))
            # It is another file by now, so all of it comes.
            handler.answer(200, registry.blobs[digest])
            return True
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(registry.blobs[digest])))
        if entity_tag:
            handler.send_header("ETag", entity_tag)
        handler.end_headers()
        handler.wfile.write(registry.blobs[digest][:100_000])
        handler.close_connection = True
        return True

    registry.hook = hook

    assert fetch(store, registry).layers
    assert asked == [sent]


def test_a_download_goes_on_in_the_next_pull(
    registry: Registry, store: ImageStore, layer: bytes
) -> None:
    registry.image("1", layer)
    digest = big_blob(registry)
    registry.hook = lambda handler, path: (
        digest in path and (cut(handler, registry.blobs[digest], 100_000) or True)
    )
    with pytest.raises(ImageError, match="again and again"):
        fetch(store, registry)
    (partial,) = partials(store)
    kept = partial.stat().st_size
    registry.hook = lambda handler, path: False

    fetch(store, registry)

    assert kept > 0
    assert registry.asked[-1][2]["Range"] == f"bytes={kept}-"
    assert partials(store) == []


def test_what_an_earlier_pull_left_may_be_damaged(
    registry: Registry, store: ImageStore, layer: bytes
) -> None:
    registry.image("1", layer)
    digest = big_blob(registry)
    (store.root / "work").mkdir(parents=True)
    (store.root / "work" / f"partial-{digest[7:]}").write_bytes(bytes(5000))

    assert fetch(store, registry).layers


@pytest.mark.parametrize("how", ["ignored", "shifted", "refused"])
def test_a_registry_may_not_know_ranges(
    registry: Registry, store: ImageStore, layer: bytes, how: str
) -> None:
    registry.image("1", layer)
    digest = big_blob(registry)
    (store.root / "work").mkdir(parents=True)
    part = registry.blobs[digest][:5000]
    (store.root / "work" / f"partial-{digest[7:]}").write_bytes(part)

    def hook(handler: Handler, path: str) -> bool:
        if digest not in path or not handler.headers.get("Range"):
            return False
        if how == "ignored":
            handler.answer(200, registry.blobs[digest])
        elif how == "shifted":
            handler.answer(206, registry.blobs[digest][4000:], Content_Range="bytes 4000-9/9")
        else:
            handler.answer(416)
        return True

    registry.hook = hook

    assert fetch(store, registry).layers


def test_a_disk_that_is_full_is_no_fault_of_the_registry(
    registry: Registry, store: ImageStore, layer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.image("1", layer)
    digest = big_blob(registry)
    room = [300_000]
    write = os.write

    def write_some(fd: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = write(fd, data[: room[0]])  # a part of it, as a disk that becomes full does
        room[0] -= count
        return count

    with monkeypatch.context() as patched:
        patched.setattr("sandbox.image.stream.os.write", write_some)
        with pytest.raises(ImageError, match="No space") as caught:
            fetch(store, registry)
    assert "free some space" in str(caught.value.hint)
    assert registry.count(digest) == 1
    (partial,) = partials(store)
    assert 0 < partial.stat().st_size <= 300_000

    assert (fetch(store, registry).layers[0] / "f").read_bytes() == RANDOM
    assert registry.count(digest) == 2


def test_a_disk_may_take_a_part_of_what_is_written(
    registry: Registry, store: ImageStore, layer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.image("1", layer)
    write = os.write
    monkeypatch.setattr(
        "sandbox.image.stream.os.write", lambda fd, data: write(fd, data[: len(data) // 2 + 1])
    )

    image = fetch(store, registry)

    assert store.blob_path(big_blob(registry)).read_bytes() == registry.blobs[big_blob(registry)]
    assert (image.layers[0] / "f").read_bytes() == RANDOM


def test_a_blob_that_does_not_fit_unpacked_need_not_be_fetched_again(
    registry: Registry, store: ImageStore, layer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.image("1", layer)

    write = os.write

    def write_blobs_only(fd: int, data: bytes) -> int:
        if "/layer-" in os.readlink(f"/proc/self/fd/{fd}"):  # noqa: PTH115 - as short as that
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data)

    with monkeypatch.context() as patched:
        patched.setattr("sandbox.image.stream.os.write", write_blobs_only)
        with pytest.raises(ImageError, match=r"cannot unpack .*No space"):
            fetch(store, registry)
    fetch(store, registry)

    assert registry.count(big_blob(registry)) == 1


@pytest.mark.parametrize("what", ["manifest", "config", "layer"])
def test_wrong_bytes_are_never_believed(
    registry: Registry, store: ImageStore, layer: bytes, what: str
) -> None:
    manifest = registry.image("1", layer)
    document = json.loads(registry.blobs[manifest["digest"]])
    digest = {
        "manifest": manifest["digest"],
        "config": document["config"]["digest"],
        "layer": document["layers"][0]["digest"],
    }[what]
    data = bytearray(registry.blobs[digest])
    data[-20] ^= 1
    registry.blobs[digest] = bytes(data)
    registry.documents[manifest["digest"]] = (registry.blobs[manifest["digest"]], OCI_MANIFEST)

    with pytest.raises(ImageError):
        fetch(store, registry, f"a@{manifest['digest']}")

    assert store.list_images() == ()
    assert partials(store) == []


def test_a_layer_has_to_be_the_one_of_the_configuration(
    registry: Registry, store: ImageStore, layer: bytes, make_tar: Any
) -> None:
    registry.image("1", layer)
    document = json.loads(registry.documents["1"][0])
    evil = gzip.compress(make_tar().add("evil").end())
    document["layers"][0].update(registry.put(evil))
    registry.document("1", document, OCI_MANIFEST)

    with pytest.raises(ImageError, match="diff_id"):
        fetch(store, registry)

    assert not any(store.layer_path(f"sha256:{'0' * 64}").parent.glob("*"))


def test_a_blob_longer_than_it_should_be_is_not_read_on(
    registry: Registry, store: ImageStore, layer: bytes
) -> None:
    registry.image("1", layer)
    digest = big_blob(registry)
    registry.blobs[digest] += bytes(10_000_000)

    with pytest.raises(ImageError, match="longer than"):
        fetch(store, registry)
    assert partials(store) == []


def test_a_manifest_without_end_is_not_read_on(registry: Registry, store: ImageStore) -> None:
    registry.documents["1"] = (b" " * (9 << 20), OCI_MANIFEST)

    with pytest.raises(ImageError, match="larger than"):
        fetch(store, registry)


def test_a_body_without_its_length_is_read(
    registry: Registry, store: ImageStore, layer: bytes
) -> None:
    registry.image("1", layer)

    def hook(handler: Handler, path: str) -> bool:
        if "blobs" not in path:
            return False
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        data = registry.blobs[path.rpartition("/")[2]]
        for start in range(0, len(data), 50_000):
            part = data[start : start + 50_000]
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        handler.wfile.write(b"0\r\n\r\n")
        return True

    registry.hook = hook

    assert fetch(store, registry).layers


def test_a_download_that_drips_is_left(registry: Registry, store: ImageStore, layer: bytes) -> None:
    registry.image("1", layer)
    digest = big_blob(registry)
    stop = threading.Event()

    def hook(handler: Handler, path: str) -> bool:
        if digest not in path:
            return False
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(registry.blobs[digest])))
        handler.end_headers()
        try:
            for byte in registry.blobs[digest]:
                handler.wfile.write(bytes([byte]))
                if stop.wait(0.05):
                    break
        except OSError:
            pass
        handler.close_connection = True
        return True

    registry.hook = hook

    try:
        with pytest.raises(ImageError, match="again and again"):
            fetch(store, registry)
    finally:
        stop.set()


def test_nobody_there_is_said_so(store: ImageStore) -> None:
    with pytest.raises(
        ImageError, match=r"cannot fetch 127.0.0.1:1/a:latest: .* cannot be"
    ) as caught:
        pull(store, "127.0.0.1:1/a", PullOptions(patience=IMPATIENT))

    assert "HTTPSConnection" not in str(caught.value)
    assert "sandbox image load" in str(caught.value.hint)


def test_where_nobody_answers_at_all_nobody_waits_long(
    store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("sandbox.image.cancel.Flag.pause", lambda flag, sec: pauses.append(sec))

    with pytest.raises(ImageError):
        pull(store, "127.0.0.1:1/a")

    assert len(pauses) == 1


def test_two_pulls_at_once_make_one_download(
    registry: Registry, store: ImageStore, layer: bytes
) -> None:
    registry.image("1", layer)
    failures: list[BaseException] = []

    def go() -> None:
        try:
            fetch(store, registry)
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    threads = [threading.Thread(target=go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert failures == []
    assert registry.count(big_blob(registry)) == 1
    assert len(store.list_images()) == 1
