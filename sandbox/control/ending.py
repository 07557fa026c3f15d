"""Ending a live sandbox, signalling it, and waiting for its end."""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import suppress
from pathlib import Path

from sandbox.control.naming import Names
from sandbox.control.request import DeafError, EndedError, ask
from sandbox.control.running import RunningSandbox, is_live
from sandbox.errors import KernelError, SandboxError, StoreError
from sandbox.kernel import v2
from sandbox.kernel.processes import find_state
from sandbox.kernel.roots import Roots
from sandbox.store.reading import load

_KILL_PATIENCE_SEC = 10.0
_LOOK_SEC = 0.05


def send_signal(sandbox: RunningSandbox, number: int) -> None:
    """Send a signal to the program; SIGKILL ends the whole tree, and is waited for.

    SIGKILL does without the supervisor if that is stopped or out of reach: the kernel has the
    group. Without a group the supervisor itself is killed, and its keeper ends the rest.

    Raises:
        SandboxError: the run has ended, or the signal cannot be sent.
    """
    try:
        ask(sandbox, {"act": "signal", "signal": number})
    except DeafError:
        if number != signal.SIGKILL:
            raise
        _kill_alone(sandbox)
        return
    if number == signal.SIGKILL:
        wait_until_over(sandbox, _KILL_PATIENCE_SEC)


def _kill_alone(sandbox: RunningSandbox) -> None:
    if sandbox.v2 is None:
        if sandbox.supervisor_pid is None:
            raise KernelError(
                f"cannot kill {sandbox.called}: it has no group, and its supervisor is not seen"
            )
        try:
            os.kill(sandbox.supervisor_pid, signal.SIGKILL)
        except OSError as exc:
            raise KernelError.from_os(
                exc, doing="kill", path=f"process {sandbox.supervisor_pid}"
            ) from exc
    elif sandbox.v1:
        from sandbox.kernel.hybrid_counters import RunGroups
        from sandbox.kernel.hybrid_kill import kill_all

        kill_all(RunGroups(v2=sandbox.v2, v1=sandbox.v1), None, Roots())
    else:
        v2.kill(sandbox.v2)


def ask_to_stop(
    sandbox: RunningSandbox, *, number: int | None = None, grace_ns: int | None = None
) -> None:
    """Have a run end: its stop signal first, and SIGKILL for what is left after its grace.

    None takes what the run was started with; a negative grace waits for as long as it takes.

    Raises:
        SandboxError: its supervisor cannot be asked. That it has ended meanwhile is no error.
    """
    with suppress(EndedError):
        ask(sandbox, {"act": "stop", "signal": number, "grace_ns": grace_ns})


def wait_until_over(sandbox: RunningSandbox, timeout_sec: float | None = None) -> bool:
    """Return whether a run is over, its record whole and its name free, within a time.

    Raises:
        DeafError: its supervisor was stopped, so nothing will happen any more.
    """
    deadline = None if timeout_sec is None else time.monotonic() + timeout_sec
    pidfd = _open(sandbox.supervisor_pid)
    try:
        while is_live(sandbox):
            if deadline is not None and time.monotonic() > deadline:
                return False
            if sandbox.supervisor_pid is not None and find_state(sandbox.supervisor_pid) == "T":
                raise DeafError(
                    f"the supervisor of {sandbox.called} is stopped, as by ^Z",
                    hint=f"`kill -CONT {sandbox.supervisor_pid}` lets it go on",
                )
            _pause(pidfd)
    finally:
        if pidfd is not None:
            os.close(pidfd)
    return True


def _open(pid: int | None) -> int | None:
    if pid is not None:
        with suppress(OSError):
            return os.pidfd_open(pid)
    return None


def _pause(pidfd: int | None) -> None:
    """Wait for the supervisor's end, though not for long: it may have other runs to look after."""
    if pidfd is None:
        time.sleep(_LOOK_SEC)
        return
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    if poll.poll(_LOOK_SEC * 1_000):
        time.sleep(0.001)  # its lock goes with it


def wait_for_status(asked: str, names: Names) -> int:
    """Wait for the end of a run and return what `sandbox run` exits with; at once if it is over.

    Raises:
        SandboxError: there is no such run, or its status was lost or is not ours to see.
    """
    sandbox = names.find(asked)
    directory: Path | str = asked
    if sandbox is not None:
        wait_until_over(sandbox)
        if sandbox.directory is None:
            raise StoreError(
                f"{asked} is over; only {sandbox.owner}, whose it was, has its exit status"
            )
        directory = sandbox.directory
    stored = load(directory) if isinstance(directory, Path) else names.stored(directory)
    code = stored.result.exit_code
    if code is None:
        raise SandboxError(f"{asked} has no exit status: {stored.result.reason or 'unknown'}")
    return code
