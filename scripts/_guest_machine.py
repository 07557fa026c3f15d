"""Start the server guest's emulated machine; used by scripts/_guest_server.

`save IMAGE VERSION` boots it once on a kernel until it is ready for a job, and keeps its memory and
disk. `run IMAGE VERSION JOB SECONDS` goes on from there with JOB as its directory /job, prints what
JOB/output gets, and exits with what JOB/status says. Neither leaves a process. A machine that hangs
before it is ready, or before it has begun its job, is ended, and one more is tried.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn, TypeVar

BOOT_SECONDS = int(os.environ.get("SANDBOX_GUEST_BOOT_TIMEOUT", "300"))
RESUME_SECONDS = min(BOOT_SECONDS, 120)
SAVE_SECONDS = 120
POLL_SECONDS = 0.05
OUT_OF_TIME = 124  # as timeout(1) says it
Result = TypeVar("Result")
KERNEL_OPTIONS = (
    "console=ttyS0 quiet panic=-1 root=/dev/vda rw fsck.mode=skip mitigations=off psi=1"
)


def machine(directory: Path, version: str, job: Path, threads: str, *more: str) -> list[str]:
    """Return the command of a machine; the one that goes on must be as the one that was saved.

    With `multi` threads its processors run at once. A kernel patches itself when a feature is first
    used, and while it boots most are: now and then an emulated processor then misses that another
    has changed its code, and both spin for ever. With a `single` one they take turns.
    """
    return [
        *("setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64"),
        *("-machine", "q35", "-accel", f"tcg,thread={threads}", "-cpu", "max,la57=off"),
        *("-smp", "2", "-m", "4G", "-nodefaults", "-no-reboot", "-display", "none"),
        *("-serial", f"file:{job}/console", "-serial", "chardev:line"),
        *("-chardev", f"socket,id=line,path={job}/line,server=on,wait=off"),
        *("-kernel", f"{directory}/vmlinuz-{version}", "-initrd", f"{directory}/initrd-{version}"),
        *("-append", KERNEL_OPTIONS, "-qmp", f"unix:{job}/qmp,server=on,wait=off"),
        *("-virtfs", f"local,path={job},mount_tag=job,security_model=none"),
        *("-virtfs", f"local,path={job}/project,mount_tag=project,security_model=none,readonly=on"),
        *more,
    ]


def disk(file: Path, *options: str) -> list[str]:
    return ["-drive", ",".join((f"file={file}", "format=raw,if=virtio,cache=unsafe", *options))]


@contextlib.contextmanager
def started(command: list[str], job: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a machine for as long as the block lasts."""
    with (job / "qemu").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def fail(problem: str, job: Path, status: int = 1) -> NoReturn:
    """Say what went wrong and the last that the machine said, and end."""
    report(problem, job)
    sys.exit(status)


def report(problem: str, job: Path) -> None:
    for name in ("qemu", "console"):
        text = (job / name).read_bytes() if (job / name).exists() else b""
        sys.stderr.buffer.write(text[-3000:])
    print(f"scripts/guest: {problem}", file=sys.stderr, flush=True)


def connect(path: Path, process: subprocess.Popen[bytes]) -> socket.socket:
    """Connect to a socket that a machine is about to make."""
    deadline = time.monotonic() + RESUME_SECONDS
    while True:
        line = socket.socket(socket.AF_UNIX)
        line.settimeout(RESUME_SECONDS)
        try:
            line.connect(str(path))
        except OSError:
            line.close()
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(POLL_SECONDS)
        else:
            return line


# --- boot once ------------------------------------------------------------------------------------


def save(directory: Path, version: str) -> None:
    """Boot a machine and keep it as `state-VERSION` and `disk-VERSION`."""
    job, state = directory / f"boot-{version}", directory / f"state-{version}"
    (job / "project").mkdir(parents=True)
    own_disk = directory / f"disk-{version}"
    command = machine(directory, version, job, "single", *disk(own_disk))

    def boot() -> None:
        own_disk.unlink(missing_ok=True)  # one that still runs keeps its own
        subprocess.run(["cp", "--sparse=always", directory / "image", own_disk], check=True)
        with started(command, job) as process:
            with connect(job / "line", process) as line:
                wait_for_word(line, b"ready")
            with connect(job / "qmp", process) as monitor:
                save_state(monitor, directory / "state.new")

    twice(boot, "boot", job)
    (directory / "state.new").rename(state)
    subprocess.run(["rm", "-r", job], check=True)


