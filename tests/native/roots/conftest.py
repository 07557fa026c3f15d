"""Images of a few layers, made here, and runs in them."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[3]
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "unknown")
VENDOR = "application/vnd.oci.image"
APPLETS = ("cat", "chown", "dd", "df", "echo", "env", "false", "grep", "head", "hostname", "id")
APPLETS += ("ip", "kill", "ls", "mkdir", "nproc", "ps", "pwd", "rm", "seq", "sh", "sleep", "sort")
APPLETS += ("stat", "stty", "test", "touch", "tr", "true", "tty", "umask", "wc", "readlink", "awk")
PASSWD = b"root:x:0:0::/root:/bin/sh\nalice:x:1000:1001::/home/alice:/bin/sh\n"
GROUP = b"root:x:0:\nstaff:x:1001:\nvideo:x:44:alice\naudio:x:29:bob,alice\n"

Files = dict[str, bytes | str | None]


def base_files() -> Files:
    """Return the files of a lowest layer that can be run."""
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("busybox-static is not installed")
    return {
        "bin": None,
        "bin/busybox": Path(busybox).read_bytes(),
        **{f"bin/{name}": "busybox" for name in APPLETS},
        "etc": None,
        "etc/passwd": PASSWD,
        "etc/group": GROUP,
        "tmp": None,
    }


def write_layout(directory: Path, layers: Sequence[bytes], config: dict[str, Any]) -> Path:
    """Write an image as an OCI layout."""
    blobs = directory / "blobs/sha256"
    blobs.mkdir(parents=True)

    def add(data: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {
            "mediaType": f"{VENDOR}.{kind}",
            "digest": f"sha256:{digest}",
            "size": len(data),
        }

    described = [add(data, "layer.v1.tar") for data in layers]
    document = {
        "architecture": ARCHITECTURE,
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in described]},
    }
    manifest = {
        "schemaVersion": 2,
        "config": add(json.dumps(document).encode(), "config.v1+json"),
        "layers": described,
    }
    index = {
        "schemaVersion": 2,
        "manifests": [add(json.dumps(manifest).encode(), "manifest.v1+json")],
    }
    (directory / "index.json").write_text(json.dumps(index))
    (directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return directory


As = Callable[..., subprocess.CompletedProcess[str]]
MakeImage = Callable[..., str]
Inside = Callable[..., Any]


@pytest.fixture
def make_image(
    cli: Callable[..., Any], tmp_path: Path, make_layer: Callable[[Files], bytes]
) -> MakeImage:
    """`make_image([{"a": b"x"}])` loads an image of these layers on a base; return its name."""
    if os.geteuid() != 0:
        pytest.skip("namespaces without a user namespace need root")

    def make(
        layers: Sequence[Files] = (), config: dict[str, Any] | None = None, name: str = "box:1"
    ) -> str:
        archives = [make_layer(base_files()), *map(make_layer, layers)]
        layout = tmp_path / f"layout-{name.replace(':', '-')}"
        write_layout(layout, archives, {"Env": ["PATH=/bin"], **(config or {})})
        done = cli("image", "load", "-q", "-t", name, layout)
        assert done.status == 0, done.stderr
        return name

    return make


@pytest.fixture
def inside(cli: Callable[..., Any], make_image: MakeImage) -> Inside:
    """`inside("id", flags=["-u", "alice"])` runs a command in an image."""
    image = make_image()

    def run(*command: str, flags: Sequence[str | Path] = (), **options: Any) -> Any:
        return cli("run", "-q", "--image", image, *flags, "--", *command, **options)

    return run


def wait_until(condition: Callable[[], object], seconds: float = 20.0) -> bool:
    """Return whether something has become so."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def eventually() -> Callable[..., bool]:
    """`eventually(lambda: path.exists())` waits for it."""
    return wait_until


@pytest.fixture(scope="session")
def kit(make_layer: Callable[[Files], bytes]) -> SimpleNamespace:
    """What makes images, for fixtures that live longer than a test."""
    return SimpleNamespace(base_files=base_files, make_layer=make_layer, write_layout=write_layout)
