"""What is reported beside what is known: programs that use an exact amount of something."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.both

MIB = 1 << 20


@pytest.fixture
def totals_of(cli: Callable[..., Any], sandbox_home: Path) -> Callable[..., Any]:
    """Return the record and the output of `sandbox run` of a command that ends well."""

    def run(*words: object) -> tuple[dict[str, Any], str]:
        before = set(sandbox_home.glob("runs/*"))
        done = cli("run", *map(str, words), timeout=120)
        assert done.status == 0, done.stderr
        (directory,) = set(sandbox_home.glob("runs/*")) - before
        record: dict[str, Any] = json.loads((directory / "run.json").read_text())
        return record, done.stdout

    return run


@pytest.mark.parametrize("seconds", [0.1, 1.0])
def test_cpu_time_is_right_within_one_percent_or_ten_milliseconds(
    totals_of: Callable[..., Any], load: Callable[..., list[str]], seconds: float
) -> None:
    def beyond_own_clock_usec(amount: float) -> int:
        record, printed = totals_of("--", *load("burn", amount))
        used_usec: int = record["totals"]["cpu_usage_usec"]
        return used_usec - int(printed)

    # What ends a process is outside its own clock, and costs what it costs without work.
    baseline_usec = statistics.median(beyond_own_clock_usec(0) for _ in range(3))
    burning_usec = statistics.median(beyond_own_clock_usec(seconds) for _ in range(3))

    assert abs(burning_usec - baseline_usec) <= max(0.01 * seconds * 1e6, 10_000)


@pytest.mark.parametrize("mib", [16, 64, 256])
def test_the_memory_peak_is_right_within_one_percent_and_a_mebibyte(
    totals_of: Callable[..., Any], load: Callable[..., list[str]], mib: int
) -> None:
    def peak_bytes(amount: int) -> int:
        record, _ = totals_of("--memory", "1g", "--", *load("touch", amount, 0))
        if record["totals"]["memory_peak_source"] != "kernel":
            pytest.skip("this kernel has no memory.peak: nothing exact to compare")
        peak: int = record["totals"]["memory_peak_bytes"]
        return peak

    beyond = peak_bytes(mib) - peak_bytes(0)

    assert abs(beyond - mib * MIB) <= 0.01 * mib * MIB + MIB


def test_anonymous_memory_is_told_from_page_cache(
    totals_of: Callable[..., Any], load: Callable[..., list[str]], tmp_path: Path
) -> None:
    file = tmp_path / "file"
    source = f"open({str(file)!r}, 'wb').write(bytes(48 << 20)); import time; time.sleep(1)"
    cached, _ = totals_of("--memory", "1g", "--", "python3", "-I", "-S", "-c", source)
    touched, _ = totals_of("--memory", "1g", "--", *load("touch", 48, 1))

    # 8 MiB below: what the kernel may be late by without being called late.
    assert touched["summary"]["memory_need_bytes"] >= 40 * MIB
    assert _counted(touched, "anon_bytes") >= 40 * MIB
    on_tmpfs = cached["summary"]["memory_split"]["shmem_bytes"] > 0
    assert _counted(cached, "shmem_bytes" if on_tmpfs else "file_bytes") >= 40 * MIB


def _counted(record: Any, part: str) -> int:
    """Return a part of the memory at the peak, and what the kernel had counted in none yet."""
    split, codes = record["summary"]["memory_split"], {w["code"] for w in record["warnings"]}
    assert ("memory_stat_late" in codes) == (split["uncounted_bytes"] != 0)
    counted: int = split[part] + max(split["uncounted_bytes"], 0)
    return counted


def test_a_quota_of_a_fifth_is_kept_and_its_throttling_counted(
    totals_of: Callable[..., Any], load: Callable[..., list[str]]
) -> None:
    record, _ = totals_of("--cpus", "0.2", "--", *load("burn", 0.6))
    totals, summary = record["totals"], record["summary"]

    assert summary["cpu_mean"] <= 0.2 * 1.1
    assert totals["cpu_throttled_periods"] >= 0.8 * totals["cpu_periods"]
    assert summary["throttled_ratio"] >= 0.8
    assert summary["cpu_limit"] == 0.2
    assert summary["cpu_max"] <= 0.2 * 1.5


def test_user_and_system_time_add_up(
    totals_of: Callable[..., Any], load: Callable[..., list[str]]
) -> None:
    totals = totals_of("--", *load("burn", 0.2))[0]["totals"]

    both = totals["cpu_user_usec"] + totals["cpu_system_usec"]
    assert abs(both - totals["cpu_usage_usec"]) <= 2


def test_direct_writes_are_counted(
    totals_of: Callable[..., Any], load: Callable[..., list[str]], tmp_path: Path
) -> None:
    target = block_device_directory(tmp_path)
    record, _ = totals_of("--", *load("direct_write", target / "written", 4096))

    assert sum(device["write_bytes"] for device in record["totals"]["io"]) >= 4096 << 10
    # The file's own metadata may be written too, and nothing else is.
    assert record["summary"]["io_write_bytes"] <= (4096 << 10) + MIB


def block_device_directory(tmp_path: Path) -> Path:
    """Return `tmp_path` if O_DIRECT reaches a block device from there."""
    device = Path(f"/sys/dev/block/{_major_minor(tmp_path)}")
    if not device.exists():
        pytest.skip(f"{tmp_path} is on no block device of this kernel")
    return tmp_path


def _major_minor(path: Path) -> str:
    number = path.stat().st_dev
    return f"{os.major(number)}:{os.minor(number)}"


def test_short_runs_have_exact_totals_without_samples(totals_of: Callable[..., Any]) -> None:
    record, _ = totals_of("--interval", "1m", "--", "true")

    assert record["totals"]["cpu_usage_usec"] > 0
    assert record["totals"]["memory_peak_bytes"] > 0
    assert record["summary"]["cpu_p95"] is None
    assert record["summary"]["cpu_max"] is None
    assert record["wall_ns"] < 5e9