def twice(attempt: Callable[[], Result], what: str, job: Path) -> Result:
    """Return what the attempt comes to, or a second one: an emulated machine hangs now and then."""
    try:
        return attempt()
    except OSError as error:
        report(f"the guest did not {what} ({error}): trying once more", job)
    try:
        return attempt()
    except OSError as error:
        fail(f"the guest did not {what} again: {error}", job)


def wait_for_word(line: socket.socket, word: bytes) -> None:
    """Read until the guest has said a word."""
    said, deadline = b"", time.monotonic() + BOOT_SECONDS
    while word not in said:
        line.settimeout(max(0.1, deadline - time.monotonic()))
        more = line.recv(4096)
        if not more:
            raise ConnectionError("the machine ended")
        said += more


def save_state(monitor: socket.socket, file: Path) -> None:
    """Have a machine stop and write its memory to a file."""
    monitor.settimeout(SAVE_SECONDS)
    answers = monitor.makefile("r")

    def ask(command: str, **arguments: object) -> dict[str, object]:
        monitor.sendall(json.dumps({"execute": command, "arguments": arguments}).encode())
        for answer in map(json.loads, answers):
            if "error" in answer:
                raise OSError(f"{command}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]
        raise ConnectionError("the machine ended")

    ask("qmp_capabilities")
    ask("migrate-set-parameters", **{"max-bandwidth": 1 << 34})
    ask("migrate", uri=f"exec:cat >'{file}'")
    deadline = time.monotonic() + SAVE_SECONDS
    while (status := ask("query-migrate")["status"]) != "completed":
        if status in {"failed", "cancelled"} or time.monotonic() > deadline:
            raise OSError(f"its memory could not be kept: {status}")
        time.sleep(POLL_SECONDS)
    ask("quit")


# --- go on with a job -----------------------------------------------------------------------------


def run(directory: Path, version: str, job: Path, limit_seconds: float) -> int:
    """Give a machine its job, and return the status of that."""
    # What it writes to its disk is in a file without a name, and goes with it.
    state = f"exec:cat '{directory}/state-{version}'"
    own_disk = disk(directory / f"disk-{version}", "snapshot=on")
    command = machine(directory, version, job, "multi", *own_disk, "-incoming", state)
    with contextlib.ExitStack() as until_done:

        def go_on() -> subprocess.Popen[bytes]:
            (job / "now").write_text(f"{time.time()}\n")
            with contextlib.ExitStack() as until_begun:
                process = until_begun.enter_context(started(command, job))
                with connect(job / "line", process) as line:
                    _send_off(line, job, process)
                until_done.push(until_begun.pop_all())
            return process

        process = twice(go_on, "go on", job)
        with (job / "output").open("rb") as output:
            is_done = _follow(process, job, limit_seconds, lambda: _copy(output.read()))
    if not is_done:
        fail(f"the guest's command was not done in {limit_seconds:g} s", job, OUT_OF_TIME)
    if not (job / "status").exists():
        fail("the guest ended before its command", job)
    return int((job / "status").read_text())


def _send_off(line: socket.socket, job: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + RESUME_SECONDS
    while not (job / "started").exists():
        if process.poll() is not None:
            raise ConnectionError("the machine ended")
        if time.monotonic() > deadline:
            raise TimeoutError(f"no answer in {RESUME_SECONDS} s")
        line.sendall(b"go\n")  # lost while the machine reads its memory
        time.sleep(POLL_SECONDS * 4)


def _follow(
    process: subprocess.Popen[bytes], job: Path, limit_seconds: float, show: Callable[[], None]
) -> bool:
    """Show the output until the command has ended, or the machine; False if it took too long."""
    deadline = time.monotonic() + limit_seconds
    is_over = False
    while not is_over and time.monotonic() < deadline:
        is_over = (job / "status").exists() or process.poll() is not None
        show()
        time.sleep(0 if is_over else POLL_SECONDS)
    return is_over


def _copy(output: bytes) -> None:
    sys.stdout.buffer.write(output)
    sys.stdout.buffer.flush()


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    step, directory, version, *rest = sys.argv[1:]
    if step == "save":
        save(Path(directory), version)
        return 0
    job, limit_seconds = rest
    try:
        return run(Path(directory), version, Path(job), float(limit_seconds))
    except BrokenPipeError:  # the reader of our output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 128 + signal.SIGPIPE


if __name__ == "__main__":
    sys.exit(main())
