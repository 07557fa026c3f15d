"""What docker's own command line printed for known answers of its engine, and what we print.

The golden files hold docker's output. Where docker is installed, a stand-in for its engine serves
the same answers again, and the golden files are compared with the real client; with
SANDBOX_UPDATE_GOLDEN=1 they are written anew.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socketserver
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from sandbox.analysis.docker import human_duration
from sandbox.errors import SpecError
from sandbox.records.result import DeviceIo
from sandbox.records.stats import NetworkIo, State, StatsReading, StatsRow
from sandbox.report.stats import StatsView

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
FORMATS = GOLDEN / "stats_formats.json"
SIZES = GOLDEN / "stats_sizes.json"
DURATIONS = GOLDEN / "stats_durations.json"
UPDATE = os.environ.get("SANDBOX_UPDATE_GOLDEN") == "1"
SEC = 10**9
DOCKERS_TYPE, OUR_TYPE = "*container.statsContext", "stats"
"""What an error about an unknown field calls the row."""

OURS = {
    "{{len nil}}": "our words for a missing value are clearer",
    '{{join 1 ","}}': "as in docker 29, join takes any list, so its errors differ from 28's",
    '{{join .Name ","}}': "likewise",
    '{{join "a" ","}}': "likewise",
    '{{index (split "a,b" ",") 2}}': "docker names its library instead of the index",
    "{{$}}": "docker prints the insides of its own structures",
    "{{ $ }}": "likewise",
    "{{$}}x": "likewise",
    "{{range .}}{{end}}": "likewise",
    '{{define "x"}}a{{end}}': "a format is one template",
    '{{template "x"}}': "likewise",
    "{{template x}}": "likewise",
    '{{block "x" .}}a{{end}}': "likewise",
    "{{call .ID}}": "there is nothing to call",
    "{{1i}}": "no complex numbers",
    "{{1+2i}}": "likewise",
    "table {{pad .Name 3 3}}\\t{{truncate .Name 2}}\\t{{title .Name}}": "half a character is �",
    '{{printf "%#v|%#v|%#v|%#v" 1.0 1e6 true (split "a,b" ",")}}': "no Go source of a list",
    '{{printf "%#g|%#.3g|%#e|%#f|%#.0f" 1.0 1.0 1.0 1.0 1.0}}': "no `#` for floats",
    '{{printf "%x|%.2x|%X|%b" 1.0 1.5 2.5 1.0}}': "no binary floats",
}
"""Formats that we answer differently from docker, each with the reason."""


# --- docker's answers as our rows -----------------------------------------------------------------


def reading_of(cpu: dict[str, Any], answer: dict[str, Any] | None) -> StatsReading:
    """A reading with the CPU times of `cpu` and, if given, the rest of an engine's answer."""
    rest: dict[str, Any] = {}
    if answer is not None:
        blkio: dict[tuple[int, int], dict[str, int]] = {}
        for entry in answer["blkio_stats"]["io_service_bytes_recursive"]:
            device = blkio.setdefault((entry["major"], entry["minor"]), {})
            device[entry["op"].lower()] = entry["value"]
        rest = {
            "memory_usage_bytes": answer["memory_stats"]["usage"],
            "memory_stat": answer["memory_stats"]["stats"],
            "pids": answer["pids_stats"]["current"],
            "io": tuple(
                DeviceIo(
                    device=f"{major}:{minor}",
                    read_bytes=ops["read"],
                    write_bytes=ops["write"],
                    read_ops=0,
                    write_ops=0,
                )
                for (major, minor), ops in blkio.items()
            ),
            "network": tuple(
                NetworkIo(name=name, rx_bytes=port["rx_bytes"], tx_bytes=port["tx_bytes"])
                for name, port in answer.get("networks", {}).items()
            ),
        }
    return StatsReading(
        time_ns=0 if answer is None else SEC,
        utc_ns=0,
        cpu_usage_ns=cpu["cpu_usage"]["total_usage"],
        host_cpu_ns=cpu["system_cpu_usage"],
        cpus_online=cpu["online_cpus"],
        **rest,
    )


def row_of(entry: dict[str, Any], answer: dict[str, Any] | None) -> StatsRow:
    """One container of the stand-in; docker knows neither id nor name where it got no answer."""
    running = answer is not None and entry["State"] == "running"
    return StatsRow(
        asked=entry["Id"][:12],
        id="" if answer is None else entry["Id"],
        name="" if answer is None else entry["Names"][0],
        state=State(entry["State"]),
        cgroup_version=2,
        now=reading_of(answer["cpu_stats"], answer) if running and answer else None,
        before=reading_of(answer["precpu_stats"], None) if running and answer else None,
        host_memory_bytes=1 << 62,
        memory_limit_bytes=answer["memory_stats"]["limit"] if answer else None,
    )


def rows_of(golden: dict[str, Any]) -> list[StatsRow]:
    return [row_of(entry, golden["stats"].get(entry["Id"])) for entry in golden["list"]]


def ours(rows: Sequence[StatsRow], text: str) -> str:
    try:
        return StatsView(text).render(rows)
    except SpecError as error:
        return f"{error}\n"


