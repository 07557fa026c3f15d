"""A host of the test's own: a network namespace with a way out to another, where a server is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
PROJECT = HERE.parents[2]
HOST_ADDRESS, SERVER_ADDRESS = "198.51.100.1", "198.51.100.2"
UPLINK = "up0"
TCP_PORT, UDP_PORT = 7001, 7002
_PATIENCE_SEC = 60
PLAIN = ["--reuid=65534", "--regid=65534", "--clear-groups"]


@dataclass(frozen=True)
class Host:
    """Two network namespaces: one to run sandboxes in, one far away."""

    pid: int
    """A process in the one for sandboxes."""
    far_pid: int
    home: Path

    def words(self, *command: str | Path) -> list[str]:
        """Return the command line that runs something on this host."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", *map(str, command)]

    def run(self, *command: str | Path, check: bool = True) -> str:
        """Run a command there and return what it prints."""
        done = subprocess.run(
            self.words(*command), capture_output=True, text=True, timeout=100, check=False
        )
        assert not check or done.returncode == 0, done.stderr
        return done.stdout

    def sandbox(self, *arguments: str | Path) -> list[str]:
        """Return the command line of ours there."""
        return self.words(sys.executable, "-m", "sandbox", *arguments)

    def far(self, *command: str) -> None:
        """Run a command where the server is."""
        subprocess.run(
            ["nsenter", f"--net=/proc/{self.far_pid}/ns/net", *command], check=True, timeout=60
        )

    def links(self) -> dict[str, dict[str, int]]:
        """Return what `ip -s link` counts of each interface: what it received and sent."""
        return {
            link["ifname"]: {
                f"{way}_{what}": link["stats64"][way][what]
                for way in ("rx", "tx")
                for what in ("bytes", "packets", "errors", "dropped")
            }
            for link in json.loads(self.run("ip", "-s", "-j", "link"))
        }

    def at_rest(self) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]]:
        """Return the counters of the host's ends and ours of each run, while nothing passes."""
        while True:  # neighbours ask now and then
            before = self.links()
            told = self.run(*self.sandbox("stats", "--no-stream", "--format", "api")[2:])
            if self.links() == before:
                rows = [json.loads(line) for line in told.splitlines()]
                return before, {
                    row["id"]: row["networks"]["eth0"]
                    for row in rows
                    if "eth0" in row.get("networks", {})
                }

    def setting(self, name: str) -> str:
        """Return a setting of IPv4 there, such as `ip_forward`."""
        return self.run("cat", f"/proc/sys/net/ipv4/{name}").strip()

    def tables(self) -> list[str]:
        """Return the nftables tables, as pyroute2 reads them: it knows nothing of our code."""
        return self.run(sys.executable, HERE / "tables.py").split()

    def left(self) -> dict[str, Any]:
        """Return all that private networks may have changed here."""
        return {
            "links": sorted(name for name in self.links() if name.startswith("sbx")),
            "tables": self.tables(),
            "ip_forward": self.setting("ip_forward"),
            "forwarding": self.setting(f"conf/{UPLINK}/forwarding"),
        }


@pytest.fixture
def host(sandbox_home: Path, need_kernel: Callable[[object, str], None]) -> Iterator[Host]:
    """A host without forwarding, and a server behind its only way out."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces of the test's own need root")
    if shutil.which("ip") is None or shutil.which("nsenter") is None:
        pytest.skip("`ip` or `nsenter` is not installed")
    started = [_start(["unshare", "--net", "sleep", "1000"]) for _ in range(2)]
    try:
        for one in started:
            _wait_until(lambda pid=one.pid: _is_apart(pid))
        there = Host(pid=started[0].pid, far_pid=started[1].pid, home=sandbox_home)
        need_kernel(_has_all(there), "this kernel lacks `veth` or nf_tables")
        _connect(there)
        words = ["nsenter", f"--net=/proc/{there.far_pid}/ns/net", sys.executable]
        server = _start([*words, str(HERE / "server.py"), SERVER_ADDRESS])
        started.append(server)
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        yield there
    finally:
        for one in started:
            one.kill()
            one.communicate()


@pytest.fixture
def plain_words(host: Host, plain_home: Path, plain_python: str) -> list[str]:
    """Our command line on the test's host as a plain user; nothing of it forks before ours."""
    paths = f"{PROJECT}:{sysconfig.get_path('purelib')}"
    settings = [f"HOME={plain_home}", f"SANDBOX_HOME={plain_home}/s", f"PYTHONPATH={paths}"]
    words: list[str] = host.words("setpriv", *PLAIN, "env", *settings)
    return [*words, plain_python, "-m", "sandbox"]


@pytest.fixture
def plain(plain_words: list[str], plain_home: Path) -> Callable[..., Any]:
    """Run it; with other programs to be found if asked."""

    def run(*words: str | Path, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess[str]:
        place = plain_words.index("env") + 1
        command = [*plain_words[:place], f"PATH={path}", *plain_words[place:], *map(str, words)]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=100, check=False, cwd=plain_home
        )

    return run


@pytest.fixture
def wait_until() -> Callable[[Callable[[], object]], None]:
    """Wait for something that comes soon."""
    return _wait_until


def _start(words: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(words, stdout=subprocess.PIPE, cwd=PROJECT)


def _is_apart(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
    return False


def _wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + _PATIENCE_SEC
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)


def _has_all(host: Host) -> bool:
    probes = (
        ["ip", "link", "add", "probe0", "type", "veth", "peer", "name", "probe1"],
        ["ip", "link", "delete", "probe0"],
        [sys.executable, str(HERE / "tables.py")],
    )
    return all(
        subprocess.run(host.words(*probe), capture_output=True, timeout=60, check=False).returncode
        == 0
        for probe in probes
    )


def _connect(host: Host) -> None:
    """Lay the way out, with addresses that nobody has to ask for: so that all packets are ours."""
    near, far = "02:00:00:00:00:01", "02:00:00:00:00:02"
    host.run("sh", "-c", "echo 0 > /proc/sys/net/ipv4/ip_forward")
    peer = ["peer", "name", "far0", "address", far, "netns", str(host.far_pid)]
    host.run("ip", "link", "add", UPLINK, "address", near, "type", "veth", *peer)
    for run, device, address in (
        (host.run, UPLINK, HOST_ADDRESS),
        (host.far, "far0", SERVER_ADDRESS),
    ):
        run("sh", "-c", f"echo 1 > /proc/sys/net/ipv6/conf/{device}/disable_ipv6 || true")
        run("ip", "address", "add", f"{address}/24", "dev", device)
        run("ip", "link", "set", device, "up")
        run("ip", "link", "set", "lo", "up")
    host.run("ip", "neighbour", "add", SERVER_ADDRESS, "lladdr", far, "dev", UPLINK)
    host.far("ip", "neighbour", "add", HOST_ADDRESS, "lladdr", near, "dev", "far0")
    host.run("ip", "route", "add", "default", "via", SERVER_ADDRESS)
