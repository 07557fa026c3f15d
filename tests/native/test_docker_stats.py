"""Beside a real Docker Engine: its raw answers through our formulas, its containers by our reader.

Runs on cgroup v1 and on v2, as root, with an engine of the test's own in a network of its own.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sandbox.analysis.docker import docker_cpu_percent
from sandbox.records.stats import StatsRow

PROJECT = Path(__file__).resolve().parents[2]
BENCHMARKS = PROJECT / "scripts" / "benchmarks"
PARITY = PROJECT / "tests" / "unit" / "report" / "test_docker_parity.py"
WINDOWS = 20
ANSWERS = 5
PATIENCE_SEC = 60
IDLE = "while :; do sleep 100; done"
TALK = f"/bin/busybox ping -c 5 -s 1000 GATEWAY; {IDLE}"
CONTAINERS = {
    "burner": (("--cpuset-cpus", "0", "--memory", "64m"), "while :; do :; done"),
    "toucher": (
        ("--memory", "128m", "--pids-limit", "50", "--tmpfs", "/t"),
        f"/bin/busybox dd if=/dev/zero of=/t/x bs=1M count=20; cat /bin/busybox >/t/y; {IDLE}",
    ),
    "writer": (
        ("--volume", "/data"),
        "/bin/busybox dd if=/dev/zero of=/data/x bs=1M count=8 oflag=direct; " + TALK,
    ),
}
SAME = ("MemUsage", "MemPerc", "NetIO", "BlockIO", "PIDs")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.both,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="a Docker Engine needs root"),
]


def load_module(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def parity() -> ModuleType:
    """The stand-in for an engine that serves answers again, and answers as our rows."""
    return load_module("docker_parity", PARITY)


@pytest.fixture(scope="module")
def docker() -> Iterator[Any]:
    """An engine with three containers."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        engines = load_module("_docker", BENCHMARKS / "_docker.py")
    finally:
        sys.path.remove(str(BENCHMARKS))
    measure = sys.modules["_measure"]
    try:
        with engines.daemon(bridged=True) as docker:
            for name, (flags, script) in CONTAINERS.items():
                words = ("run", "-d", "--name", name, "--cgroup-parent", docker.parent, *flags)
                command = script.replace("GATEWAY", engines.GATEWAY)
                ask(docker, *words, engines.IMAGE, "sh", "-c", command)
            try:
                yield docker
            finally:
                ask(docker, "kill", *CONTAINERS)
    except measure.SkippedError as reason:
        pytest.skip(str(reason))


def ask(docker: Any, *words: str) -> str:
    done = subprocess.run(
        docker.command(*words), capture_output=True, text=True, timeout=PATIENCE_SEC, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class Connection(http.client.HTTPConnection):
    """HTTP on a Unix socket."""

    def __init__(self, docker: Any) -> None:
        super().__init__("localhost", timeout=PATIENCE_SEC)
        self._path = docker.host.removeprefix("unix://")

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE_SEC)
        self.sock.connect(self._path)


@contextmanager
def answers(docker: Any, name: str) -> Iterator[Iterator[dict[str, Any]]]:
    """The engine's stream for one container; its first answer has nothing before it."""
    connection = Connection(docker)
    connection.request("GET", f"/containers/{name}/stats?stream=true")
    response = connection.getresponse()
    assert response.status == 200
    try:
        yield (json.loads(line) for line in response)
    finally:
        with suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)
        response.close()
        connection.close()


def paths(docker: Any) -> dict[str, str]:
    """Each container's group."""
    ids = {name: ask(docker, "inspect", "--format", "{{.Id}}", name) for name in CONTAINERS}
    return {name: f"{docker.parent}/{container}" for name, container in ids.items()}


def sandbox_stats(*words: str) -> list[str]:
    return [sys.executable, "-m", "sandbox", "stats", *words]


# --- the engine's numbers, our formulas -----------------------------------------------------------


