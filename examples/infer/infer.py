"""Run an ONNX model on the CPU as a device would, and print how long an inference takes.

    python infer.py [MODEL] [--seconds 8 | --iterations 200] [--threads N]

Threads: --threads, else OMP_NUM_THREADS, else PYTHON_CPU_COUNT, else the CPUs that this process
may use. onnxruntime reads none of these variables itself and would start a thread for every CPU
of the host, even inside a quota of half a CPU.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path

import numpy as np
import onnxruntime


def default_threads() -> int:
    """Return the number of threads that the environment asks for."""
    for name in ("OMP_NUM_THREADS", "PYTHON_CPU_COUNT"):
        value = os.environ.get(name, "")
        if value.isdecimal() and int(value) > 0:
            return int(value)
    return len(os.sched_getaffinity(0))


def load(model: Path, threads: int) -> onnxruntime.InferenceSession:
    """Read the model and prepare it; its weights stay in memory from here on."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors only: hosts without a readable GPU list warn
    # A waiting thread sleeps. By default it spins, which eats the quota of the one that works.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(
        model.read_bytes(), options, providers=["CPUExecutionProvider"]
    )


def measure(
    session: onnxruntime.InferenceSession, iterations: int | None, seconds: float
) -> list[float]:
    """Return the latency of each inference in seconds; every one gets a picture of its own."""
    model_input = session.get_inputs()[0]
    shape = [side if isinstance(side, int) else 1 for side in model_input.shape]
    random = np.random.default_rng()
    latencies: list[float] = []
    end = time.monotonic() + seconds
    while len(latencies) < iterations if iterations else time.monotonic() < end:
        image = random.standard_normal(shape, dtype=np.float32)
        before = time.perf_counter()
        (probabilities,) = session.run(None, {model_input.name: image})
        latencies.append(time.perf_counter() - before)
        if not np.isfinite(probabilities).all():
            raise SystemExit("the model's output is not a number")
    return latencies


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    model = Path(__file__).parent / "model.onnx"
    parser.add_argument("model", nargs="?", type=Path, default=model)
    parser.add_argument("--seconds", type=float, default=8.0, help="how long to infer")
    parser.add_argument("--iterations", type=int, help="how often to infer, instead of --seconds")
    parser.add_argument("--threads", type=int, default=default_threads())
    arguments = parser.parse_args()
    if not arguments.model.is_file():
        parser.error(f"there is no {arguments.model}: `python build_model.py` makes it")
    if arguments.threads < 1 or arguments.seconds <= 0 or (arguments.iterations or 1) < 1:
        parser.error("threads, seconds and iterations must be above 0")
    return arguments


def main() -> None:
    """Load, warm up, measure, print."""
    arguments = parse_arguments()
    before = time.perf_counter()
    session = load(arguments.model, arguments.threads)
    loaded = time.perf_counter() - before
    measure(session, 3, 0)  # warm-up: the first inferences allocate
    before = time.perf_counter()
    latencies = measure(session, arguments.iterations, arguments.seconds)
    elapsed = time.perf_counter() - before
    print(f"model       {arguments.model.name}, {arguments.threads} thread(s)")
    print(f"load        {loaded * 1e3:.0f} ms")
    print(f"inferences  {len(latencies)} in {elapsed:.1f} s, {len(latencies) / elapsed:.1f}/s")
    middle, high = statistics.median(latencies), np.percentile(latencies, 95)
    mean = statistics.fmean(latencies)
    print(f"latency     mean {mean * 1e3:.1f} ms, p50 {middle * 1e3:.1f}, p95 {high * 1e3:.1f}")


if __name__ == "__main__":
    main()