def load(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


# --- the comparison -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [FORMATS, SIZES], ids=["formats", "sizes"])
def test_every_format_prints_what_docker_printed(path: Path) -> None:
    golden = load(path)
    rows = rows_of(golden)

    different = {
        text: (ours(rows, text), expected)
        for text, expected in golden["formats"].items()
        if text not in OURS and ours(rows, text) != expected.replace(DOCKERS_TYPE, OUR_TYPE)
    }

    assert len(golden["formats"]) >= 2
    assert not different


def test_the_known_differences_are_still_there() -> None:
    """A difference that went away would hide a new one."""
    golden = load(FORMATS)
    rows = rows_of(golden)

    gone = [text for text in OURS if ours(rows, text) == golden["formats"][text]]

    assert not gone


def test_every_age_reads_as_docker_wrote_it() -> None:
    ages = load(DURATIONS)["ages"]

    assert len(ages) > 50
    for seconds, expected in ages.items():
        assert human_duration(int(seconds) * SEC) + " ago" == expected, seconds


# --- the real client ------------------------------------------------------------------------------


class Handler(BaseHTTPRequestHandler):
    """Answers what `docker stats` and `docker ps` ask for, from a golden file."""

    protocol_version = "HTTP/1.1"
    server: Engine

    def address_string(self) -> str:
        return "local"

    def log_message(self, *_: object) -> None:
        """Keep quiet."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = re.sub(r"^/v[\d.]+", "", self.path).partition("?")[0]
        body: Any = None
        if path in {"/_ping", "/events"}:
            body = "OK"
        elif path in {"/version", "/info"}:  # older clients ask for the system first
            body = {"Os": "linux", "OSType": "linux", "ApiVersion": "1.50", "Version": "28.0.0"}
        elif path == "/containers/json":
            body = self.server.golden["list"]
        elif match := re.fullmatch("/containers/([^/]+)/stats", path):
            stats = self.server.golden["stats"]
            body = next((stats[known] for known in stats if known.startswith(match[1])), None)
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(404 if body is None else 200)
        for name, value in {
            "Api-Version": "1.50",
            "Ostype": "linux",
            "Content-Type": "application/json",
            "Content-Length": str(len(data)),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


class Engine(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """A stand-in for docker's engine at a socket of its own."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path: Path, golden: dict[str, Any]) -> None:
        super().__init__(str(path), Handler)
        self.golden = golden


@contextmanager
def engine(directory: Path, golden: dict[str, Any]) -> Iterator[Path]:
    path = directory / "engine.sock"
    path.unlink(missing_ok=True)
    server = Engine(path, golden)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield path
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


def docker(directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["docker", "-H", f"unix://{directory}/engine.sock", *arguments],
        capture_output=True,
        timeout=30,
        check=False,
        env={"HOME": str(directory), "PATH": os.environ["PATH"], "TZ": "UTC"},
    )
    return (done.stdout + done.stderr).decode("utf-8", "replace")


def docker_version() -> str | None:
    if shutil.which("docker") is None:
        return None
    done = subprocess.run(
        ["docker", "--version"], capture_output=True, text=True, timeout=10, check=False
    )
    match = re.search(r"version ([\d.]+)", done.stdout)
    return match[1] if match else None


def captured(directory: Path, golden: dict[str, Any]) -> dict[str, str]:
    """What the installed docker prints for each format of a golden file."""

    def stats(text: str) -> str:
        return docker(directory, "stats", "--no-stream", "--format", text)

    with engine(directory, golden), ThreadPoolExecutor(16) as pool:
        return dict(zip(golden["formats"], pool.map(stats, golden["formats"]), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("path", [FORMATS, SIZES], ids=["formats", "sizes"])
def test_the_golden_files_are_what_docker_prints(path: Path, tmp_path: Path) -> None:
    golden = load(path)
    version = docker_version()
    if version is None or (version != golden["docker"] and not UPDATE):
        pytest.skip(f"docker {golden['docker']} is not installed")

    printed = captured(tmp_path, golden)

    if UPDATE:
        golden.update(docker=version, formats=printed)
        path.write_text(json.dumps(golden, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert printed == golden["formats"]


@pytest.mark.slow
def test_the_golden_ages_are_what_docker_prints(tmp_path: Path) -> None:
    """The ages keep two seconds' distance from where the words change."""
    golden = load(DURATIONS)
    version = docker_version()
    if version is None or (version != golden["docker"] and not UPDATE):
        pytest.skip(f"docker {golden['docker']} is not installed")
    now = int(time.time())
    entries = [
        {
            "Id": f"{index:064x}",
            "Names": [f"/n{index}"],
            "Image": "",
            "Command": "c",
            "Created": now - int(seconds),
            "State": "running",
            "Status": "",
        }
        for index, seconds in enumerate(golden["ages"])
    ]

    with engine(tmp_path, {"list": entries, "stats": {}}):
        printed = docker(tmp_path, "ps", "--format", "{{.RunningFor}}").splitlines()

    ages = dict(zip(golden["ages"], printed, strict=True))
    if UPDATE:
        golden.update(docker=version, ages=ages)
        DURATIONS.write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")
    assert ages == golden["ages"]
