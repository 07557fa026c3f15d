"""The child's part in a terminal of the program's own: made inside, so that its name is true."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import termios

from sandbox.records.enclosure import TerminalEnds

_TIOCSPTLCK = 0x40045431
_TIOCGPTPEER = 0x5441
_UNLOCKED = struct.pack("i", 0)
_FD = struct.Struct("i")
_FLAGS = os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC


class OwnTerminal:
    """Prepared before the fork; taken once the root has changed."""

    def __init__(self, ends: TerminalEnds, user: int) -> None:
        """Take the socket to send by; `user` is to have the terminal, as an id of inside."""
        self._ends = ends
        self._user = user

    def take(self) -> None:
        """Make a terminal, become the leader of its session, send its other end away.

        Raises:
            OSError: the kernel refuses.
        """
        os.setsid()
        master = os.open("/dev/ptmx", _FLAGS)
        fcntl.ioctl(master, _TIOCSPTLCK, _UNLOCKED)
        slave: int = fcntl.ioctl(master, _TIOCGPTPEER, _FLAGS)
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        os.fchown(slave, self._user, -1)
        # Not `send_fds`, which imports a module: it would be the root file system's.
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, self._ends.socket_fd) as sending:
            sending.sendmsg([b"t"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, _FD.pack(master))])
        for fd in self._ends.fds:
            os.dup2(slave, fd)
        os.close(slave)
        os.close(master)
