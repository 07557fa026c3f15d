"""Opening sockets in another network namespace: a socket stays where it was made."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

from sandbox.kernel import libc, lifeline

_NEW_NETWORK = 0x4000_0000
_NEW_USER = 0x1000_0000


def _enter(fd: int, kind: int) -> None:
    library = ctypes.PyDLL(None, use_errno=True)
    if library.setns(fd, kind) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _enter_of(pid: int, name: str, kind: int) -> None:
    fd = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _enter(fd, kind)
    finally:
        os.close(fd)


@contextmanager
def inside(pid: int) -> Iterator[None]:
    """Have what is opened in the block belong to the network namespace of a process; for root.

    Raises:
        OSError: not allowed.
    """
    own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _enter_of(pid, "net", _NEW_NETWORK)
        try:
            yield
        finally:
            _enter(own, _NEW_NETWORK)
    finally:
        os.close(own)


def open_mailbox_inside(pid: int, name: bytes) -> int:
    """Do as `libc.open_mailbox` in the network namespace of a process, where its name is looked up.

    Raises:
        OSError: not allowed, or the name is taken.
    """
    if os.geteuid() == 0:
        with inside(pid):
            return libc.open_mailbox(name)
    return _open_by_child(pid, name)


def _open_by_child(pid: int, name: bytes) -> int:
    """Have it opened by a child that enters the user namespace first, which none can leave."""
    import socket

    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = libc.fork()
        if child == 0:
            try:
                lifeline.drop_all()
                _enter_of(pid, "user", _NEW_USER)
                _enter_of(pid, "net", _NEW_NETWORK)
                socket.send_fds(theirs, [b"f"], [libc.open_mailbox(name)])
            finally:
                os._exit(0)
        theirs.close()
        _, fds, _, _ = socket.recv_fds(ours, 1, 1)
        os.waitpid(child, 0)
    if not fds:
        raise PermissionError("the child could not open it")
    os.set_inheritable(fds[0], False)  # noqa: FBT003 - the standard library's way
    return fds[0]
