"""A private network without root: pasta, or slirp4netns, carries the packets from outside.

It runs beside the run, not in its group, below a shell that ends it when the supervisor closes a
pipe or is killed.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import ClassVar

from sandbox.errors import HostError, KernelError
from sandbox.kernel import lifeline
from sandbox.kernel.guard import inheritable_fds
from sandbox.kernel.ports import reserve
from sandbox.kernel.processes import read_file
from sandbox.kernel.signals import keep_exit_statuses
from sandbox.records.light import replace
from sandbox.records.ports import PublishedPort

_SHELL = "/bin/sh"
_SCRIPT = """trap '' HUP INT QUIT TERM
"$@" 0</dev/null 2>&3 3>&- &
exec 3>&-
while read -r _; do :; done
kill -KILL $!
wait
"""
_PATIENCE_SEC = 10.0
_STEP_MS = 5
_SAID_BYTES = 4096
_SHUT = ("-T", "none", "-U", "none")
_HINT_PASTA = "`apt install passt` brings it; as root none is needed"
_HINT = "`apt install passt` (or slirp4netns) brings one; as root none is needed"


class UserNetwork:
    """The process that carries one run's packets."""

    warnings: ClassVar[tuple[tuple[str, str], ...]] = ()

    def __init__(self, ports: Sequence[PublishedPort] = ()) -> None:
        """Start nothing yet."""
        self._asked = ports
        self.ports: tuple[PublishedPort, ...] = ()
        """Those of the host that lead inside, once it is connected."""
        self._pid: int | None = None
        self._lifeline_fd = -1
        self._said_fd = -1

    def connect(self, pid: int) -> None:
        """Give the network namespace of a process an interface, and a way out.

        Raises:
            HostError: there is no such program here, or it cannot.
            KernelError: no process can be started.
        """
        self.close()  # a child before this one did not get so far
        self.ports = _find_ports(self._asked)
        command = find_carrier(pid, self.ports)
        self._start(command)
        deadline = time.monotonic() + _PATIENCE_SEC
        poll = select.poll()
        poll.register(self._said_fd, select.POLLIN)
        said = b""
        while not _has_way_out(pid):
            has_ended = False
            if poll.poll(_STEP_MS):
                more = os.read(self._said_fd, _SAID_BYTES)
                said, has_ended = said + more, not more
            if has_ended or time.monotonic() > deadline:
                words = said.decode(errors="replace").strip().splitlines()
                raise HostError(
                    f"cannot make a private network: {command[0]} "
                    + (f"says: {words[-1][:200]}" if words else "does not make one"),
                    hint=_hint(said),
                )

    def _start(self, command: list[str]) -> None:
        keep_exit_statuses()
        read_fd, self._lifeline_fd = lifeline.open_lifeline()
        self._said_fd, said_fd = lifeline.open_pipe()
        actions = [
            (os.POSIX_SPAWN_DUP2, read_fd, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            *((os.POSIX_SPAWN_CLOSE, fd) for fd in inheritable_fds()),
            (os.POSIX_SPAWN_DUP2, said_fd, 3),
        ]
        try:
            self._pid = os.posix_spawn(
                _SHELL,
                [_SHELL, "-c", _SCRIPT, "sandbox-network", *command],
                {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
                file_actions=actions,
                setsid=True,
                setsigdef=(signal.SIGCHLD, signal.SIGPIPE),  # pasta wants neither ignored
            )
        except OSError as exc:
            raise KernelError.from_os(exc, doing="start", path=command[0]) from exc
        finally:
            os.close(read_fd)
            os.close(said_fd)

    def begin_close(self) -> None:
        """Have the process end, and do not wait for it."""
        if self._lifeline_fd >= 0:
            lifeline.cut(self._lifeline_fd)
            self._lifeline_fd = -1

    def close(self) -> None:
        """End the process; a second time does nothing."""
        self.begin_close()
        if self._pid is not None:
            with suppress(ChildProcessError):
                os.waitpid(self._pid, 0)
            self._pid = None
        if self._said_fd >= 0:
            os.close(self._said_fd)
            self._said_fd = -1


def find_carrier(pid: int, ports: Sequence[PublishedPort] = ()) -> list[str]:
    """Return the command that carries the packets of a process's network namespace.

    It lets nothing in but by these ports: else neither ports of the host's, nor its loopback.

    Raises:
        HostError: there is none.
    """
    pasta = shutil.which("pasta")
    if pasta is not None:
        doors = [*_doors("-t", "tcp", ports), *_doors("-u", "udp", ports), *_SHUT]
        return [pasta, "--foreground", "--quiet", "--config-net", "--no-map-gw", *doors, str(pid)]
    slirp = shutil.which("slirp4netns")
    if slirp is not None and ports:
        raise HostError("ports are published by `pasta`, and it is not here", hint=_HINT_PASTA)
    if slirp is not None:
        user = f"--userns-path=/proc/{pid}/ns/user"
        return [
            slirp,
            "--configure",
            "--mtu=1500",
            "--disable-host-loopback",
            user,
            str(pid),
            "tap0",
        ]
    raise HostError(
        "a private network without root takes `pasta` or `slirp4netns`, and neither is here",
        hint=_HINT,
    )


def _find_ports(asked: Sequence[PublishedPort]) -> tuple[PublishedPort, ...]:
    """Find the ports, and leave them for the carrier to take.

    Where any will do for UDP it is the run's own number, if that is free: by the host's loopback
    pasta of 2023 answers from no other.
    """
    same = [
        replace(port, host_port=port.container_port)
        if port.protocol == "udp" and port.host_port is None
        else port
        for port in asked
    ]
    if same != [*asked]:
        with ExitStack() as reserved, suppress(HostError):
            return reserve(same, reserved)
    with ExitStack() as reserved:
        return reserve(asked, reserved)


def _doors(flag: str, protocol: str, ports: Sequence[PublishedPort]) -> list[str]:
    """Return pasta's words for the ports of one protocol; without any, that there is none."""
    doors = [
        f"{port.host_address}/{port.host_port}:{port.container_port}"
        for port in ports
        if port.protocol == protocol
    ]
    return [word for door in doors or ["none"] for word in (flag, door)]


def _hint(said: bytes) -> str:
    if b"tun" in said.lower():
        return "`sudo modprobe tun` brings the device that it needs; --network none needs none"
    return "does this host have a way out itself? --network none needs none"


def _has_way_out(pid: int) -> bool:
    return has_default_route(read_file(f"/proc/{pid}/net/route")) or has_default_route6(
        read_file(f"/proc/{pid}/net/ipv6_route")
    )


def has_default_route(data: bytes) -> bool:
    """Return whether `/proc/PID/net/route` has a way to everywhere: destination and mask are 0."""
    rows = (line.split() for line in data.splitlines()[1:])
    return any(row[1:2] == row[7:8] == [b"00000000"] for row in rows)


def has_default_route6(data: bytes) -> bool:
    """Return the same of `/proc/PID/net/ipv6_route`; the one of the loopback leads nowhere."""
    rows = (line.split() for line in data.splitlines())
    return any(row[:2] == [b"0" * 32, b"00"] and row[-1] != b"lo" for row in rows)
