"""The known loads use what they say: the accuracy tests stand on them."""

from __future__ import annotations

import os
import pty
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

Load = Callable[..., list[str]]


def usage(command: list[str]) -> resource.struct_rusage:
    """Return what one process, with the children it waited for, used."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used


def cpu_seconds(used: resource.struct_rusage) -> float:
    return used.ru_utime + used.ru_stime


def test_burn_uses_the_cpu_time_asked_for(load: Load) -> None:
    usage(load("burn", 0))  # the first start reads files
    idle = cpu_seconds(usage(load("burn", 0)))

    assert cpu_seconds(usage(load("burn", 0.5))) - idle == pytest.approx(0.5, abs=0.05)


def test_touch_holds_private_memory_page_by_page(load: Load) -> None:
    def anonymous_kib(mebibytes: int) -> int:
        command = load("touch", mebibytes, 30)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "touched\n"
                status = Path(f"/proc/{process.pid}/status").read_text()
            finally:
                process.kill()
        return int(status.partition("RssAnon:")[2].split()[0])

    assert anonymous_kib(48) - anonymous_kib(0) == pytest.approx(48 * 1024, abs=512)


def test_direct_write_writes_every_byte_and_refuses_an_odd_size(load: Load, tmp_path: Path) -> None:
    target = tmp_path / "block"

    written = usage(load("direct_write", target, 256))

    assert target.stat().st_size == 256 * 1024
    # In units of 512 bytes: it reached the device, and beside it the file system's own notes.
    assert 256 * 2 <= written.ru_oublock < 256 * 2 + 128
    odd = subprocess.run(
        load("direct_write", target, 3), check=False, timeout=20, capture_output=True
    )
    assert odd.returncode == 1


def test_the_fork_bomb_is_bounded_and_counts(load: Load) -> None:
    done = subprocess.run(
        load("fork_bomb", 25), check=True, timeout=20, capture_output=True, text=True
    )

    assert done.stdout == "allowed 25 refused 0\n"


def test_the_daemon_outlives_its_parents_in_a_session_of_its_own(load: Load) -> None:
    done = subprocess.run(
        load("daemonize", 30), check=True, timeout=20, capture_output=True, text=True
    )
    daemon = int(done.stdout)
    try:
        assert os.getsid(daemon) not in {os.getsid(0), daemon}
        assert os.getpgid(daemon) != os.getpgid(0)
    finally:
        os.kill(daemon, signal.SIGKILL)


def test_ignore_signals_survives_them(load: Load) -> None:
    with subprocess.Popen(load("ignore_signals", 30), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
                process.send_signal(number)
            time.sleep(0.2)
            assert process.poll() is None
        finally:
            process.kill()


def test_threads_burns_on_several_cpus_and_waits_for_all(load: Load) -> None:
    used = cpu_seconds(usage(load("threads", 2, 0.4)))

    # It burns wall-clock time: how much CPU time that is depends on who else is running.
    assert 0 < used < 1.2


def test_tty_tells_a_terminal_from_a_pipe(load: Load) -> None:
    piped = subprocess.run(
        load("tty"),
        check=True,
        timeout=20,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert piped.stdout == "stdin=False stdout=False stderr=False\n"

    pid, terminal = pty.fork()
    if pid == 0:
        command = load("tty")
        os.execv(command[0], command)
    try:
        os.waitpid(pid, 0)
        said = os.read(terminal, 4096).decode().split()
    finally:
        os.close(terminal)
    assert said == ["stdin=True", "stdout=True", "stderr=True", "foreground=True"]
