"""Long commands that are asked to end: by ^C, by SIGINT or SIGTERM to the command alone."""

from __future__ import annotations

import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pytest

DEADLINE_SEC = 30
SANDBOX = (sys.executable, "-m", "sandbox")
ENV = "SCRIPT=sleeps.sh\nCOMMAND=sh\nDIR=.\nSAMPLETIME=1\nOUTPUTFILE=out.txt\n"

Begun = Callable[[], bool]


@pytest.fixture
def place(tmp_path: Path, sandbox_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands are executed: with a script that says that it has begun, and sleeps."""
    (tmp_path / "sleeps.sh").write_text(f"touch {tmp_path}/begun; exec sleep 1000\n")
    (tmp_path / "env.template").write_text(ENV)
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def wait_for(begun: Begun) -> None:
    deadline = time.monotonic() + DEADLINE_SEC
    while not begun():
        assert time.monotonic() < deadline, "it did not begin"
        time.sleep(0.02)


def is_one_line(said: str) -> bool:
    """Return whether the end is told once, and as a person would."""
    return len(re.findall("stopped by", said)) == 1 and "Traceback" not in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "words",
    [
        ("bench", "sh sleeps.sh"),
        ("budget", "--", "sh", "sleeps.sh"),
        ("sweep", "--cpus", "0.5,1", "--", "sh", "sleeps.sh"),
        ("sweep", "-j", "2", "--cpus", "0.5,1", "--", "sh", "sleeps.sh"),
    ],
    ids=" ".join,
)
def test_a_signal_ends_all_runs(place: Path, words: tuple[str, ...], number: int) -> None:
    with subprocess.Popen([*SANDBOX, *words], stderr=subprocess.PIPE, text=True) as process:
        wait_for((place / "begun").exists)
        process.send_signal(number)
        said = process.communicate(timeout=DEADLINE_SEC)[1]

    assert process.returncode == 128 + number, said
    assert is_one_line(said), said
    assert ("--resume" in said) is (words[0] == "sweep")


def at_a_terminal(words: tuple[str, ...], begun: Begun) -> tuple[int, str]:
    """Execute a command at a terminal, type ^C once it has begun; return status and output."""
    pid, master = pty.fork()
    if pid == 0:
        try:
            os.execv(sys.executable, [*SANDBOX, *words])
        finally:
            os._exit(99)
    try:
        wait_for(begun)
        os.write(master, b"\x03")
        said = b""
        with suppress(OSError):  # EIO: nobody is left at the other end
            while data := os.read(master, 65536):
                said += data
    finally:
        os.close(master)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said.decode()


@pytest.mark.parametrize(
    "words",
    [
        ("bench", "sh sleeps.sh", "sh sleeps.sh"),
        ("budget", "--", "sh", "sleeps.sh"),
        ("sweep", "--cpus", "0.5,1", "--", "sh", "sleeps.sh"),
        ("profile", "-e", "env.template", "-m", "first,second"),
    ],
    ids=lambda words: words[0],
)
def test_a_terminals_interrupt_begins_no_other_run(place: Path, words: tuple[str, ...]) -> None:
    """The program has got it from the terminal and is gone: the next one must not come."""
    status, said = at_a_terminal(words, (place / "begun").exists)

    assert status == 130, said
    assert "stopped by" in said
    assert "Traceback" not in said
    assert "second" not in said


def test_a_program_that_ends_well_is_no_reason_to_go_on(place: Path) -> None:
    (place / "sleeps.sh").write_text(
        f"trap 'exit 0' INT; touch {place}/begun; for i in $(seq 999); do sleep 0.1; done\n"
    )

    status, said = at_a_terminal(("bench", "sh sleeps.sh"), (place / "begun").exists)

    assert status == 130, said


def test_a_profile_is_resumed_after_a_signal(place: Path) -> None:
    words = [*SANDBOX, "profile", "-e", "env.template", "-m", "first"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_for((place / "begun").exists)
        process.send_signal(signal.SIGTERM)
        out, said = process.communicate(timeout=DEADLINE_SEC)

    assert process.returncode == 143
    assert out == b""  # no table of nothing
    assert said.endswith(b"sandbox: stopped by a signal; --resume goes on from here\n")


# --- images ---------------------------------------------------------------------------------------


@contextmanager
def silent_registry() -> Iterator[tuple[str, Begun]]:
    """Yield the address of a server that accepts and never answers, and whether it was asked."""
    asked = threading.Event()
    taken: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    taken.append(server.accept()[0])
                    asked.set()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}", asked.is_set
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in taken:
                connection.close()


def is_tidy(home: Path) -> bool:
    """Return whether nothing half-done is in the store of images."""
    return not any((home / "images/work").glob("*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_pull_is_ended(place: Path, sandbox_home: Path, number: int) -> None:
    with silent_registry() as (host, is_asked):
        words = [*SANDBOX, "image", "pull", "--insecure", host, f"{host}/a"]
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
            wait_for(is_asked)
            process.send_signal(number)
            said = process.communicate(timeout=DEADLINE_SEC)[1]

    assert process.returncode == 128 + number, said
    told, hint = said.splitlines()
    assert is_one_line(f"{told}\n"), said
    assert hint == f"hint: pull {host}/a again: it goes on with what was fetched"
    assert is_tidy(sandbox_home)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_loading_and_saving_are_ended(place: Path, sandbox_home: Path, number: int) -> None:
    def ended(words: list[str], begin: Callable[[IO[bytes]], None], **pipes: int) -> None:
        with subprocess.Popen([*SANDBOX, *words], stderr=subprocess.PIPE, **pipes) as process:
            begin(process.stdin or process.stdout)  # type: ignore[arg-type]
            process.send_signal(number)
            process.wait(DEADLINE_SEC)
            assert process.stderr is not None
            said = process.stderr.read().decode()
        assert process.returncode == 128 + number, said
        assert is_one_line(said), said
        assert is_tidy(sandbox_home)

    def give(pipe: IO[bytes]) -> None:
        for _ in range(64):  # more than the pipe holds: what comes after it is read
            pipe.write(bytes(1 << 14))
        pipe.flush()

    def take(pipe: IO[bytes]) -> None:
        assert pipe.read(1 << 12)

    ended(["image", "load", "-"], give, stdin=subprocess.PIPE)
    (place / "tree").mkdir()
    (place / "tree/file").write_bytes(os.urandom(1 << 22))
    words = [*SANDBOX, "image", "load", "-q", "-t", "big", "tree"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    ended(["image", "save", "big", "-o", "-"], take, stdout=subprocess.PIPE)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", ["run", "bench"])
def test_installing_packages_is_ended(
    place: Path, sandbox_home: Path, command: str, number: int
) -> None:
    with silent_registry() as (host, is_asked):
        index = {"UV_INDEX_URL": f"http://{host}/simple", "PIP_INDEX_URL": f"http://{host}/simple"}
        words = [*SANDBOX, command, "--pip", "nosuch", "--", "true"]
        environ = {**os.environ, **index}
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environ) as process:
            wait_for(is_asked)
            process.send_signal(number)
            said = process.communicate(timeout=DEADLINE_SEC)[1]

    assert process.returncode == 128 + number, said
    assert is_one_line(said), said
    assert not list(sandbox_home.glob("venvs/*.scratch"))
