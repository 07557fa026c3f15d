"""Images beside the programs that made them: a real registry, skopeo, umoci, overlayfs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

FORMS = ("base:oci", "base:docker", "base2:zstd", "base:index")


@pytest.mark.parametrize("form", FORMS)
def test_the_tree_is_the_one_that_umoci_unpacks(
    form: str,
    served: Path,
    layout: Path,
    tmp_path: Path,
    home: Path,
    registry: Any,
    do: Any,
    sandbox: Any,
    stacked: Any,
    tree_of: Any,
) -> None:
    if not (served / "bundle").exists():
        do("umoci", "unpack", "--image", f"{layout}:base", served / "bundle")
    wanted = tree_of(served / "bundle/rootfs")
    with registry("plain") as host:
        for _ in range(2):
            words = ("image", "pull", f"{host}/{form}", "--insecure", host)
            status, _, errors = sandbox(home, *words)
            assert status == 0, errors
        found = stacked(home, f"{host}/{form}")
        saved, tag = tmp_path / "saved.tar", form.partition(":")[2]
        assert sandbox(home, "image", "save", f"{host}/{form}", "-o", saved)[0] == 0
    assert "layers" in do("skopeo", "inspect", "--raw", f"oci-archive:{saved}:{tag}")
    saved.unlink()

    assert found.keys() == wanted.keys()
    assert {key: value for key, value in found.items() if value != wanted[key]} == {}


def test_what_skopeo_writes_is_loaded(
    layout: Path, tmp_path: Path, home: Path, do: Any, sandbox: Any
) -> None:
    do("skopeo", "copy", f"oci:{layout}:base", f"docker-archive:{tmp_path}/docker.tar:a:docker")
    do("skopeo", "copy", f"oci:{layout}:base", f"oci-archive:{tmp_path}/oci.tar:a:oci")
    ids = set()
    for name in ("docker.tar", "oci.tar"):
        status, output, errors = sandbox(home, "image", "load", tmp_path / name)
        assert status == 0, errors
        ids.add(output.strip())

    assert len(ids) == 1
    saved = tmp_path / "saved.tar"
    assert sandbox(home, "image", "save", "a:oci", "-o", saved)[0] == 0
    do("skopeo", "copy", f"docker-archive:{saved}:a:docker", f"dir:{tmp_path}/from-docker")
    do("skopeo", "copy", f"oci-archive:{saved}:oci", f"dir:{tmp_path}/from-oci")


def test_four_pulls_at_once_make_one_download(
    served: Path, home: Path, registry: Any, answering: Any, sandbox: Any
) -> None:
    counts: dict[str, int] = {}
    with registry("four") as upstream:

        def count(handler: Any) -> None:
            counts[handler.path] = counts.get(handler.path, 0) + 1
            handler.send_response(307)
            handler.send_header("Location", f"http://{upstream}{handler.path}")
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        with answering(count) as host:
            words = ["image", "pull", f"{host}/small:oci", "--insecure", host]
            environment = {**os.environ, "SANDBOX_HOME": str(home)}
            processes = [
                subprocess.Popen(
                    [sys.executable, "-m", "sandbox", *words],
                    env=environment,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                )
                for _ in range(4)
            ]
            for process in processes:
                _, errors = process.communicate(timeout=120)
                assert process.returncode == 0, errors
    (document,) = json.loads(sandbox(home, "image", "inspect", f"{host}/small:oci")[1])
    layers = [layer["digest"] for layer in document["layers"]]
    assert layers
    assert [counts[f"/v2/small/blobs/{digest}"] for digest in layers] == [1] * len(layers)


@pytest.fixture(scope="module")
def lasting_home(work: Path, sandbox: Any) -> Iterator[Path]:
    """A home that keeps its layers from test to test."""
    yield work / "home"
    sandbox(work / "home", "image", "prune", "--all")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("form", ["zstd", "oci", "docker", "index"])  # the first one is unpacked
def test_the_example_infers_in_a_debian_from_a_registry(
    form: str,
    python_image: Path,
    lasting_home: Path,
    work: Path,
    registry: Any,
    push_all: Callable[..., None],
    sandbox: Any,
    tmp_path: Path,
) -> None:
    example = Path(__file__).resolve().parents[3] / "examples/infer"
    if not (example / "model.onnx").exists():
        subprocess.run([sys.executable, example / "build_model.py"], check=True, timeout=100)
    name = "infer2:zstd" if form == "zstd" else f"infer:{form}"
    with registry("infer") as host:
        if not (work / "infer-pushed").exists():
            push_all(f"oci-archive:{python_image}", host, "infer")
            (work / "infer-pushed").touch()
        words = ("image", "pull", f"{host}/{name}", "--insecure", host)
        status, _, errors = sandbox(lasting_home, *words)
        assert status == 0, errors

    flags = ("--cpus", "1", "--memory", "512m", "-v", f"{example}:/infer:ro")
    command = ("python3", "/infer/infer.py", "--iterations", "5")
    asked = ("run", "-o", tmp_path / "r.json", *flags, "--image", f"{host}/{name}", "--", *command)
    status, output, errors = sandbox(lasting_home, *asked)

    assert status == 0, errors
    assert "model.onnx, 1 thread" in output
    assert "inferences  5 in" in output
    result = json.loads((tmp_path / "r.json").read_text())
    # The weights were in memory, and below the limit.
    assert 96 << 20 < result["totals"]["memory_peak_bytes"] <= 512 << 20
