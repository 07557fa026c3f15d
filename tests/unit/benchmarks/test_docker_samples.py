"""What `docker stats` prints is read back as numbers: sizes in its words, samples once each."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

BENCHMARKS = Path(__file__).resolve().parents[3] / "scripts/benchmarks"


def load() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        spec = importlib.util.spec_from_file_location("_profiles", BENCHMARKS / "profiles.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["_profiles"] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCHMARKS))
    return module


profiles = load()


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0B", 0),
        ("41.21MiB", 41.21 * (1 << 20)),
        ("1.953GiB", 1.953 * (1 << 30)),
        ("512KiB", 512 << 10),
        ("1.5kB", 1_500),
        ("16.8MB", 16.8e6),
        ("--", 0),
        ("many", 0),
    ],
)
def test_binary_and_decimal_sizes_are_told_apart(text: str, size: float) -> None:
    assert profiles.size_of(text) == pytest.approx(size)


@given(st.text())
def test_any_text_is_a_size_or_none(text: str) -> None:
    assert profiles.size_of(text) >= 0


def row(cpu: str, memory: str, written: str = "0B") -> str:
    return json.dumps(
        {"CPUPerc": cpu, "MemUsage": f"{memory} / 256MiB", "BlockIO": f"0B / {written}"}
    )


def test_a_sample_that_is_printed_again_counts_once() -> None:
    first, second = row("0.00%", "40MiB"), row("39.60%", "100MiB", "16.8MB")
    gone = row("0.00%", "0B")

    seen = profiles.seen_in(f"\x1b[2J\x1b[H{first}\n\x1b[H{first}\n{second}\n{second}\n{gone}\n")

    assert seen.cpu_percents == (0.0, 39.6)
    assert seen.memory_bytes == pytest.approx((40 << 20, 100 << 20))
    assert seen.written_bytes == (0, 16.8e6)
