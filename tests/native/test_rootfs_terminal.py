"""A terminal of the program's own, in a root file system of its own: driven as a user drives it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shutil
import struct
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

DEADLINE_SEC = 20
AGAIN_SEC = 2

pytestmark = pytest.mark.both


@pytest.fixture
def rootfs(tmp_path: Path) -> Path:
    if os.geteuid() != 0:
        pytest.skip("namespaces without a user namespace need root")
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("busybox-static is not installed")
    (tmp_path / "box/bin").mkdir(parents=True)
    shutil.copy(busybox, tmp_path / "box/bin/busybox")
    for name in ("sh", "tty", "stty", "sleep", "cat"):
        (tmp_path / "box/bin" / name).symlink_to("busybox")
    return tmp_path / "box"


Session = Callable[..., tuple[str, int, list[object], list[object]]]


@pytest.fixture
def session(rootfs: Path, sandbox_home: Path) -> Session:
    """`session("script", keys)` types `keys` once the script has said `up`."""

    def run(script: str, keys: bytes = b"") -> tuple[str, int, list[object], list[object]]:
        master, slave = pty.openpty()
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
        before = termios.tcgetattr(slave)
        words = [sys.executable, "-m", "sandbox", "run", "-q", "--rootfs", str(rootfs)]
        pid = os.fork()
        if pid == 0:
            try:
                _login(slave)
                os.execv(words[0], [*words, "--", "sh", "-c", script])
            finally:
                os._exit(99)
        try:
            said, status = _talk(master, pid, keys)
            return said, status, before, termios.tcgetattr(slave)
        finally:
            os.close(slave)
            os.close(master)

    return run


def _login(slave: int) -> None:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for fd in range(3):
        os.dup2(slave, fd)


def _talk(master: int, pid: int, keys: bytes) -> tuple[str, int]:
    said = b""
    deadline = time.monotonic() + DEADLINE_SEC
    again = 0.0
    ended = 0
    while not ended and time.monotonic() < deadline:
        # A shell loses a key that is pressed just before it becomes another program: once more.
        if keys and b"up\r\n" in said and time.monotonic() >= again:
            os.write(master, keys)
            again = time.monotonic() + AGAIN_SEC
        if select.select([master], [], [], 0.02)[0]:
            said += os.read(master, 4096)
            continue
        ended, status = os.waitpid(pid, os.WNOHANG)
    if not ended:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        pytest.fail(f"it did not end: {said!r}")
    return said.decode(), os.waitstatus_to_exitcode(status)


def test_the_terminal_has_a_name_inside_and_the_size_of_ours(session: Session) -> None:
    said, status, before, after = session("tty; stty size; echo up; read x; exit $x", b"4\n")

    assert "/dev/pts/0\r\n33 99\r\nup\r\n" in said
    assert status == 4
    assert after == before


def test_an_interrupt_key_ends_a_program_that_handles_none(session: Session) -> None:
    _, status, before, after = session("echo up; exec sleep 60", b"\x03")

    assert status == 130
    assert after == before


def test_an_interrupt_key_reaches_the_handler_of_a_program(session: Session) -> None:
    script = "trap 'echo heard; exit 7' INT; echo up; while true; do sleep 0.02; done"

    said, status, _, _ = session(script, b"\x03")

    assert "heard" in said
    assert status == 7


@pytest.mark.slow
def test_much_output_and_the_last_word_of_it_arrive(session: Session) -> None:
    script = "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done; echo last"

    said, status, _, _ = session(script)

    assert status == 0
    assert said.endswith("line 2999\r\nlast\r\n")