def normalized(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer as the stand-in serves it: absent lists of devices are empty ones."""
    blkio = answer["blkio_stats"]
    blkio["io_service_bytes_recursive"] = blkio.get("io_service_bytes_recursive") or []
    return answer


def test_our_formulas_print_what_docker_prints_of_the_same_numbers(
    docker: Any, parity: ModuleType, tmp_path: Path
) -> None:
    recorded: dict[str, list[dict[str, Any]]] = {}
    for name in CONTAINERS:
        with answers(docker, name) as stream:
            next(stream)
            recorded[name] = [normalized(next(stream)) for _ in range(ANSWERS)]

    for number in range(ANSWERS):
        batch = [recorded[name][number] for name in CONTAINERS]
        golden = {
            "list": [
                {"Id": answer["id"], "Names": [answer["name"]], "State": "running"}
                for answer in batch
            ],
            "stats": {answer["id"]: answer for answer in batch},
        }
        rows: list[StatsRow] = parity.rows_of(golden)
        for text in ("", "{{json .}}"):
            with parity.engine(tmp_path, golden):
                printed = parity.docker(tmp_path, "stats", "--no-stream", "--format", text)
            assert parity.ours(rows, text) == printed
        burner = printed.splitlines()[0]
        assert float(json.loads(burner)["CPUPerc"].removesuffix("%")) > 0


# --- the engine's containers, our reader ----------------------------------------------------------


def rows_by_id(lines: str) -> dict[str, dict[str, str]]:
    return {row["ID"]: row for row in map(json.loads, lines.splitlines())}


def test_a_container_looks_the_same_without_asking_docker(docker: Any) -> None:
    groups = paths(docker)
    words = [word for path in groups.values() for word in ("--cgroup", path)]
    deadline = time.monotonic() + PATIENCE_SEC
    while True:
        theirs = rows_by_id(ask(docker, "stats", "--no-stream", "--format", "{{json .}}"))
        done = subprocess.run(
            sandbox_stats("--no-stream", "--interval", "100ms", "--format", "json", *words),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SEC,
            check=True,
        )
        ours = rows_by_id(done.stdout)
        different = {
            (row["Name"], key): (ours[row["ID"]][key], row[key])
            for row in theirs.values()
            for key in SAME
            if ours[row["ID"]][key] != row[key]
        }
        if not different or time.monotonic() > deadline:
            break  # neighbours talk, pages are given back: then both look again

    assert len(theirs) == len(CONTAINERS)
    assert not different
    named = {row["Name"]: row for row in theirs.values()}
    assert named["toucher"]["MemUsage"].endswith("MiB / 128MiB")
    received, sent = (
        float(re.match(r"[\d.e+]+", part.strip())[0])  # type: ignore[index]
        for part in named["writer"]["NetIO"].split("/")
    )
    assert received > 0
    assert sent > 0


class Counters:
    """What `sandbox stats` has read of one group, in order; told for moments between two rows."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows
        self._times = [row["utc_ns"] for row in rows]

    def at(self, utc_ns: int, column: str) -> float:
        right = min(max(bisect_right(self._times, utc_ns), 1), len(self._rows) - 1)
        before, after = self._rows[right - 1], self._rows[right]
        part = (utc_ns - before["utc_ns"]) / (after["utc_ns"] - before["utc_ns"])
        return float(before[column] + part * (after[column] - before[column]))

    def covers(self, start_ns: int, end_ns: int) -> bool:
        return bool(self._times) and self._times[0] <= start_ns and end_ns <= self._times[-1]


def utc_ns(text: str) -> int:
    seconds, _, fraction = text.rstrip("Z").partition(".")
    whole = int(datetime.fromisoformat(f"{seconds}+00:00").timestamp())
    return whole * 10**9 + int(fraction.ljust(9, "0"))


def test_cpu_percentages_agree_over_the_same_windows(docker: Any, tmp_path: Path) -> None:
    group = paths(docker)["burner"]
    record = tmp_path / "rows"
    with record.open("w") as out, answers(docker, "burner") as stream:
        reader = subprocess.Popen(
            sandbox_stats("--cgroup", group, "--interval", "20ms", "--jsonl"), stdout=out
        )
        with reader:
            next(stream)
            theirs = [next(stream) for _ in range(WINDOWS + 3)]
            time.sleep(0.5)
            reader.terminate()
    lines = record.read_text().splitlines(keepends=True)
    found = Counters([json.loads(line) for line in lines if line.endswith("\n")])

    wall, dockers, engine = [], [], []
    for answer in theirs:
        start_ns, end_ns = utc_ns(answer["preread"]), utc_ns(answer["read"])
        if not found.covers(start_ns, end_ns):
            continue

        def grown(column: str, start_ns: int = start_ns, end_ns: int = end_ns) -> float:
            return found.at(end_ns, column) - found.at(start_ns, column)

        cpus = answer["cpu_stats"]["online_cpus"]
        wall.append(grown("cpu_usage_ns") / (end_ns - start_ns) * 100)
        dockers.append(
            docker_cpu_percent(round(grown("cpu_usage_ns")), round(grown("host_cpu_ns")), cpus)
        )
        now, before = answer["cpu_stats"], answer["precpu_stats"]
        engine.append(
            docker_cpu_percent(
                now["cpu_usage"]["total_usage"] - before["cpu_usage"]["total_usage"],
                now["system_cpu_usage"] - before["system_cpu_usage"],
                cpus,
            )
        )
    print(_summary("engine", engine), _summary("ours", dockers), _summary("by the clock", wall))
    assert len(engine) >= WINDOWS
    assert abs(statistics.mean(dockers) - statistics.mean(engine)) < 3
    assert statistics.mean(wall) < 102  # one CPU is all that it may use, and the clock shows it


def _summary(what: str, values: list[float]) -> str:
    mean, spread = statistics.mean(values), statistics.stdev(values)
    return f"{what}: mean {mean:.2f} sd {spread:.2f} max {max(values):.2f}; "


def test_a_private_network_counts_as_a_bridge_does(
    docker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same pings from a container and from a sandbox, on the engine's own host."""
    busybox = shutil.which("busybox")
    if busybox is None or shutil.which("nsenter") is None:
        pytest.skip("`busybox` or `nsenter` is not installed")
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    engine = Path(docker.host.removeprefix("unix://")).with_name("dockerd.pid").read_text().strip()
    there = ["nsenter", f"--net=/proc/{engine}/ns/net"]
    quiet = "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6"  # it would talk by itself
    subprocess.run([*there, "sh", "-c", quiet], timeout=20, check=False)
    gateway = sys.modules["_docker"].GATEWAY
    talk = f"ping -q -c 3 -s 20000 {gateway}; {IDLE}"
    words = ("run", "-d", "--name", "pinger", "--cgroup-parent", docker.parent)
    ask(docker, *words, sys.modules["_docker"].IMAGE, "sh", "-c", f"/bin/busybox {talk}")
    ours = [sys.executable, "-m", "sandbox"]
    run = ["run", "-q", "-d", "--name", "pinger", "--network", "private", "--"]
    try:
        subprocess.run(
            [*there, *ours, *run, "sh", "-c", f"{busybox} {talk}"], check=True, timeout=20
        )
        deadline = time.monotonic() + PATIENCE_SEC
        while True:
            shown = subprocess.run(
                [*ours, "stats", "--no-stream", "--format", "api", "pinger"],
                capture_output=True,
                text=True,
                timeout=PATIENCE_SEC,
                check=True,
            ).stdout
            mine = json.loads(shown)["networks"]["eth0"]
            with answers(docker, "pinger") as stream:
                theirs = next(stream)["networks"]["eth0"]
            if min(mine["rx_bytes"], theirs["rx_bytes"]) > 3 * 20_000:
                break
            assert time.monotonic() < deadline
        columns = [
            subprocess.run(
                [*command, "stats", "--no-stream", "--format", "{{.NetIO}}", "pinger"],
                capture_output=True,
                text=True,
                timeout=PATIENCE_SEC,
                check=True,
            ).stdout
            for command in (ours, docker.command())
        ]
    finally:
        subprocess.run([*ours, "kill", "pinger"], timeout=20, check=False)
        ask(docker, "kill", "pinger")
    print(mine, theirs)
    for way in ("rx", "tx"):
        more = theirs[f"{way}_packets"] - mine[f"{way}_packets"]
        assert abs(more) <= 4  # neighbours ask each other for their addresses: 42 bytes each
        assert theirs[f"{way}_bytes"] - mine[f"{way}_bytes"] == 42 * more
    assert columns[0] == columns[1]


def test_only_the_group_is_needed(docker: Any, need_kernel: Callable[[object, str], None]) -> None:
    """By the directory in one hierarchy it is the same container as by its path below all."""
    path = paths(docker)["toucher"]
    directory = next(
        (
            top / path.lstrip("/")
            for top in map(Path, ("/sys/fs/cgroup/memory", "/sys/fs/cgroup"))
            if (top / path.lstrip("/")).is_dir()
        ),
        None,
    )
    need_kernel(directory, "the container's group is not below /sys/fs/cgroup")

    shown = [
        subprocess.run(
            sandbox_stats("--no-stream", "--interval", "10ms", "--cgroup", asked, "--format", form),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SEC,
            check=True,
        ).stdout
        for asked in (path, str(directory))
        for form in ["{{.ID}} {{.MemUsage}} {{.PIDs}} {{.Network}} {{.BlockIO}}"]
    ]

    assert shown[0] == shown[1]
    assert "own" in shown[0]
