"""A run in an image that was loaded: two layers, with all that a configuration can say."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "unknown")
CONFIG = {
    "Env": ["FOO=bar", "PATH=/bin"],
    "Entrypoint": ["sh", "-c"],
    "Cmd": ["echo $FOO; pwd; id -un; cat /both"],
    "WorkingDir": "/made/../work dir",
    "User": "alice:video",
    "Volumes": {"/data": {}},
    "StopSignal": "SIGINT",
}


MakeLayer = Callable[..., bytes]


def make_layout(
    directory: Path, make_layer: MakeLayer, config: dict[str, Any] | None = None
) -> Path:
    """Write an image as an OCI layout; its second layer changes, hides and adds."""
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("busybox-static is not installed")
    applets = ("sh", "id", "cat", "ls", "touch", "rm", "mkdir", "sleep", "true")
    lower = make_layer(
        {
            "bin": None,
            "bin/busybox": Path(busybox).read_bytes(),
            **{f"bin/{name}": "busybox" for name in applets},
            "etc": None,
            "etc/passwd": b"root:x:0:0::/root:\nalice:x:1000:1000::/home:\n",
            "etc/group": b"video:x:44:\n",
            "both": b"lower\n",
            "gone": b"lower\n",
            "full": None,
            "full/of": b"things\n",
        }
    )
    upper = make_layer(
        {"both": b"upper\n", ".wh.gone": b"", "full": None, "full/.wh..wh..opq": b""}
    )
    blobs = directory / "blobs/sha256"
    blobs.mkdir(parents=True)

    def add(data: bytes, media_type: str) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    vendor = "application/vnd.oci.image"
    layers = [add(data, f"{vendor}.layer.v1.tar") for data in (lower, upper)]
    document = {
        "architecture": ARCHITECTURE,
        "os": "linux",
        "config": CONFIG if config is None else config,
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]},
    }
    described = add(json.dumps(document).encode(), f"{vendor}.config.v1+json")
    manifest = {"schemaVersion": 2, "config": described, "layers": layers}
    index = {
        "schemaVersion": 2,
        "manifests": [add(json.dumps(manifest).encode(), f"{vendor}.manifest.v1+json")],
    }
    (directory / "index.json").write_text(json.dumps(index))
    (directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return directory


Inside = Callable[..., Any]


@pytest.fixture
def inside(cli: Callable[..., Any], tmp_path: Path, make_layer: MakeLayer) -> Inside:
    """`inside("id")` runs a command in the image; without one, the image's own."""
    if os.geteuid() != 0:
        pytest.skip("namespaces without a user namespace need root")
    loaded = cli(
        "image", "load", "-q", "-t", "test/box:1", make_layout(tmp_path / "layout", make_layer)
    )
    assert loaded.status == 0, loaded.stderr

    def run(*command: str, flags: tuple[str | Path, ...] = (), **options: Any) -> Any:
        return cli("run", "-q", "--image", "test/box:1", *flags, "--", *command, **options)

    return run


def test_the_image_says_what_is_run_where_and_as_whom(inside: Inside, sandbox_home: Path) -> None:
    done = inside()

    assert done.stdout == "bar\n/work dir\nalice\nupper\n", done.stderr
    (run,) = (sandbox_home / "runs").iterdir()
    record = json.loads((run / "run.json").read_text())
    assert record["command"] == ["sh", "-c", *CONFIG["Cmd"]]
    assert record["spec"]["stop_signal"] == 2
    assert record["spec"]["root"]["image"] == "test/box:1"


def test_a_command_takes_the_place_of_the_images_own(inside: Inside) -> None:
    assert inside("echo mine").stdout == "mine\n"
    assert inside("-c", "echo $0", flags=("--entrypoint", "sh")).stdout == "sh\n"
    assert (
        inside("sh", "-c", "echo $HOSTNAME", flags=("--entrypoint=", "--hostname=h")).stdout
        == "h\n"
    )
    flags = ("-u", "root", "-w", "/", "-e", "FOO=1", "--entrypoint", "sh")
    assert inside("-c", "id -u; pwd; echo $FOO", flags=flags).stdout == "0\n/\n1\n"


def test_upper_layers_hide_what_is_below(inside: Inside) -> None:
    done = inside("ls /gone /full", flags=("-u", "0"))

    assert "of" not in done.stdout.split()
    assert "/gone: No such file" in done.stderr


def test_a_run_changes_nothing_for_the_next(inside: Inside) -> None:
    first = inside("rm -r /full /both; mkdir /full; ls -A /full", flags=("-u", "0"))
    second = inside("cat /both; ls / | cat", flags=("-u", "0"))

    assert (first.status, first.stdout) == (0, ""), first.stderr
    assert second.stdout.startswith("upper\n")
    assert "full" in second.stdout


def test_a_volume_of_a_read_only_image_can_be_written_to(inside: Inside) -> None:
    done = inside("touch /data/x && echo yes; touch /x", flags=("-u", "0", "--read-only"))

    assert done.stdout == "yes\n"
    assert "Read-only file system" in done.stderr


@pytest.mark.slow
def test_an_image_of_other_machines_or_none_is_one_error(
    inside: Inside, cli: Callable[..., Any]
) -> None:
    other = inside("true", flags=("--platform", "linux/s390x"))
    none = cli("run", "--image", "test/nosuch", "--", "true")

    assert (other.status, none.status) == (125, 125)
    assert f"is for linux/{ARCHITECTURE}, not linux/s390x" in other.stderr
    assert "there is no image `test/nosuch`" in none.stderr


def test_a_plain_user_runs_in_an_image_of_its_own(
    plain_user: Callable[..., Any], plain_home: Path, make_layer: MakeLayer
) -> None:
    config = {**CONFIG, "User": "", "WorkingDir": ""}
    layout = make_layout(plain_home / "layout", make_layer, config)
    loaded = plain_user("python", "-m", "sandbox", "image", "load", "-q", "-t", "box", layout)
    assert loaded.status == 0, loaded.stderr
    script = "id -u; cat /both; ls -A /full; rm -r /full; mkdir /full; touch /full/new; ls /full"

    done = plain_user("python", "-m", "sandbox", "run", "-q", "--image", "box", "--", script)

    if "user namespaces may be closed" in done.stderr:
        pytest.skip("a plain user may make no user namespace here")
    assert done.stdout == "0\nupper\nnew\n", done.stderr
