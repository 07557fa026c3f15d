"""The five example models are those of the papers, and infer."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

if importlib.util.find_spec("onnxruntime") is None:
    pytest.skip("the example needs the `demo` extra", allow_module_level=True)

PROJECT = Path(__file__).resolve().parents[2]
BUILD = PROJECT / "examples/models/build_models.py"
INFER = PROJECT / "examples/infer/infer.py"

MILLIONS = {  # of parameters, as published: by the papers, and by torchvision where it has them
    "mobilenet_v1_0.75_224": 2.6,
    "mobilenet_v1_1.0_224": 4.2,
    "mobilenet_v2_1.0_224": 3.5,
    "squeezenet_1.1_224": 1.24,
    "shufflenet_v2_1.0_224": 2.28,
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    directory = tmp_path_factory.mktemp("models")
    command = [sys.executable, BUILD, "--directory", directory]
    done = subprocess.run(command, check=True, timeout=50, capture_output=True, text=True)
    return directory, done.stdout


def test_the_models_have_as_many_parameters_as_published(built: tuple[Path, str]) -> None:
    found = {
        words[0].removesuffix(".onnx"): float(words[1])
        for words in map(str.split, built[1].splitlines())
    }

    assert found == pytest.approx(MILLIONS, rel=0.02)
    names = (PROJECT / "examples/models/models.txt").read_text().splitlines()
    assert [name for name in names if not name.startswith("#")] == [*MILLIONS]


def test_every_model_infers(built: tuple[Path, str]) -> None:
    for name in MILLIONS:
        command = [sys.executable, INFER, built[0] / f"{name}.onnx", "--iterations", "1"]
        done = subprocess.run(command, check=True, timeout=50, capture_output=True, text=True)
        assert "inferences  1 in" in done.stdout
