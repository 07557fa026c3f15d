"""The example environment files run end to end: real models, a real training."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

for needed in ("onnxruntime", "ai_edge_litert"):
    if importlib.util.find_spec(needed) is None:
        pytest.skip("the example needs the `demo` and `litert` extras", allow_module_level=True)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PATH = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

Cli = Callable[..., Any]


@pytest.fixture(autouse=True)
def _two_cpus() -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("the example files ask for two CPUs")


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("listed", ["model_names.txt", "model_names_litert.txt"])
def test_the_benchmark_has_a_row_for_each_of_five_models(
    cli: Cli, tmp_path: Path, listed: str
) -> None:
    """`test_perf.py` infers with each model that `build_models.py` has made."""
    names = EXAMPLES / f"profiler/bench/{listed}"
    models = [line for line in names.read_text().splitlines() if not line.startswith("#")]
    if not all((EXAMPLES / "profiler/bench" / model).exists() for model in models):
        build = [sys.executable, EXAMPLES / "models/build_models.py", "--format", "both"]
        subprocess.run(build, check=True, timeout=60)
    env = EXAMPLES / "profiler/env_benchmark.template"

    done = cli(
        *("profile", "-e", env, "-f", names, "--format", "json"),
        cwd=tmp_path,
        env=PATH,
        timeout=150,
    )

    assert done.status == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["name"] for row in rows] == [Path(model).stem for model in models]
    assert all(row["cpu_mean_percent"] > 0 for row in rows)
    assert all(10 << 20 < row["memory_peak_bytes"] <= 512 << 20 for row in rows)
    table = (tmp_path / "out.txt").read_text()
    assert len(list(tmp_path.glob("*_out.txt"))) == 5
    assert "Usage stats" in table
    assert all(f"\n{row['name']} " in table for row in rows)


@pytest.mark.slow
@pytest.mark.timeout(100)
def test_the_training_learns_within_its_budget(cli: Cli, tmp_path: Path) -> None:
    """`mnist.py` draws its own digits."""
    env = EXAMPLES / "profiler/env_mnist.template"

    done = cli("profile", "-e", env, cwd=tmp_path, env=PATH, timeout=80)

    assert done.status == 0, done.stderr
    assert done.stdout.splitlines()[3].startswith("mnist ")
    run = cli("runs", "ls", "-q").stdout.strip()
    record = json.loads(cli("runs", "show", run, "--json").stdout)
    said = Path(record["directory"], "stdout").read_text()
    assert float(said.split("accuracy ")[1]) > 0.9
