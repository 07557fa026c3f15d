"""Time the inferences of one model, of ONNX or LiteRT: its path is the first argument.

Prints the seconds to load it, of the mean warm-up inference and of the mean measured one. Every
inference has its own random picture. The threads are as many as OMP_NUM_THREADS says, else as many
as there are CPUs.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

Infer = Callable[[np.ndarray], None]


def load_onnx(path: Path, threads: int) -> tuple[Infer, tuple[int, ...]]:
    """Return what infers, and the shape of its picture."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    wanted = session.get_inputs()[0]

    def infer(image: np.ndarray) -> None:
        session.run(None, {wanted.name: image})

    return infer, tuple(wanted.shape)


def load_litert(path: Path, threads: int) -> tuple[Infer, tuple[int, ...]]:
    """Return what infers, and the shape of its picture."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=threads)
    interpreter.allocate_tensors()
    wanted, made = interpreter.get_input_details()[0], interpreter.get_output_details()[0]

    def infer(image: np.ndarray) -> None:
        interpreter.set_tensor(wanted["index"], image)
        interpreter.invoke()
        interpreter.get_tensor(made["index"])

    return infer, tuple(wanted["shape"])


LOADERS = {".onnx": load_onnx, ".tflite": load_litert}


def main() -> int:
    """Load, warm up, measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=20)
    arguments = parser.parse_args()
    path = arguments.model
    if path.suffix not in LOADERS:
        print(f"{path} is no model: known are {', '.join(LOADERS)}", file=sys.stderr)
        return 2
    if not path.exists():
        print(
            f"there is no model {path}: examples/models/build_models.py makes some", file=sys.stderr
        )
        return 2
    threads = int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0)))
    started = time.perf_counter()
    infer, shape = LOADERS[path.suffix](path, threads)
    loaded = time.perf_counter() - started
    random = np.random.default_rng()

    def mean_of(count: int) -> float:
        total = 0.0
        for _ in range(count):
            image = random.standard_normal(shape, dtype=np.float32)
            begun = time.perf_counter()
            infer(image)
            total += time.perf_counter() - begun
        return total / max(count, 1)

    warm_up, measured = mean_of(arguments.warmup), mean_of(arguments.iterations)
    print(f"load {loaded:.4f} s, warm-up {warm_up:.4f} s, mean {measured:.4f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
