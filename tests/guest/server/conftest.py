"""Tests that need a whole server: `scripts/guest server test` makes, boots and ends one."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
BUSYBOX = Path("/bin/busybox")
STARTING_SECONDS = 120
# How root comes to run something as somebody else. "login" has a session of its own as by ssh or
# on a console; the others have none, and "su" even brings root's environment along.
WAYS: dict[str, Callable[[str, str], list[str]]] = {
    "login": lambda user, line: _service("su", "--login", user, "--command", line),
    "service": lambda user, line: _service(f"--uid={user}", "sh", "-c", line),
    "setpriv": lambda user, line: [
        *("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--reset-env"),
        *("sh", "-c", line),
    ],
    "su -": lambda user, line: ["su", "--login", user, "--command", line],
    "su": lambda user, line: ["su", user, "--command", line],
    "sudo": lambda user, line: ["sudo", "-u", user, "--", "sh", "-c", line],
    "ssh": lambda user, line: [
        *("ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no"),
        *("-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"),
        *(f"{user}@localhost", f"sh -c {shlex.quote(line)}"),
    ],
}


def _service(*command: str) -> list[str]:
    words = [word.replace("$", "$$") for word in command]  # systemd has variables of its own
    return ["systemd-run", "--quiet", "--pipe", "--wait", "--collect", *words]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in this directory; the hook is called for the whole session."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.server)
            item.add_marker(pytest.mark.timeout(240))


@pytest.fixture(autouse=True)
def _on_the_server(need_kernel: Callable[[object, str], None]) -> None:
    need_kernel(
        os.environ.get("SANDBOX_GUEST") == "server",
        "this is not the server guest: use `scripts/guest server test`",
    )


@pytest.fixture(scope="session")
def as_root() -> None:
    """Skip where the suite runs as a plain user: another run of it is root's."""
    if os.geteuid() != 0:
        pytest.skip("root's part of the suite")


@pytest.fixture(scope="session")
def as_alice() -> None:
    """Skip where the suite runs as another user: another run of it is alice's."""
    if os.environ["USER"] != "alice":
        pytest.skip("alice's part of the suite")


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run() -> Run:
    """`run("docker", "ps")` runs a command with a time-out; `fails=True` if its failure is fine."""

    def command(*words: str | Path, fails: bool = False) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(word) for word in words],
            capture_output=True,
            text=True,
            timeout=STARTING_SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert fails or done.returncode == 0, f"{words}: {done.returncode}\n{done.stderr}"
        return done

    return command


@pytest.fixture
def run_as(as_root: None, run: Run, request: pytest.FixtureRequest) -> Run:
    """`run_as("alice", "su -", "id -un")` runs a shell's line as a user, come to in one of WAYS."""

    def command(user: str, way: str, line: str, **options: bool) -> object:
        if way == "ssh":
            request.getfixturevalue("ssh_server")
        return run(*WAYS[way](user, line), **options)

    return command


@dataclass(frozen=True)
class Ran:
    """One run, as its result and its program tell it."""

    status: int
    stdout: str
    stderr: str
    result: dict[str, Any]

    @property
    def limits(self) -> dict[str, dict[str, Any]]:
        return {limit["name"]: limit for limit in self.result["limits"]}

    @property
    def states(self) -> dict[str, str]:
        return {name: limit["state"] for name, limit in self.limits.items()}


def _line_of(options: str, command: str) -> str:
    """A shell's line that runs a command in the sandbox, and prints the result after it."""
    return (
        "cd /; d=$(mktemp -d); export SANDBOX_HOME=$d/home; "
        f"sandbox run -q -o $d/r.json {options} -- {command}; "
        "s=$?; echo; echo STATUS=$s; cat $d/r.json 2>/dev/null; rm -rf $d"
    )


def _read(done: subprocess.CompletedProcess[str]) -> Ran:
    """Take apart what a line of `line_of` has printed."""
    stdout, found, rest = done.stdout.rpartition("\nSTATUS=")
    assert found, done.stderr
    status, _, text = rest.partition("\n")
    return Ran(int(status), stdout, done.stderr, json.loads(text) if text.strip() else {})


@pytest.fixture
def line_of() -> Callable[[str, str], str]:
    """`line_of("-m 64m", "true")` is a shell's line for one run, to be run in some other way."""
    return _line_of


@pytest.fixture
def read() -> Callable[[subprocess.CompletedProcess[str]], Ran]:
    """`read(done)` takes apart what such a line has printed."""
    return _read


@pytest.fixture
def sandbox_as(run_as: Run) -> Callable[..., Ran]:
    """`sandbox_as("alice", "su -", "--cpus 1", "true")` is one run of a user."""

    def one(user: str, way: str, options: str, command: str) -> Ran:
        return _read(run_as(user, way, _line_of(options, command), fails=True))

    return one


@pytest.fixture(scope="session")
def ssh_server() -> Iterator[None]:
    """Let root in as alice and bob."""
    key = Path("/root/.ssh/id_ed25519")
    key.parent.mkdir(mode=0o700, exist_ok=True)
    if not key.exists():
        _must("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    for user in ("alice", "bob"):
        directory = f"/home/{user}/.ssh"
        _must("install", "-d", "-o", user, "-g", user, "-m", "700", directory)
        source, target = str(key.with_suffix(".pub")), f"{directory}/authorized_keys"
        _must("install", "-o", user, "-g", user, "-m", "600", source, target)
    _must("systemctl", "start", "ssh.service")
    yield
    _must("systemctl", "stop", "ssh.service")


@pytest.fixture(scope="session")
def docker_image(as_root: None, image_archive: Path) -> Iterator[str]:
    """The tiny image, known to a Docker Engine that runs."""
    _must("systemctl", "start", "docker.service")
    yield _must("docker", "import", str(image_archive)).strip()
    _must("systemctl", "stop", "docker.service", "docker.socket", "containerd.service")


@pytest.fixture(scope="session")
def podman_image(as_alice: None, image_archive: Path) -> Iterator[str]:
    """The tiny image, known to alice's podman, whose process that holds her namespace runs."""
    yield _must("podman", "import", str(image_archive)).strip()
    _must("podman", "system", "migrate")


def _must(*words: str) -> str:
    return subprocess.run(
        words,
        check=True,
        timeout=STARTING_SECONDS,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


@pytest.fixture(scope="session")
def image_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny image's archive: busybox, and where a container can mount this machine's /usr."""
    archive = tmp_path_factory.mktemp("image") / "image.tar"
    with tarfile.open(archive, "w") as tar:
        for name in ("usr", "box", "opt", "tmp", "proc", "sys", "dev", "project"):
            directory = tarfile.TarInfo(name)
            directory.type, directory.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(directory)
        for name, target in (("lib", "usr/lib"), ("lib64", "usr/lib64"), ("bin", "usr/bin")):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
        content = BUSYBOX.read_bytes()
        program = tarfile.TarInfo("box/busybox")
        program.size, program.mode = len(content), 0o755
        tar.addfile(program, io.BytesIO(content))
    archive.chmod(0o644)
    return archive
