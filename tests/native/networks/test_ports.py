"""Ports of the host that lead into private networks: who comes in, who does not, what remains."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
HOST_ADDRESS, SERVER_ADDRESS, UPLINK = "198.51.100.1", "198.51.100.2", "up0"  # as in conftest.py
Host = Any
PYTHON = os.path.realpath(sys.executable)
CLEAN: dict[str, Any] = {"links": [], "tables": [], "ip_forward": "0", "forwarding": "0"}
SERVER = [PYTHON, "-I", "-S", str(HERE / "server.py"), "0.0.0.0"]
PRIVATE = ["run", "-q", "--network", "private"]

pytestmark = pytest.mark.timeout(240)
both = pytest.mark.both  # a few: in an emulated guest each takes half a minute and more


def knock(address: str, port: int, protocol: str = "tcp") -> list[str]:
    return [PYTHON, "-I", "-S", str(HERE / "knock.py"), address, str(port), protocol]


def from_far(host: Host, words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["nsenter", f"--net=/proc/{host.far_pid}/ns/net", *words],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@contextmanager
def serving(words: list[str], cwd: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """A run with the server inside, until the block ends."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=cwd) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.terminate()


def published(host: Host, name: str) -> dict[str, int]:
    """The host's port by the run's, as `inspect` tells."""
    (view,) = json.loads(host.run(*host.sandbox("inspect", name)[2:]))
    ports = view["NetworkSettings"]["Ports"]
    return {inside: int(ends[0]["HostPort"]) for inside, ends in ports.items()}


