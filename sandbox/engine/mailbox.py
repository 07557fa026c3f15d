"""Letters to the supervisor: datagrams to a name that the run's id is part of.

Whoever is on the machine may send some, so each is read with distrust: it is short, and the kernel
says who has sent it. What serves them is made when the first one comes.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol

from sandbox.kernel.libc import open_mailbox
from sandbox.records.light import dataclass
from sandbox.sampling.loop import Loop

if TYPE_CHECKING:
    import socket

_SCM_CREDENTIALS = 2
_CREDENTIALS = "=iII"  # pid, uid, gid as the kernel says they are
_CREDENTIALS_BYTES = 12


@dataclass(frozen=True, kw_only=True)
class Letter:
    """One datagram."""

    data: bytes
    pid: int
    uid: int
    sender: bytes | str | None
    """Where an answer goes; None where none is waited for."""


class Server(Protocol):
    """Takes the letters that wait."""

    def serve(self) -> bool:
        """Take some; return whether more of them will be taken."""


class Mailbox:
    """A name that letters can be sent to while a run goes on; where none can be had, it is deaf."""

    def __init__(
        self,
        loop: Loop,
        name: str,
        make: Callable[[int], Server],
        elsewhere: Callable[[bytes], int | None] | None = None,
    ) -> None:
        """Take letters from now on.

        Args:
            loop: What waits for them.
            name: Where they are sent to.
            make: Given a descriptor, returns who serves what comes there.
            elsewhere: Opens the same name where the run looks it up, if that is another place.
        """
        self._loop = loop
        self._make = make
        self._servers: dict[int, Server | None] = {}
        for open_one in (open_mailbox, elsewhere):
            with suppress(OSError):
                fd = None if open_one is None else open_one(name.encode())
                if fd is not None:
                    self._servers[fd] = None
                    loop.on_fd(fd, select.EPOLLIN, partial(self._serve, fd))

    def _serve(self, fd: int) -> None:
        if fd not in self._servers:
            return
        server = self._servers[fd] = self._servers[fd] or self._make(fd)
        if not server.serve():
            self.close()

    def take_last(self) -> None:
        """Serve what was sent just before the program ended, and close."""
        waiting = select.poll()
        for fd in self._servers:
            waiting.register(fd, select.POLLIN)
        for fd, _ in waiting.poll(0) if self._servers else ():
            self._serve(fd)
        self.close()

    def close(self) -> None:
        """Take no more letters; again is harmless."""
        for fd in self._servers:
            self._loop.forget(fd)
            os.close(fd)
        self._servers = {}


def receive(fd: int, most_bytes: int) -> Letter | None:
    """Return a letter that waits, cut to `most_bytes`; None if there is none."""
    import socket
    import struct

    try:
        with _borrow(fd) as mailbox:
            data, more, _, sender = mailbox.recvmsg(
                most_bytes, socket.CMSG_SPACE(_CREDENTIALS_BYTES)
            )
    except OSError:
        return None
    for level, kind, credentials in more:
        if (level, kind) == (socket.SOL_SOCKET, _SCM_CREDENTIALS):
            pid, uid, _ = struct.unpack_from(_CREDENTIALS, credentials)
            return Letter(data=data, pid=pid, uid=uid, sender=sender or None)
    return Letter(data=data, pid=0, uid=-1, sender=sender or None)


def answer(fd: int, letter: Letter, data: bytes) -> None:
    """Answer a letter, if somebody waits for it."""
    if letter.sender is not None:
        with suppress(OSError), _borrow(fd) as mailbox:  # it may have waited long enough
            mailbox.sendto(data, letter.sender)


@contextmanager
def _borrow(fd: int) -> Iterator[socket.socket]:
    """Speak through a descriptor that stays its owner's."""
    import socket

    borrowed = socket.socket(fileno=fd)
    try:
        yield borrowed
    finally:
        borrowed.detach()
