"""The five example models are those of the papers, infer, and are the same in both formats.

`architectures.py` has their layers, `to_onnx.py` and `to_litert.py` write them.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

for needed in ("onnxruntime", "ai_edge_litert"):
    if importlib.util.find_spec(needed) is None:
        pytest.skip("the example needs the `demo` and `litert` extras", allow_module_level=True)

PROJECT = Path(__file__).resolve().parents[2]
BUILD = PROJECT / "examples/models/build_models.py"
INFER = PROJECT / "examples/infer/infer.py"
BENCH = PROJECT / "examples/profiler/bench/test_perf.py"

MILLIONS = {  # of parameters, as published: by the papers, and by torchvision where it has them
    "mobilenet_v1_0.75_224": 2.6,
    "mobilenet_v1_1.0_224": 4.2,
    "mobilenet_v2_1.0_224": 3.5,
    "squeezenet_1.1_224": 1.24,
    "shufflenet_v2_1.0_224": 2.28,
}
# Not in this process: the runtimes' threads would take signals that other tests send to it.
BOTH = """\
import sys
import numpy as np, onnxruntime
from ai_edge_litert.interpreter import Interpreter
for name in sys.argv[1:]:
    image = np.random.default_rng(1).standard_normal((1, 3, 224, 224), dtype=np.float32)
    session = onnxruntime.InferenceSession(name + ".onnx", providers=["CPUExecutionProvider"])
    (ours,) = session.run(None, {"image": image})
    litert = Interpreter(name + ".tflite")
    litert.allocate_tensors()
    litert.set_tensor(litert.get_input_details()[0]["index"], image.transpose(0, 2, 3, 1).copy())
    litert.invoke()
    theirs = litert.get_tensor(litert.get_output_details()[0]["index"])
    assert ours.shape == theirs.shape == (1, 1000)
    assert abs(ours.sum() - 1) < 1e-3
    print(np.abs(ours - theirs).max() / ours.max())
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    directory = tmp_path_factory.mktemp("models")
    command = [sys.executable, BUILD, "--format", "both", "--directory", directory]
    done = subprocess.run(command, check=True, timeout=50, capture_output=True, text=True)
    return directory, done.stdout


def test_the_models_have_as_many_parameters_as_published(built: tuple[Path, str]) -> None:
    found = {words[0]: float(words[1]) for words in map(str.split, built[1].splitlines())}

    for suffix in (".onnx", ".tflite"):
        assert {name: found.pop(f"{name}{suffix}") for name in MILLIONS} == pytest.approx(
            MILLIONS, rel=0.02
        )
    assert not found
    names = (PROJECT / "examples/models/models.txt").read_text().splitlines()
    assert [name for name in names if not name.startswith("#")] == [*MILLIONS]


def test_every_model_infers(built: tuple[Path, str]) -> None:
    for name in MILLIONS:
        command = [sys.executable, INFER, built[0] / f"{name}.onnx", "--iterations", "1"]
        done = subprocess.run(command, check=True, timeout=50, capture_output=True, text=True)
        assert "inferences  1 in" in done.stdout


def test_both_formats_give_the_same_answers(built: tuple[Path, str]) -> None:
    """Two runtimes that know nothing of each other agree on every probability."""
    command = [sys.executable, "-c", BOTH, *(str(built[0] / name) for name in MILLIONS)]

    done = subprocess.run(command, check=True, timeout=50, capture_output=True, text=True)

    differences = [float(line) for line in done.stdout.split()]
    assert len(differences) == len(MILLIONS)
    assert max(differences) < 1e-4


@pytest.mark.parametrize("suffix", [".onnx", ".tflite"])
def test_the_benchmark_times_a_model_of_either_format(built: tuple[Path, str], suffix: str) -> None:
    model = built[0] / f"squeezenet_1.1_224{suffix}"

    done = subprocess.run(
        [sys.executable, BENCH, model, "--warmup", "1", "--iterations", "2"],
        check=True,
        timeout=50,
        capture_output=True,
        text=True,
    )

    words = done.stdout.replace(",", "").split()
    assert words[::3] == ["load", "warm-up", "mean"]
    assert all(float(seconds) > 0 for seconds in words[1::3])


@pytest.mark.parametrize(
    ("name", "said"), [("none.tflite", "there is no model"), ("model.pt", "is no model")]
)
def test_the_benchmark_names_what_is_wrong_with_a_model(name: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, BENCH, name], check=False, timeout=50, capture_output=True, text=True
    )

    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
