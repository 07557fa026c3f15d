"""`sandbox.run` from Python: the same runs, launched and sampled by a helper process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sandbox
from sandbox import errors
from sandbox.helper import client

pytestmark = pytest.mark.usefixtures("sandbox_home")
both = pytest.mark.both

MIB = 1 << 20


def python(source: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", source]


@pytest.fixture(autouse=True)
def _no_helper_stays() -> Any:
    """Every test has a helper of its own, which ends with it."""
    yield
    client._helper.close()


@both
def test_a_run_returns_what_the_program_used() -> None:
    result = sandbox.run(python("x = bytearray(32 << 20)"), cpus=1, memory="64m")

    assert result.outcome is sandbox.Outcome.EXITED
    assert result.exit_code == 0
    assert result.totals.memory_peak_bytes is not None
    assert 32 * MIB <= result.totals.memory_peak_bytes <= 64 * MIB
    assert result.totals.cpu_usage_usec
    assert sandbox.load(result.run_id).result == result


def test_a_failing_program_is_a_result_unless_checked() -> None:
    assert sandbox.run(["sh", "-c", "exit 3"]).exit_code == 3

    with pytest.raises(sandbox.SandboxError, match="exited 3"):
        sandbox.run(["sh", "-c", "exit 3"], check=True)


@both
def test_errors_are_the_classes_that_were_raised_and_carry_their_hints() -> None:
    with pytest.raises(errors.LaunchError) as not_found:
        sandbox.run(["no-such-program"])
    assert not_found.value.exit_code == 127

    with pytest.raises(errors.HostError) as too_many:
        sandbox.run(["true"], cpus=4096)
    assert too_many.value.hint

    with pytest.raises(errors.SpecError):
        sandbox.run(["true"], memory="2x")
    with pytest.raises(errors.SpecError, match="twice"):
        sandbox.run(["true"], cpus=1, limits=sandbox.Limits(cpus=1))


def test_streams_directory_and_environment_are_the_callers(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with out.open("w") as stdout, (tmp_path / "in").open("w+") as stdin:
        stdin.write("from stdin")
        stdin.seek(0)
        result = sandbox.run(
            ["sh", "-c", 'pwd; cat; echo " $GIVEN"'],
            cwd=tmp_path,
            env={"GIVEN": "value"},
            stdin=stdin,
            stdout=stdout,
        )

    assert result.exit_code == 0
    assert out.read_text() == f"{tmp_path}\nfrom stdin value\n"


def test_captured_output_is_in_the_run_directory() -> None:
    result = sandbox.run(["sh", "-c", "echo out; echo err >&2"], capture=True)

    assert result.directory is not None
    assert Path(result.directory, "stdout").read_text() == "out\n"
    assert Path(result.directory, "stderr").read_text() == "err\n"


def test_environment_values_reach_no_file() -> None:
    result = sandbox.run(["true"], env={"TOKEN": "s3cr3t-value"})

    assert result.spec["environment"] == ["TOKEN"]
    assert result.directory is not None
    for file in Path(result.directory).iterdir():
        assert b"s3cr3t-value" not in file.read_bytes()


def test_runs_of_several_threads_go_on_at_once() -> None:
    results: list[sandbox.RunResult] = []
    start = time.monotonic()
    threads = [
        threading.Thread(target=lambda: results.append(sandbox.run(["sleep", "1"])))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [result.exit_code for result in results] == [0] * 4
    assert len({result.run_id for result in results}) == 4
    assert time.monotonic() - start < 3.5


def test_the_helper_is_replaced_when_it_was_killed_and_after_a_fork() -> None:
    sandbox.run(["true"])
    os.kill(client._helper.pid, signal.SIGKILL)
    time.sleep(0.1)
    assert sandbox.run(["true"]).exit_code == 0

    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = sandbox.run(["true"]).exit_code or 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert sandbox.run(["true"]).exit_code == 0


def parent_of(tmp_path: Path) -> str:
    """Return the pid of the supervisor of a run."""
    with (tmp_path / "parent").open("w+") as file:
        sandbox.run(["sh", "-c", "echo $PPID"], stdout=file)
        file.seek(0)
        return file.read()


def test_a_supervisor_takes_the_next_run_and_holds_nothing_of_the_last(tmp_path: Path) -> None:
    first = parent_of(tmp_path)
    reading, writing = os.pipe()
    sandbox.run(["echo", "hello"], stdout=writing, cwd=tmp_path)
    os.close(writing)

    assert os.read(reading, 100) == b"hello\n"
    assert os.read(reading, 100) == b""  # nobody else has it open
    os.close(reading)
    pid = int(first)
    assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
    assert {
        path.readlink() for path in Path(f"/proc/{pid}/fd").iterdir() if int(path.name) < 3
    } == {Path(os.devnull)}
    assert parent_of(tmp_path) == first


def test_a_supervisor_that_was_killed_while_idle_is_replaced(tmp_path: Path) -> None:
    first = parent_of(tmp_path)
    os.kill(int(first), signal.SIGKILL)
    time.sleep(0.1)

    assert parent_of(tmp_path) != first


def test_the_program_finds_the_callers_signals_and_limits(tmp_path: Path) -> None:
    lines = ("SigIgn", "SigBlk", "Umask", "Cpus_allowed:")

    def state(text: str) -> list[str]:
        # The two that glibc keeps for itself are ignored in whatever posix_spawn has started.
        own = text.replace("SigIgn:\t0000000180000000", "SigIgn:\t0000000000000000")
        return [line for line in own.splitlines() if line.startswith(lines)]

    direct = subprocess.run(
        ["cat", "/proc/self/status"], check=True, capture_output=True, text=True
    ).stdout
    with (tmp_path / "status").open("w+") as out:
        sandbox.run(["cat", "/proc/self/status"], stdout=out)
        out.seek(0)
        assert state(out.read()) == state(direct)


def test_a_timed_out_run_says_so() -> None:
    result = sandbox.run(["sleep", "30"], timeout=0.2)

    assert result.outcome is sandbox.Outcome.TIMED_OUT
    assert result.exit_code == 124


CALLER = """
import sys, sandbox
sandbox.run([sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(60)"])
"""


@both
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_end_of_the_caller_ends_the_run(
    number: signal.Signals, sandbox_home: Path, load: Callable[..., list[str]]
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CALLER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as caller:
        assert caller.stdout is not None
        assert caller.stdout.readline() == b"ready\n"
        (run,) = sandbox_home.glob("runs/*")
        groups = sandbox.load(run).result.groups
        caller.send_signal(number)
        caller.wait(timeout=20)
    end = time.monotonic() + 10
    while any(Path(group).exists() for group in groups):
        assert time.monotonic() < end, "the groups of the run are still there"
        time.sleep(0.01)
    assert sandbox.load(run).result.outcome is sandbox.Outcome.KILLED


def test_a_run_can_be_hardened(sandbox_home: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()

    script = f"touch {tmp_path}/outside; touch inside"
    result = sandbox.run(["sh", "-c", script], harden=True, cwd=work)

    assert result.exit_code == 0
    assert (work / "inside").exists()
    assert not (tmp_path / "outside").exists()
    assert result.spec["network"] == "none"
    assert {each.name for each in result.protections} >= {"mounts", "seccomp", "network"}
