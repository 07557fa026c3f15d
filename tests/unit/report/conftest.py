"""Runs that the reports are shown with: one of every way to end, and of every kind of host."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.records.host import Host, Mode
from sandbox.records.limits import LimitReport, LimitState
from sandbox.records.result import (
    DeviceIo,
    MemorySplit,
    OomKill,
    Outcome,
    Overhead,
    Pressure,
    RunResult,
    RunWarning,
    Summary,
    Totals,
)

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
MIB = 1 << 20
SEC = 10**9
STARTED_NS = 500 * SEC

HOST = Host(
    mode=Mode.UNIFIED,
    mode_reason="cgroup v2 at /sys/fs/cgroup, root",
    controllers=("cpu", "memory", "pids", "io", "cpuset"),
    cpus_online=(0, 1, 2, 3),
    cpus_allowed=(0, 1, 2, 3),
    memory_total_bytes=8192 * MIB,
    swap_total_bytes=0,
    kernel="6.8.0-45-generic",
    machine="x86_64",
    cpu_model="AMD EPYC 7B13",
    hostname="bench-3",
)

ENFORCED = LimitState.ENFORCED
LIMITS = (
    LimitReport(name="cpus", asked="0.5", state=ENFORCED, file="cpu.max", value="50000 100000"),
    LimitReport(
        name="memory", asked="512 MiB", state=ENFORCED, file="memory.max", value="536870912"
    ),
    LimitReport(
        name="memory_swap",
        asked="512 MiB",
        state=ENFORCED,
        by_default=True,
        file="memory.swap.max",
        value="0",
    ),
    LimitReport(
        name="pids", asked="4096", state=ENFORCED, by_default=True, file="pids.max", value="4096"
    ),
)

INFERENCE = RunResult(
    run_id="5f0c9a1be27d",
    name="resnet",
    command=("python", "infer.py", "--model", "resnet50.onnx", "--batch", "1"),
    spec={
        "limits": {"cpus": 0.5, "memory_bytes": 512 * MIB},
        "interval_ns": 10_000_000,
    },
    host=HOST,
    limits=LIMITS,
    outcome=Outcome.EXITED,
    exit_code=0,
    program_status=0,
    reason="exited 0",
    started_utc_ns=1_795_249_238 * SEC,
    started_ns=STARTED_NS,
    wall_ns=12_340_000_000,
    totals=Totals(
        cpu_usage_usec=6_151_204,
        cpu_user_usec=5_943_110,
        cpu_system_usec=208_094,
        cpu_periods=123,
        cpu_throttled_periods=120,
        cpu_throttled_usec=6_010_000,
        memory_peak_bytes=327_557_120,
        memory_peak_source="kernel",
        swap_peak_bytes=0,
        oom_events=0,
        oom_kills=0,
        limit_hits=0,
        pids_peak=9,
        pids_refused=0,
        io=(
            DeviceIo(
                device="259:0 nvme0n1",
                read_bytes=108_998_656,
                write_bytes=0,
                read_ops=851,
                write_ops=0,
            ),
        ),
        cpu_pressure=Pressure(some_usec=6_400_000, full_usec=6_100_000),
        memory_pressure=Pressure(some_usec=0, full_usec=0),
        io_pressure=Pressure(some_usec=212_000, full_usec=190_000),
    ),
    summary=Summary(
        cpu_mean=0.49848,
        cpu_p95=0.5003,
        cpu_max=0.5061,
        cpu_limit=0.5,
        throttled_ratio=120 / 123,
        memory_mean_bytes=281 * MIB,
        memory_peak_sampled_bytes=327_000_064,
        memory_peak_time_ns=STARTED_NS + 3_120_000_000,
        memory_split=MemorySplit(
            time_ns=STARTED_NS + 3_100_000_000,
            current_bytes=326 * MIB,
            anon_bytes=198 * MIB,
            file_bytes=109 * MIB,
            shmem_bytes=0,
            kernel_bytes=5 * MIB,
        ),
        memory_need_bytes=203 * MIB,
        memory_cache_bytes=109 * MIB,
        page_cache="cold",
        io_read_bytes=108_998_656,
        io_write_bytes=0,
        io_read_ops=851,
        io_write_ops=0,
        processes_peak=2,
        samples=1235,
    ),
    leftover_processes=0,
    unavailable={"network": "the run shares the host's network"},
    overhead=Overhead(cpu_usec=30_100, ticks=1235, missed_ticks=0, max_late_ns=180_000),
    thread_hints={"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    groups=("/sys/fs/cgroup/run-5f0c9a1be27d",),
    directory="/var/lib/sandbox/runs/5f0c9a1be27d",
    versions={"sandbox": "0.1.0", "python": "3.11.7", "kernel": "6.8.0-45-generic"},
)

SHORT = replace(
    INFERENCE,
    name="5f0c9a1be27d",
    command=("true",),
    limits=LIMITS[3:],
    spec={"limits": {}, "interval_ns": 10_000_000},
    wall_ns=1_830_000,
    totals=replace(
        INFERENCE.totals,
        cpu_usage_usec=1_204,
        cpu_user_usec=401,
        cpu_system_usec=803,
        cpu_periods=0,
        cpu_throttled_periods=0,
        cpu_throttled_usec=0,
        memory_peak_bytes=581_632,
        pids_peak=1,
        io=(),
        cpu_pressure=Pressure(some_usec=0, full_usec=0),
        io_pressure=Pressure(some_usec=0, full_usec=0),
    ),
    summary=Summary(
        cpu_mean=0.658,
        cpu_limit=4.0,
        io_read_bytes=0,
        io_write_bytes=0,
        io_read_ops=0,
        io_write_ops=0,
        samples=1,
    ),
    thread_hints={},
)

OUT_OF_MEMORY = replace(
    INFERENCE,
    outcome=Outcome.OOM_KILLED,
    exit_code=137,
    program_status=None,
    program_signal=9,
    reason="killed: out of memory at 3.21 s (limit 64 MiB)",
    wall_ns=3_214_000_000,
    limits=(
        LIMITS[0],
        replace(LIMITS[1], asked="64 MiB", value="67108864"),
        replace(LIMITS[2], asked="64 MiB"),
        LIMITS[3],
    ),
    totals=replace(
        INFERENCE.totals,
        memory_peak_bytes=67_108_864,
        cpu_usage_usec=1_606_000,
        cpu_user_usec=1_201_000,
        cpu_system_usec=405_000,
        cpu_periods=32,
        cpu_throttled_periods=30,
        cpu_throttled_usec=1_580_000,
        oom_events=1,
        oom_kills=3,
        limit_hits=620,
        cpu_pressure=Pressure(some_usec=1_600_000, full_usec=1_500_000),
        memory_pressure=Pressure(some_usec=740_000, full_usec=700_000),
    ),
    summary=replace(
        INFERENCE.summary,
        memory_mean_bytes=51 * MIB,
        memory_need_bytes=62 * MIB,
        memory_cache_bytes=30 * MIB,
    ),
    oom_kills=(
        OomKill(time_ns=STARTED_NS + 3_210_000_000, since_start_ns=3_210_000_000, cause="limit"),
    ),
)

HYBRID = replace(
    INFERENCE,
    command=("python", "train.py"),
    outcome=Outcome.TIMED_OUT,
    exit_code=124,
    program_status=None,
    program_signal=15,
    reason="killed: wall-clock limit of 10 s",
    wall_ns=10_003_000_000,
    host=replace(
        HOST,
        mode=Mode.HYBRID,
        swap_total_bytes=1024 * MIB,
        mode_reason="v1 controllers below /sys/fs/cgroup, root",
    ),
    totals=replace(
        INFERENCE.totals,
        cpu_pressure=None,
        memory_pressure=None,
        io_pressure=None,
        memory_peak_bytes=536_870_912,
        swap_peak_bytes=None,
    ),
    leftover_processes=3,
    unavailable={
        "network": "the run shares the host's network",
        "cpu_pressure": "the kernel keeps no pressure figures (boot with psi=1)",
        "memory_pressure": "the kernel keeps no pressure figures (boot with psi=1)",
        "io_pressure": "the kernel keeps no pressure figures (boot with psi=1)",
        "swap_peak_bytes": "cgroup v1 keeps the peak of memory and swap together only",
        "memory_kernel_bytes": "this kernel does not count its own memory by group",
    },
    warnings=(
        RunWarning(
            code="peak_is_cache",
            text="the memory peak is the limit itself because of page cache (up to 309 MiB); "
            "the run needed 203 MiB",
            hint="the kernel drops page cache when memory is short",
        ),
    ),
)

DEGRADED = replace(
    INFERENCE,
    command=("./bench", "--odd\x1b[31m", "naïve.onnx"),
    outcome=Outcome.SIGNALED,
    exit_code=139,
    program_status=None,
    program_signal=11,
    reason="ended by SIGSEGV (139)",
    host=replace(HOST, mode=Mode.NONE, mode_reason="no writable cgroup: uid 1000", controllers=()),
    limits=(
        replace(
            LIMITS[0],
            state=LimitState.UNAVAILABLE,
            file=None,
            value=None,
            reason="a CPU quota needs a cgroup",
        ),
        replace(
            LIMITS[1],
            state=LimitState.APPROXIMATED,
            file="RLIMIT_DATA",
            value="536870912",
            reason="each process by itself, and the samples of all",
        ),
        replace(
            LIMITS[3],
            state=LimitState.UNAVAILABLE,
            file=None,
            value=None,
            reason="a limit of processes needs a cgroup",
        ),
    ),
    totals=Totals(
        cpu_usage_usec=6_151_204,
        memory_peak_bytes=301 * MIB,
        memory_peak_source="sampled",
        pids_peak=9,
    ),
    summary=Summary(
        cpu_mean=0.9985,
        cpu_p95=1.0003,
        cpu_max=1.0061,
        cpu_limit=4.0,
        memory_mean_bytes=281 * MIB,
        memory_peak_sampled_bytes=301 * MIB,
        memory_peak_time_ns=STARTED_NS + SEC,
        processes_peak=2,
        samples=1235,
    ),
    unavailable={
        "network": "the run shares the host's network",
        "cpu_periods": "needs a cgroup",
        "memory_anon_bytes": "needs a cgroup",
        "io": "needs a cgroup",
        "cpu_pressure": "needs a cgroup",
    },
    warnings=(
        RunWarning(
            code="limit_unavailable",
            text="the cpus limit of 0.5 was not in force: a CPU quota needs a cgroup",
            hint="`sandbox doctor` says what it takes; --strict refuses to run without it",
        ),
        RunWarning(
            code="limit_approximated",
            text="the memory limit of 512 MiB is only approximated: each process by itself, "
            "and the samples of all",
        ),
    ),
    directory=None,
)

UNMEASURED = replace(INFERENCE, program_status=None, wall_ns=None, totals=Totals(), overhead=None)

NOT_STARTED = replace(
    UNMEASURED,
    command=("pyhton", "infer.py"),
    outcome=Outcome.NOT_STARTED,
    exit_code=127,
    reason="cannot run `pyhton`: it was not found",
    summary=None,
)

RUNNING = replace(
    UNMEASURED,
    outcome=Outcome.RUNNING,
    exit_code=None,
    reason="",
    summary=None,
)

LOST = replace(
    UNMEASURED,
    outcome=Outcome.SUPERVISOR_LOST,
    exit_code=None,
    reason="the supervisor was killed",
)

RUNS = {
    "inference": INFERENCE,
    "short": SHORT,
    "out_of_memory": OUT_OF_MEMORY,
    "hybrid_timeout": HYBRID,
    "degraded": DEGRADED,
    "not_started": NOT_STARTED,
    "running": RUNNING,
    "lost": LOST,
}


@pytest.fixture(scope="session")
def runs() -> dict[str, RunResult]:
    """Every example, by its name."""
    return dict(RUNS)


@pytest.fixture(params=RUNS)
def named_run(request: pytest.FixtureRequest) -> tuple[str, RunResult]:
    """Each example in turn, with its name."""
    return request.param, RUNS[request.param]


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compare text with a golden file; SANDBOX_UPDATE_GOLDEN=1 writes it anew."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / f"{name}.txt"
        if os.environ.get("SANDBOX_UPDATE_GOLDEN") == "1":
            path.write_text(text + "\n", encoding="utf-8")
        assert path.exists(), "run the tests once with SANDBOX_UPDATE_GOLDEN=1"
        assert text + "\n" == path.read_text(encoding="utf-8")

    return check
