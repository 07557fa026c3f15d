"""A Debian with Python as an image, by a plain user: no Docker, no podman, no privileges."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[3]
IMAGE = PROJECT / ".cache/infer-image.tar"
WEIGHTS_BYTES = 16 << 20
MEMORY_BYTES = 512 << 20
# The example's own model in a smaller size: emulated, its arithmetic takes minutes.
SMALL = """
import sys
sys.path.insert(0, "examples/infer")
import build_model
build_model.IMAGE, build_model.HIDDEN = (3, 16, 16), 3400
build_model.main()
"""


@pytest.fixture
def model(run: Callable[..., Any], tmp_path: Path) -> Path:
    path = tmp_path / "small.onnx"
    run(sys.executable, "-c", SMALL, path)
    return path


@pytest.mark.timeout(1200)
def test_alice_infers_in_a_debian(
    as_alice: None, cli: Callable[..., Any], sandbox_home: Path, tmp_path: Path, model: Path
) -> None:
    loaded = cli("image", "load", IMAGE, timeout=600)
    assert loaded.status == 0, loaded.stderr
    assert "infer:1: 1 layer" in loaded.stderr

    result = tmp_path / "r.json"
    mounts = ("-v", f"{PROJECT}/examples/infer:/infer:ro", "-v", f"{model}:/small.onnx:ro")
    inside = "id -u; cat /etc/debian_version; python3 /infer/infer.py --iterations 1 /small.onnx"
    command = ("--image", "infer:1", "--", "sh", "-c", inside)
    done = cli(
        "run", "-o", result, "--cpus", "1", "--memory", "512m", *mounts, *command, timeout=600
    )

    assert done.status == 0, done.stderr
    user, version, *said = done.stdout.splitlines()
    assert (user, version.partition(".")[0]) == ("0", "12")  # root inside is alice outside
    assert said[0].split() == ["model", "small.onnx,", "1", "thread(s)"]
    assert "inferences  1 in" in done.stdout
    record = json.loads(result.read_text())
    assert WEIGHTS_BYTES < record["totals"]["memory_peak_bytes"] <= MEMORY_BYTES
    limits = {limit["name"]: limit["state"] for limit in record["limits"]}
    assert {limits["cpus"], limits["memory"]} == {"enforced"}

    words = ("--image", "infer:1", "--", "python3", "-c", "b'x' * (200 << 20)")
    short = cli("run", "-q", "--memory", "64m", *words, timeout=200)

    assert short.status == 137, short.stderr
    assert cli("image", "rm", "infer:1", timeout=200).status == 0
    assert not any((sandbox_home / "images/layers").iterdir())
