"""Private networks, none, and the host's: what is reached, what is counted, what remains."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from sandbox.kernel import forwarding, guard

HERE = Path(__file__).parent
HOST_ADDRESS, SERVER_ADDRESS, UPLINK = "198.51.100.1", "198.51.100.2", "up0"  # as in conftest.py
Host = Any
PYTHON = os.path.realpath(sys.executable)
CLEAN: dict[str, Any] = {"links": [], "tables": [], "ip_forward": "0", "forwarding": "0"}

pytestmark = pytest.mark.timeout(240)
both = pytest.mark.both  # a few: in an emulated guest each takes half a minute and more


def client(*arguments: object) -> list[str]:
    return [PYTHON, "-I", "-S", str(HERE / "client.py"), *map(str, arguments)]


def network(result: dict[str, Any]) -> dict[str, int]:
    """The one interface of a run, as `ip -s link` counts."""
    (port,) = result["totals"]["network"]
    return {key: value for key, value in port.items() if key != "name"}


@contextmanager
def started(host: Host, *words: str | Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        host.sandbox(*words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            yield process
        finally:
            with suppress(BrokenPipeError):
                process.communicate("go\n", timeout=100)


def _other(key: str) -> str:
    """What the other end of a pair calls it."""
    return ("tx" if key.startswith("rx") else "rx") + key[2:]


@both
def test_two_runs_reach_a_server_and_every_byte_is_counted(host: Host, tmp_path: Path) -> None:
    sizes = {"a": (300_000, 1_000), "b": (5_000, 70_000)}
    runs = [_talk(host, name, *size, tmp_path) for name, size in sizes.items()]
    for run in runs:
        assert run.stdout is not None
        assert run.stdout.readline() == f"{HOST_ADDRESS}\n", "the server saw another"
        assert run.stdout.readline() == "done\n"
    outside, rows = host.at_rest()
    during = host.left()
    printed = [run.communicate("go\n", timeout=100)[0] for run in runs]

    results = [json.loads((tmp_path / f"{name}.json").read_text()) for name in sizes]
    for result, text, (received, sent) in zip(results, printed, sizes.values(), strict=True):
        run_id, found = result["run_id"], network(result)
        assert rows[run_id] == {_other(key): n for key, n in outside[f"sbx{run_id}"].items()}
        assert found == in_docker_words(json.loads(text)[0]["stats64"])
        assert found["rx_bytes"] > received
        assert found["tx_bytes"] > sent
        assert "network" not in result["unavailable"]
    assert sorted(during["tables"]) == sorted(f"sandbox-{result['run_id']}" for result in results)
    assert (during["forwarding"], during["ip_forward"]) == ("1", "0")
    assert host.left() == CLEAN


def _talk(host: Host, name: str, receive: int, send: int, place: Path) -> subprocess.Popen[str]:
    words = shlex.join(client("tcp", SERVER_ADDRESS, receive, send))
    script = f"{words}; exec ip -s -j link show eth0"
    flags = ["-q", "--name", name, "--network", "private", "-o", place / f"{name}.json"]
    return subprocess.Popen(
        host.sandbox("run", *flags, "--", "sh", "-c", script),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def in_docker_words(stats: dict[str, dict[str, int]]) -> dict[str, int]:
    """What `ip -s -j link` says, by the names that docker has for it."""
    names = ("bytes", "packets", "errors", "dropped")
    return {f"{way}_{what}": stats[way][what] for way in ("rx", "tx") for what in names}


@pytest.mark.slow  # connections that time out
def test_no_other_comes_in_and_runs_do_not_reach_each_other(host: Host) -> None:
    listen = (
        "import socket, sys; s = socket.create_server(('', 7003)); print('up', flush=True);"
        " sys.stdin.readline()"
    )
    knock = "import socket; socket.create_connection(('10.209.0.2', 7003), timeout=1)"
    with started(host, "run", "-q", "--network", "private", "--", PYTHON, "-c", listen) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "up\n"
        host.run(PYTHON, "-c", knock)  # the host itself may
        host.far("ip", "route", "add", "10.209.0.0/16", "via", HOST_ADDRESS)
        far = ["nsenter", f"--net=/proc/{host.far_pid}/ns/net"]
        others = [
            [*far, PYTHON, "-c", knock],
            host.sandbox("run", "-q", "--network", "private", "--", PYTHON, "-c", knock),
        ]
        for words in others:
            done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
            assert done.returncode == 1
            assert "TimeoutError" in done.stderr
        # From outside nothing is forwarded for others: the test's host is no router meanwhile.
        assert host.setting(f"conf/{UPLINK}/forwarding") == "1"


@both
def test_what_is_on_the_hosts_network_is_counted_by_run(host: Host, tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    before = host.links()[UPLINK]
    words = client("udp", SERVER_ADDRESS, 20, 500)
    noise = client("udp", SERVER_ADDRESS, 3, 100)
    with started(host, "run", "-q", "--name", "talker", "-o", file, "--", *words) as run:
        assert run.stdout is not None
        assert [run.stdout.readline() for _ in range(2)] == ["echoed\n", "done\n"]
        after = host.links()[UPLINK]
        row = json.loads(host.run(*host_stats()))
        host.run(*noise)  # another's, which is not to be seen

    found = network(json.loads(file.read_text()))
    for key in ("rx_bytes", "tx_bytes", "rx_packets", "tx_packets"):
        assert found[key] == after[key] - before[key]
    assert (found["tx_packets"], found["tx_bytes"]) == (20, 20 * (500 + 8 + 20 + 14))
    assert row["NetIO"] == "10.8kB / 10.8kB"
    assert row["Network"] == "host"


def host_stats() -> list[str]:
    template = '{"NetIO":{{json .NetIO}},"Network":{{json .Network}}}'
    return [sys.executable, "-m", "sandbox", "stats", "--no-stream", "--format", template, "talker"]


def test_none_has_a_loopback_that_works_and_nothing_else(cli: Callable[..., Any]) -> None:
    program = (
        "import os, socket;"
        "s = socket.create_server(('127.0.0.1', 0));"
        "socket.create_connection(s.getsockname()).sendall(b'x');"
        "print(sorted(os.listdir('/proc/sys/net/ipv4/conf')), s.accept()[0].recv(1))"
    )

    done = cli("run", "--network", "none", "--", PYTHON, "-c", program)

    assert done.status == 0, done.stderr
    assert done.stdout == "['all', 'default', 'lo'] b'x'\n"
    assert "network      none" in done.stderr


@pytest.mark.parametrize("kind", ["none", "private"])
def test_marks_arrive_from_a_network_of_its_own(host: Host, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "r.json"
    program = "import sandbox; sandbox.mark('one'); sandbox.mark('two')"

    run = host.sandbox("run", "-q", "--network", kind, "-o", file, "--")[2:]
    host.run(*run, sys.executable, "-c", program)

    phases = json.loads(file.read_text())["phases"]
    assert [phase["name"] for phase in phases] == ["start", "one", "two"]
    assert all(phase["totals"]["network"] is not None for phase in phases)


@both
def test_a_killed_supervisor_leaves_nothing(host: Host, wait_until: Callable[..., None]) -> None:
    runs = [
        subprocess.Popen(host.sandbox("run", "-q", "--network", "private", "--", "sleep", "1000"))
        for _ in range(2)
    ]
    wait_until(lambda: len(host.tables()) == 2)

    runs[0].kill()
    runs[0].wait()
    wait_until(lambda: len(host.left()["links"]) == 1)
    assert host.setting(f"conf/{UPLINK}/forwarding") == "1", "the other needs it"
    runs[1].kill()
    runs[1].wait()
    wait_until(lambda: host.left() == CLEAN)


def test_clean_puts_back_what_even_the_guard_could_not(
    host: Host, wait_until: Callable[..., None]
) -> None:
    run = subprocess.Popen(host.sandbox("run", "-q", "--network", "private", "--", "sleep", "1000"))
    wait_until(lambda: host.left()["tables"])
    guards = subprocess.run(
        ["pgrep", "-P", str(run.pid), "-f", "sandbox-guard"], capture_output=True, check=True
    ).stdout
    for pid in (run.pid, *map(int, guards.split())):
        os.kill(pid, signal.SIGKILL)
    run.wait()
    assert host.setting(f"conf/{UPLINK}/forwarding") == "1"

    said = host.run(*host.sandbox("clean")[2:], check=False)

    assert "removed 1 leases of a private network" in said
    wait_until(lambda: host.left() == CLEAN)


def test_forwarding_that_others_have_switched_on_meanwhile_stays(
    host: Host, wait_until: Callable[..., None]
) -> None:
    switch = "echo 1 > /proc/sys/net/ipv4/ip_forward"

    with started(host, "run", "-q", "--network", "private", "--", "cat") as run:
        assert run.poll() is None
        wait_until(lambda: host.setting(f"conf/{UPLINK}/forwarding") == "1")
        host.run("sh", "-c", switch)

    assert host.setting(f"conf/{UPLINK}/forwarding") == "1"
    assert host.setting("ip_forward") == "1"


def test_another_firewall_that_drops_is_told_of(host: Host, tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    rules = HERE / "closed.py"
    with subprocess.Popen(
        host.words(sys.executable, rules), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as firewall:
        assert firewall.stdout is not None
        assert firewall.stdout.readline() == b"closed\n"
        host.run(*host.sandbox("run", "-q", "--network", "private", "-o", file, "--", "true")[2:])
        firewall.communicate()

    (warning,) = [w for w in json.loads(file.read_text())["warnings"] if w["code"] == "network"]
    assert "ip theirs" in warning["text"]
    assert "DOCKER-USER" in warning["hint"]


WITHOUT_RULES = """
import errno, sys
from sandbox.kernel import nftables
def refuse(*_, **__):
    raise OSError(errno.EOPNOTSUPP, "no such thing")
