"""Time the inferences of one ONNX model: its path is the first argument.

Prints the seconds to load it, of the mean warm-up inference and of the mean measured one. Every
inference has its own random picture.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime


def main() -> int:
    """Load, warm up, measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=20)
    arguments = parser.parse_args()
    path = arguments.model
    if not path.exists():
        print(
            f"there is no model {path}: examples/models/build_models.py makes some", file=sys.stderr
        )
        return 2
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "0"))
    started = time.perf_counter()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    loaded = time.perf_counter() - started
    wanted = session.get_inputs()[0]
    random = np.random.default_rng()

    def mean_of(count: int) -> float:
        total = 0.0
        for _ in range(count):
            image = random.standard_normal(wanted.shape, dtype=np.float32)
            begun = time.perf_counter()
            session.run(None, {wanted.name: image})
            total += time.perf_counter() - begun
        return total / max(count, 1)

    warm_up, measured = mean_of(arguments.warmup), mean_of(arguments.iterations)
    print(f"load {loaded:.4f} s, warm-up {warm_up:.4f} s, mean {measured:.4f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
