"""Work on files by all the ids that a user has: as root of a user namespace with the ids lent."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress

from sandbox.kernel import libc, lifeline
from sandbox.kernel.namespaces import write_maps
from sandbox.records.enclosure import IdMap

_NEW_USER = 0x1000_0000
_MESSAGE_BYTES = 4096

Tell = Callable[[bytes], None]


def as_lent(ids: IdMap, work: Callable[[Tell], None], hear: Tell | None = None) -> bool:
    """Do some work in a child of ours that has these ids; return whether it came to its end.

    Args:
        ids: More than one user's, else there is no point.
        work: What the child does; what it tells, up to 4 KiB at a time, is heard here. It must not
            raise but for what may be lost.
        hear: Called with each message; what it raises ends the child.

    Raises:
        SandboxError: there can be no such namespace.
        OSError: likewise.
    """
    go_read, go_write = lifeline.open_pipe()
    say_read, say_write = os.pipe2(os.O_CLOEXEC | os.O_DIRECT)  # each write is one message
    try:
        pid, pidfd = libc.clone_into(None, _NEW_USER)
        if pid == 0:
            _be_worker(go_read, (go_write, say_read), say_write, work)
        status = -1
        try:
            os.close(say_write)
            say_write = -1
            write_maps(pid, ids)
            os.write(go_write, b"g")
            while message := os.read(say_read, _MESSAGE_BYTES):
                if hear is not None:
                    hear(message)
        except BaseException:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            raise
        finally:
            os.close(pidfd)
            _, status = os.waitpid(pid, 0)
        return status == 0
    finally:
        for fd in (go_read, go_write, say_read, say_write):
            if fd >= 0:
                os.close(fd)


def _be_worker(
    go_fd: int, others: tuple[int, int], say_fd: int, work: Callable[[Tell], None]
) -> None:
    status = 1
    try:
        lifeline.drop_all()
        for fd in others:
            os.close(fd)  # else their ends would never be seen
        if os.read(go_fd, 1) == b"g":
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
            work(lambda message: _tell(say_fd, message))
            status = 0
    finally:
        os._exit(status)


def _tell(fd: int, message: bytes) -> None:
    os.write(fd, message[:_MESSAGE_BYTES])