@both
def test_everybody_comes_in_by_a_published_port(host: Host) -> None:
    flags = ["-p", "8001:7001", "-p", "7002/udp", "--name", "web"]
    run = host.sandbox(*PRIVATE, *flags, "--", *SERVER)

    with serving(run):
        found = published(host, "web")
        udp = found["7002/udp"]
        assert found == {"7001/tcp": 8001, "7002/udp": udp}
        told = host.run(*host.sandbox("port", "web")[2:])
        assert told == f"7001/tcp -> 0.0.0.0:8001\n7002/udp -> 0.0.0.0:{udp}\n"
        assert host.run(*host.sandbox("port", "web", "7002/udp")[2:]) == f"0.0.0.0:{udp}\n"
        other = subprocess.run(
            host.sandbox("port", "web", "9"),
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert other.returncode == 1
        assert "the port 9/tcp of web is not published" in other.stderr
        assert "hint: these are: 7001/tcp, 7002/udp" in other.stderr
        shown = host.run(*host.sandbox("ps", "--format", "{{.Ports}}")[2:])
        assert shown == f"0.0.0.0:8001->7001/tcp, 0.0.0.0:{udp}->7002/udp\n"
        for address in ("127.0.0.1", "127.0.0.9", HOST_ADDRESS):
            assert host.run(*knock(address, 8001)).endswith(" 1000\n")
            assert host.run(*knock(address, udp, "udp")) == "echoed\n"
        assert from_far(host, knock(HOST_ADDRESS, 8001)).stdout == f"{SERVER_ADDRESS} 1000\n"
        assert from_far(host, knock(HOST_ADDRESS, udp, "udp")).stdout == "echoed\n"
        for words in (knock(HOST_ADDRESS, 8001), knock(HOST_ADDRESS, udp, "udp")):
            host.run(*host.sandbox(*PRIVATE, "--", *words)[2:])  # another run
        assert from_far(host, knock(HOST_ADDRESS, 7001)).returncode, "it was not published"
    assert host.left() == CLEAN


def test_a_run_reaches_itself_by_its_published_port(host: Host) -> None:
    knocking = shlex.join(knock(HOST_ADDRESS, 8001))
    inside = f"{shlex.join(SERVER)} & until {knocking}; do sleep 0.1; done 2>/dev/null; kill $!"

    said = host.run(*host.sandbox(*PRIVATE, "-p", "8001:7001", "--", "sh", "-c", inside)[2:])

    assert said.splitlines()[-1].endswith(" 1000")


@pytest.mark.slow
def test_a_port_of_one_address_is_there_alone(host: Host) -> None:
    with serving(host.sandbox(*PRIVATE, "-p", "127.0.0.1:8001:7001", "--", *SERVER)):
        assert host.run(*knock("127.0.0.1", 8001)).endswith(" 1000\n")
        done = from_far(host, knock(HOST_ADDRESS, 8001))
    assert "ConnectionRefusedError" in done.stderr


@pytest.mark.parametrize("other", ["program", pytest.param("run", marks=pytest.mark.slow)])
def test_a_port_in_use_is_an_error_before_the_start(host: Host, tmp_path: Path, other: str) -> None:
    taken = ["-p", "7001:7001"]
    words = host.words(*SERVER) if other == "program" else host.sandbox(*PRIVATE, *taken, "--")
    with serving(words if other == "program" else [*words, *SERVER]):
        mark = tmp_path / "started"
        done = subprocess.run(
            host.sandbox("run", "--network", "private", *taken, "--", "touch", mark),
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    assert done.returncode == 125
    assert "cannot publish 0.0.0.0:7001 for 7001/tcp: the port is in use" in done.stderr
    assert "hint: another one" in done.stderr
    assert not mark.exists()
    assert host.left() == CLEAN


def test_an_address_of_another_host_is_an_error(host: Host) -> None:
    words = host.sandbox("run", "--network", "private", "-p", "192.0.2.77:80:80", "--", "true")
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)

    assert done.returncode == 125
    assert "192.0.2.77 is no address of this host" in done.stderr


def test_what_comes_by_published_ports_is_counted_to_the_byte(host: Host) -> None:
    flags = ["-p", "8001:7001", "-p", "8002:7002/udp"]
    with serving(host.sandbox(*PRIVATE, *flags, "--", *SERVER)):
        for words in (knock(HOST_ADDRESS, 8001), knock(HOST_ADDRESS, 8002, "udp")):
            assert from_far(host, words).returncode == 0
            host.run(*words)
            host.run(*(word.replace(HOST_ADDRESS, "127.0.0.1") for word in words))
        ends, rows = host.at_rest()

    ((run_id, row),) = rows.items()
    other = {"rx": "tx", "tx": "rx"}
    assert row == {other[key[:2]] + key[2:]: n for key, n in ends[f"sbx{run_id}"].items()}
    assert row["rx_bytes"] > 3 * 3000
    assert row["tx_bytes"] > 3 * 4000


PYTHON_CALL = """
import sandbox
result = sandbox.run(["true"], network="private", publish=["8001:80", "80/udp"])
print([port.text for port in result.ports])
"""


@pytest.mark.slow
def test_python_publishes_too(host: Host) -> None:
    first, second = json.loads(host.run(sys.executable, "-c", PYTHON_CALL).replace("'", '"'))

    assert first == "0.0.0.0:8001->80/tcp"
    assert second.endswith("->80/udp")
    assert "?" not in second
    assert host.left() == CLEAN


BEATS = """
import socket, sys, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    sender.settimeout(0.2)
    print("beats", flush=True)
    for _ in range(300):
        sender.sendto(b"beat", (sys.argv[1], 7002))
        try:
            sender.recv(100)
            print("heard", flush=True)
            sys.exit()
        except TimeoutError:
            pass
sys.exit("never")
"""


@pytest.mark.slow
def test_who_has_sent_before_a_run_was_there_is_heard_too(host: Host) -> None:
    far = ["nsenter", f"--net=/proc/{host.far_pid}/ns/net", PYTHON, "-c", BEATS, HOST_ADDRESS]
    with (
        serving(host.sandbox(*PRIVATE, "--", *SERVER)),  # connections are watched since
        subprocess.Popen(far, stdout=subprocess.PIPE, text=True) as sender,
    ):
        assert sender.stdout is not None
        assert sender.stdout.readline() == "beats\n"
        with serving(host.sandbox(*PRIVATE, "-p", "7002:7002/udp", "--", *SERVER)):
            assert sender.stdout.readline() == "heard\n"


FORGE = """
import socket, struct
# A datagram to the host's own loopback, put on the wire by hand: no route would send it there.
row = open("/proc/net/route").readlines()[1].split()
gateway = socket.inet_ntoa(struct.pack("=I", int(row[2], 16)))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    any_socket.connect((gateway, 9))
    own = any_socket.getsockname()[0]
    any_socket.send(b"x")  # so that the neighbour is asked who it is
mac = "00:00:00:00:00:00"
while mac == "00:00:00:00:00:00":
    rows = [row.split() for row in open("/proc/net/arp").readlines()[1:]]
    mac = next((row[3] for row in rows if row[0] == gateway), mac)
head = struct.pack("!BBHHHBBH4s4s", 69, 0, 33, 0, 0, 64, 17, 0,
                   socket.inet_aton(own), socket.inet_aton("127.0.0.1"))
total = sum(struct.unpack("!10H", head))
total = (total & 0xffff) + (total >> 16)
head = head[:10] + struct.pack("!H", ~total & 0xffff) + head[12:]
data = head + struct.pack("!HHHH", 5, 7777, 13, 0) + b"forge"
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
    wire.bind(("eth0", 0))
    ours = open("/sys/class/net/eth0/address").read().strip()
    wire.send(bytes.fromhex((mac + ours).replace(":", "")) + b"\\x08\\x00" + data)
"""
VICTIM = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as victim:
    victim.bind(("127.0.0.1", 7777))
    print("up", flush=True)
    sys.stdin.readline()
    victim.setblocking(False)
    try:
        print(victim.recv(100))
    except BlockingIOError:
        print("nothing")
"""
WITHOUT_GUARD = """
import sys
from sandbox.kernel import ingress
ingress.refuse_loopback = lambda *_: None
from sandbox.__main__ import main
main()
"""
WITHOUT_FILTER = """
import errno, sys
from sandbox.kernel import ingress
def refuse(*_):
    raise OSError(errno.ENOENT, "no such filter")
ingress.refuse_loopback = refuse
from sandbox.__main__ import main
main()
"""


@pytest.mark.parametrize("state", ["guarded", pytest.param("open", marks=pytest.mark.slow)])
def test_no_run_reaches_the_loopback_of_the_host(host: Host, state: str) -> None:
    flags = [*PRIVATE, "-p", "8001:7001", "--", PYTHON, "-c", FORGE]
    words = host.sandbox(*flags)
    if state == "open":  # what it keeps away does get there without it
        words = host.words(sys.executable, "-c", WITHOUT_GUARD, *flags)
    with subprocess.Popen(
        host.words(PYTHON, "-c", VICTIM), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "up\n"
        done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
        said = victim.communicate("go\n", timeout=100)[0]

    assert done.returncode == 0, done.stderr
    assert said == ("nothing\n" if state == "guarded" else "b'forge'\n")


@pytest.mark.slow
def test_not_even_one_whose_guard_is_killed_reaches_the_loopback(
    host: Host, tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    go, done = tmp_path / "go", tmp_path / "done"
    wait = f"while [ ! -e {go} ]; do sleep 0.1; done"
    script = f"echo ready; {wait}; {shlex.join([PYTHON, '-c', FORGE])} && touch {done}"
    words = host.sandbox(*PRIVATE, "-p", "8001:7001", "--", "sh", "-c", script)
    with (
        serving(words) as run,
        subprocess.Popen(
            host.words(PYTHON, "-c", VICTIM),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as victim,
    ):
        assert victim.stdout is not None
        assert victim.stdout.readline() == "up\n"
        guards = subprocess.run(
            ["pgrep", "-P", str(run.pid), "-f", "sandbox-guard"], capture_output=True, check=True
        ).stdout
        for pid in (run.pid, *map(int, guards.split())):
            os.kill(pid, signal.SIGKILL)
        run.wait()
        go.touch()
        wait_until(done.exists)
        said = victim.communicate("go\n", timeout=100)[0]

    assert said == "nothing\n"
    host.run(*host.sandbox("clean")[2:], check=False)
    wait_until(lambda: host.left() == CLEAN)


@pytest.mark.slow
def test_without_the_filter_there_is_no_way_by_the_loopback_and_a_warning(
    host: Host, tmp_path: Path
) -> None:
    file = tmp_path / "r.json"
    flags = [*PRIVATE, "-p", "8001:7001", "-o", str(file), "--", *SERVER]
    with serving(host.words(sys.executable, "-c", WITHOUT_FILTER, *flags)):
        assert host.run(*knock(HOST_ADDRESS, 8001)).endswith(" 1000\n")
        words = host.words(*knock("127.0.0.1", 8001))
        done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)

    assert done.returncode == 1
    (warning,) = [w for w in json.loads(file.read_text())["warnings"] if w["code"] == "network"]
    assert "127.0.0.1" in warning["text"]
    assert "cls_bpf" in warning["hint"]


@pytest.mark.slow
def test_twenty_killed_ones_leave_no_port_and_no_rule(
    host: Host, wait_until: Callable[..., None]
) -> None:
    runs = [
        subprocess.Popen(host.sandbox(*PRIVATE, "-p", f"{9000 + n}:80", "--", "sleep", "1000"))
        for n in range(20)
    ]
    wait_until(lambda: len(host.tables()) == 20)
    for run in runs:
        run.kill()
    for run in runs:
        run.wait()

    wait_until(lambda: host.left() == CLEAN)
    assert host.run("ss", "-Hltn") == ""
    assert host.setting("conf/all/route_localnet") == "0"
    assert host.setting("conf/default/route_localnet") == "0"
    again = host.sandbox(*PRIVATE, "-p", "9000:80", "--", "true")
    assert subprocess.run(again, timeout=100, check=False).returncode == 0


# --- as a plain user


@both
def test_a_plain_user_publishes_by_pasta(
    plain: Callable[..., Any],
    plain_words: list[str],
    plain_python: str,
    plain_home: Path,
    host: Host,
) -> None:
    if shutil.which("pasta") is None:
        pytest.skip("`pasta` (passt) is not installed")
    script = plain_home / "server.py"
    script.write_text((HERE / "server.py").read_text())
    flags = ["-p", "8001:7001", "-p", "7002/udp", "-p", "127.0.0.1::7001", "--name", "web"]
    server = [plain_python, "-I", "-S", str(script), "0.0.0.0"]

    with serving([*plain_words, *PRIVATE, *flags, "--", *server], cwd=plain_home):
        view = json.loads(plain("inspect", "web").stdout)[0]["NetworkSettings"]["Ports"]
        free = int(view["7001/tcp"][1]["HostPort"])
        assert view["7001/tcp"][0] == {"HostIp": "0.0.0.0", "HostPort": "8001"}
        assert view["7002/udp"] == [{"HostIp": "0.0.0.0", "HostPort": "7002"}]
        for port in (8001, free):
            assert host.run(*knock("127.0.0.1", port)).endswith(" 1000\n")
        assert host.run(*knock("127.0.0.1", 7002, "udp")) == "echoed\n"
        assert from_far(host, knock(HOST_ADDRESS, 8001)).stdout.endswith(" 1000\n")
        assert from_far(host, knock(HOST_ADDRESS, 7002, "udp")).stdout == "echoed\n"
        assert from_far(host, knock(HOST_ADDRESS, free)).returncode, "it is the loopback's alone"
        taken = plain("run", "--network", "private", "-p", "8001:80", "--", "/bin/true")
    assert taken.returncode == 125
    assert "cannot publish 0.0.0.0:8001 for 80/tcp: the port is in use" in taken.stderr


def test_a_plain_user_may_not_take_every_port(plain: Callable[..., Any]) -> None:
    done = plain("run", "--network", "private", "-p", "80:80", "--", "/bin/true")

    assert done.returncode == 125
    assert "not allowed" in done.stderr
    assert "hint: a plain user may take ports from 1024" in done.stderr
