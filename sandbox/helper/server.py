"""The helper process: small, single-threaded, warm; its children supervise one run at a time.

A big parent makes fork slow, its threads make fork unsafe, and its GIL would disturb every tick;
so programs are launched and sampled from here. A supervisor that has ended its run waits for the
next: to fork one for each run would copy a thousand pages each time. All end with their client.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
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

_MOST_IDLE = 4


def serve(control_fd: int) -> NoReturn:
    """Take requests until the client has gone."""
    # The terminal's signals are for the program; the client tells us when to stop it.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the supervisors
    gc.disable()  # what is imported here is no garbage
    for name in ("engine.conclude", *MODULES[find_place(Roots()).mode]):
        import_module(f"sandbox.{name}")
    gc.freeze()  # nor need a supervisor look at it, which would copy every page of it
    gc.enable()
    _Desk(socket.socket(fileno=control_fd)).serve()


class _Desk:
    """Hands each request to a supervisor that is idle, or to a new one."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._supervisors: dict[int, socket.socket] = {}
        self._idle: list[socket.socket] = []
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)

    def serve(self) -> NoReturn:
        """Take requests until the client has gone; then the supervisors see the end as well."""
        while True:
            ready = {fd for fd, _ in self._poll.poll()}
            for fd in ready & self._supervisors.keys():
                self._hear(self._supervisors[fd])
            if self._control.fileno() in ready:
                message, fds, _, _ = socket.recv_fds(self._control, 1, DESCRIPTORS)
                if not message:
                    os._exit(0)
                if len(fds) == DESCRIPTORS:
                    self._assign(fds)
                for fd in fds:
                    os.close(fd)

    def _hear(self, supervisor: socket.socket) -> None:
        """Take one that is idle, or let it go: it has ended, or there are enough."""
        with suppress(OSError):
            if supervisor.recv(1) and len(self._idle) < _MOST_IDLE:
                self._idle.append(supervisor)
                return
        self._let_go(supervisor)

    def _let_go(self, supervisor: socket.socket) -> None:
        if supervisor in self._idle:
            self._idle.remove(supervisor)
        del self._supervisors[supervisor.fileno()]
        self._poll.unregister(supervisor)
        supervisor.close()

    def _assign(self, fds: Sequence[int]) -> None:
        while self._idle:
            supervisor = self._idle[-1]
            try:
                socket.send_fds(supervisor, [b"r"], fds)
            except OSError:  # it was killed meanwhile
                self._let_go(supervisor)
            else:
                self._idle.pop()
                return
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            for connection in (self._control, ours, *self._supervisors.values()):
                connection.close()
            _supervise(theirs, fds)
        theirs.close()
        self._supervisors[ours.fileno()] = ours
        self._poll.register(ours, select.POLLIN)


def _supervise(desk: socket.socket, fds: Sequence[int]) -> NoReturn:
    """Serve one conversation after the other; never return."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        while len(fds) == DESCRIPTORS:
            _serve_client(desk, null, *fds)
            if threading.active_count() > 1:
                break  # one is stuck in a copy that nobody reads; a fork beside it is not safe
            _, fds, _, _ = socket.recv_fds(desk, 1, DESCRIPTORS)
    finally:
        os._exit(0)


def _serve_client(  # noqa: PLR0913, PLR0917 - as they were sent
    desk: socket.socket, null: int, talk_fd: int, stdin: int, stdout: int, stderr: int, cwd: int
) -> None:
    """Run one spec, be free, and answer with its result."""
    os.fchdir(cwd)
    _take_stdio(stdin, stdout, stderr)
    for fd in (stdin, stdout, stderr, cwd):
        os.close(fd)
    with socket.socket(fileno=talk_fd) as talk:
        message = receive_message(talk)
        answer = {} if message is None else _answer(message, talk.fileno())
        # Hold nothing of the client's while idle; and be known as idle before it can ask again.
        _take_stdio(null, null, null)
        os.chdir("/")
        desk.send(b"i")
        with suppress(OSError):  # the client has gone, so nobody wants the answer
            send_message(talk, answer)


def _take_stdio(*fds: int) -> None:
    for place, fd in enumerate(fds):
        os.dup2(fd, place)


def _answer(message: dict[str, Any], stop_fd: int) -> dict[str, Any]:
    os.environb.clear()
    os.environb.update(message["environ"])
    os.umask(message["umask"])
    around = Surroundings(stop_fd=stop_fd, keep_descriptors=False, signals=message["signals"])
    try:
        return {"result": run(message["spec"], around)}
    except SandboxError as error:
        return {
            "error": str(error),
            "hint": error.hint,
            "kind": type(error).__name__,
            "exit_code": error.exit_code,
        }
