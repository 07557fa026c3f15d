"""The example infers for real: it builds its model, obeys thread hints and keeps its weights."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Not imported here: its threads would take signals that other tests send to this process.
if importlib.util.find_spec("onnxruntime") is None:
    pytest.skip("the example needs the `demo` extra", allow_module_level=True)

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/infer"
WEIGHTS_BYTES = 96 << 20

Cli = Callable[..., Any]


@pytest.fixture(scope="session")
def model() -> Path:
    """The example's own model, built at its usual place if it is not there."""
    path = EXAMPLE / "model.onnx"
    if not path.exists():
        subprocess.run([sys.executable, EXAMPLE / "build_model.py"], check=True, timeout=50)
    return path


def infer(*arguments: str | Path, env: dict[str, str] | None = None) -> str:
    """Return what the example prints."""
    clean = {
        k: v for k, v in os.environ.items() if k not in {"OMP_NUM_THREADS", "PYTHON_CPU_COUNT"}
    }
    done = subprocess.run(
        [sys.executable, EXAMPLE / "infer.py", *arguments],
        check=True,
        timeout=50,
        capture_output=True,
        text=True,
        env={**clean, **(env or {})},
    )
    return done.stdout


def test_the_model_holds_the_weights_it_promises(model: Path) -> None:
    assert WEIGHTS_BYTES < model.stat().st_size < 2 * WEIGHTS_BYTES


@pytest.mark.slow
def test_the_same_seed_builds_the_same_model(model: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.onnx"

    subprocess.run([sys.executable, EXAMPLE / "build_model.py", again], check=True, timeout=50)

    assert again.read_bytes() == model.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["again.onnx"]  # no half-written file


def test_it_infers_as_often_as_asked_and_reports_latencies(model: Path) -> None:
    said = infer(model, "--iterations", "7", "--threads", "1")

    assert "model.onnx, 1 thread" in said
    assert re.search(r"inferences +7 in", said)
    latencies = re.search(r"mean ([\d.]+) ms, p50 ([\d.]+), p95 ([\d.]+)", said)
    assert latencies
    _, middle, high = map(float, latencies.groups())
    assert 0 < middle <= high


@pytest.mark.parametrize(
    ("environment", "threads"),
    [
        ({"OMP_NUM_THREADS": "3", "PYTHON_CPU_COUNT": "1"}, 3),
        ({"PYTHON_CPU_COUNT": "2"}, 2),
        ({"OMP_NUM_THREADS": "many"}, len(os.sched_getaffinity(0))),
    ],
)
def test_it_takes_the_number_of_threads_from_the_environment(
    model: Path, environment: dict[str, str], threads: int
) -> None:
    assert f"model.onnx, {threads} thread" in infer(model, "--iterations", "1", env=environment)


def test_a_missing_model_is_named_with_the_command_that_makes_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLE / "infer.py", tmp_path / "none.onnx"],
        check=False,
        timeout=50,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 2
    assert "build_model.py" in done.stderr
    assert "Traceback" not in done.stderr


def run_in_sandbox(cli: Cli, tmp_path: Path, *arguments: str) -> tuple[Any, dict[str, Any]]:
    """Run the example in a sandbox; return the finished command and the result file."""
    output = tmp_path / "result.json"
    done = cli("run", "-o", output, *arguments, timeout=180)  # the guest is slow
    return done, json.loads(output.read_text())


@pytest.mark.both
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_half_a_cpu_is_half_a_cpu(cli: Cli, model: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE / "infer.py"), str(model), "--seconds", "10"]

    done, result = run_in_sandbox(
        cli, tmp_path, "--cpus", "0.5", "--memory", "512m", "--", *command
    )

    assert done.status == 0, done.stderr
    assert "model.onnx, 1 thread" in done.stdout  # the hint: half a CPU rounded up
    assert result["wall_ns"] >= 10_000_000_000
    assert 0.2 < result["totals"]["cpu_usage_usec"] * 1_000 / result["wall_ns"] <= 0.51
    assert WEIGHTS_BYTES < result["totals"]["memory_peak_bytes"] <= 512 << 20


@pytest.mark.both
@pytest.mark.timeout(240)
def test_memory_below_the_weights_ends_as_out_of_memory_and_says_when(
    cli: Cli, model: Path, tmp_path: Path
) -> None:
    command = [sys.executable, str(EXAMPLE / "infer.py"), str(model), "--seconds", "12"]

    done, result = run_in_sandbox(cli, tmp_path, "--memory", "64m", "--", *command)

    assert done.status == 137
    assert re.search(r"out of memory at [\d.]+ m?s", done.stderr), done.stderr
    assert result["outcome"] == "oom_killed"
    assert result["totals"]["memory_peak_bytes"] <= 64 << 20
    assert result["oom_kills"][0]["cause"] == "limit"