nftables.make_table = refuse
sys.argv[1:] = ["run", "--network", "private", "--", "true"]
from sandbox.__main__ import main
main()
"""


def test_what_can_be_made_in_part_only_is_an_error_and_leaves_nothing(host: Host) -> None:
    done = subprocess.run(
        host.words(sys.executable, "-c", WITHOUT_RULES),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 125
    assert "nftables rules" in done.stderr
    assert "hint: the kernel lacks a part" in done.stderr
    assert host.left() == CLEAN


def test_addresses_are_taken_where_they_are_free_or_asked_for(host: Host) -> None:
    show = ["ip", "-4", "-o", "address", "show", "dev", "eth0"]
    run = host.sandbox("run", "-q", "--network", "private", "--", *show)[2:]
    host.run("ip", "route", "add", "10.0.0.0/8", "via", SERVER_ADDRESS)

    assert "inet 172.29.0.2/30" in host.run(*run)
    assert "inet 192.0.2.6/30" in host.run("env", "SANDBOX_NETWORK_POOL=192.0.2.4/30", *run)
    full = subprocess.run(
        host.words("env", "SANDBOX_NETWORK_POOL=10.1.0.0/24", *run),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert full.returncode == 125
    assert "no address is free" in full.stderr
    assert "SANDBOX_NETWORK_POOL" in full.stderr


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_hundred_killed_ones_leave_nothing(host: Host, wait_until: Callable[..., None]) -> None:
    seen = 0
    for batch in range(10):
        runs = [
            subprocess.Popen(
                host.sandbox("run", "-q", "--network", "private", "--", "sleep", "1000")
            )
            for _ in range(10)
        ]
        if batch % 2:  # half of them while they are being made
            wait_until(lambda: len(host.left()["links"]) == 10)
        else:
            wait_until(lambda: host.left()["links"])
        for run in runs:
            run.send_signal(signal.SIGSTOP)  # so that nothing is made that we do not see
        with held_namespaces([run.pid for run in runs], host) as namespaces:
            seen += len(namespaces)
            assert len(holders(namespaces)) >= len(namespaces)
            for run in runs:
                run.kill()
                run.wait()
            wait_until(lambda here=namespaces: not holders(here))
        # A pair of interfaces goes with the namespace of its other end, and not before.
        wait_until(lambda: host.left() == CLEAN)
    assert seen >= 50


@contextmanager
def held_namespaces(supervisors: list[int], host: Host) -> Iterator[set[str]]:
    """The network namespaces of all that these have started, which no other takes the name of."""
    own = {_target(Path(f"/proc/{pid}/ns/net")) for pid in (os.getpid(), host.pid)}
    with ExitStack() as stack:
        names: set[str] = set()
        for pid in descendants(supervisors):
            with suppress(OSError):  # it has ended
                fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
                stack.callback(os.close, fd)
                names.add(_target(Path(f"/proc/self/fd/{fd}")))
        yield names - own


def descendants(pids: list[int]) -> list[int]:
    """The processes that these have started, and those that they have."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(stat.read_text().rpartition(") ")[2].split()[1])
            parents.setdefault(parent, []).append(int(stat.parent.name))
    found = [child for pid in pids for child in parents.get(pid, ())]
    return found + descendants(found) if found else []


