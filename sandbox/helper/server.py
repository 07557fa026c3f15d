"""The helper process: small, single-threaded, warm; it forks one supervisor a run.

A big parent makes fork slow, its threads make fork unsafe, and its GIL would disturb every tick;
so the program is launched and sampled from here. It ends when its client has gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from importlib import import_module
from typing import Any, NoReturn

from sandbox.engine.order import Surroundings, run
from sandbox.errors import SandboxError
from sandbox.helper.protocol import receive_message, send_message
from sandbox.kernel.backend import MODULES
from sandbox.kernel.place import find_place
from sandbox.kernel.roots import Roots

DESCRIPTORS = 5
"""The conversation, stdin, stdout, stderr and the directory to start in."""


def serve(control_fd: int) -> NoReturn:
    """Take requests until the client has gone."""
    control = socket.socket(fileno=control_fd)
    # The terminal's signals are for the program; the client tells us when to stop it.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the supervisors
    _import_what_a_run_needs()
    is_first = True
    while True:
        message, fds, _, _ = socket.recv_fds(control, 1, DESCRIPTORS)
        if not message:
            os._exit(0)
        if len(fds) == DESCRIPTORS and os.fork() == 0:
            control.close()
            _supervise(*fds)
        for fd in fds:
            os.close(fd)
        if is_first:
            is_first = False
            import_module("cgroupspy.controllers")  # what only some runs need, while one goes on


def _import_what_a_run_needs() -> None:
    """Pay for lazy imports now rather than in each supervisor."""
    for name in ("engine.conclude", *MODULES[find_place(Roots()).mode]):
        import_module(f"sandbox.{name}")


def _supervise(talk_fd: int, stdin: int, stdout: int, stderr: int, cwd: int) -> NoReturn:
    """Run one spec and answer with its result; never return."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.fchdir(cwd)
        os.close(cwd)
        for fd, place in ((stdin, 0), (stdout, 1), (stderr, 2)):
            os.dup2(fd, place)
            os.close(fd)
        with socket.socket(fileno=talk_fd) as talk:
            _answer(talk)
    finally:
        os._exit(0)


def _answer(talk: socket.socket) -> None:
    message = receive_message(talk)
    if message is None:
        return
    os.environb.clear()
    os.environb.update(message["environ"])
    os.umask(message["umask"])
    try:
        result = run(
            message["spec"],
            Surroundings(stop_fd=talk.fileno(), keep_descriptors=False),
        )
        answer: dict[str, Any] = {"result": result}
    except SandboxError as error:
        answer = {
            "error": str(error),
            "hint": error.hint,
            "kind": type(error).__name__,
            "exit_code": error.exit_code,
        }
    with contextlib.suppress(OSError):  # the client has gone, so nobody wants the answer
        send_message(talk, answer)