def holders(namespaces: set[str]) -> list[str]:
    """What keeps one of them: a process in it, a descriptor, a mount; but for our own."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        with suppress(OSError):
            links = [process / "ns/net", *(process / "fd").iterdir()]
            found += [str(link) for link in links if _target(link) in namespaces]
            mounts = (process / "mountinfo").read_text()
            found += [f"{process} mounts {name}" for name in namespaces if name in mounts]
    return found


def _target(link: Path) -> str:
    with suppress(OSError):
        return str(link.readlink())
    return ""


# --- as a plain user


@both
def test_a_plain_user_reaches_the_server_through_pasta(
    plain: Callable[..., Any], plain_home: Path, plain_python: str
) -> None:
    if shutil.which("pasta") is None:
        pytest.skip("`pasta` (passt) is not installed")
    script = plain_home / "client.py"
    script.write_text((HERE / "client.py").read_text())
    show = f"{plain_python} -I -S {script} tcp {SERVER_ADDRESS} 20000 500; ip -s -j link show up0"
    if shutil.which("ip") is None:
        pytest.skip("`ip` is not installed")

    name = plain_home / "r.json"
    for _ in range(5):  # the kernel itself may tell of multicast after `ip` has looked
        done = plain(
            "run", "-q", "--network", "private", "-o", name, "--force", "--", "sh", "-c", show
        )
        assert done.returncode == 0, done.stderr
        seen, _, links = done.stdout.split("\n", 2)
        assert seen == HOST_ADDRESS
        found = network(json.loads(name.read_text()))
        shown = in_docker_words(json.loads(links)[0]["stats64"])
        if found == shown:
            break
    assert found == shown
    assert found["rx_bytes"] > 20_000


def test_a_plain_user_without_a_carrier_is_told_what_to_install(
    plain: Callable[..., Any], tmp_path: Path
) -> None:
    done = plain("run", "--network", "private", "--", "/bin/true", path=str(tmp_path))

    assert done.returncode == 125
    assert "`pasta` or `slirp4netns`" in done.stderr
    assert "apt install passt" in done.stderr


def test_a_plain_user_has_none_too(plain: Callable[..., Any]) -> None:
    done = plain("run", "--network", "none", "--", "sh", "-c", "id -u; cat /proc/net/dev")

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("65534\n")
    assert [line.split(":")[0].strip() for line in done.stdout.splitlines()[3:]] == ["lo"]


def test_the_carrier_ends_with_a_killed_supervisor(
    plain_words: list[str], plain_home: Path, wait_until: Callable[..., None]
) -> None:
    if shutil.which("pasta") is None or shutil.which("pgrep") is None:
        pytest.skip("`pasta` (passt) or `pgrep` is not installed")
    words = [*plain_words, "run", "-q", "--network", "private", "--"]
    words += ["sh", "-c", "echo up; sleep 1000"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=plain_home) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"up\n"
        assert _carriers()
        run.kill()

    wait_until(lambda: not _carriers())


def _carriers() -> list[str]:
    words = ["pgrep", "-u", "65534", "-f", "pasta --foreground"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.split()


# --- the guard


@pytest.mark.parametrize("shell", ["/bin/sh", "/nonexistent"])
def test_guards_of_both_kinds_release_a_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    monkeypatch.setattr(guard, "_SHELL", shell)
    place = str(tmp_path)
    lease = forwarding.lease_path("x", place)
    with forwarding.exclusively(place):
        os.close(forwarding.take(lease))
    watch = guard.Guard.start()

    watch.release(lease)

    assert watch.act()
    assert [path.name for path in tmp_path.iterdir()] == ["network.lock"]
