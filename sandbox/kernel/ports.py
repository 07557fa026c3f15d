"""Ports of the host taken for a run: others find them in use, and an error says if they are."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from contextlib import ExitStack

from sandbox.errors import HostError
from sandbox.records.light import replace
from sandbox.records.ports import ANY_ADDRESS, PublishedPort

_MOST = 64
"""As many as surely fit into one batch of rules and its answers."""
_KINDS = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}


def reserve(ports: Sequence[PublishedPort], held: ExitStack) -> tuple[PublishedPort, ...]:
    """Take the ports of the host, free ones where none was asked for, and return what was taken.

    Args:
        ports: What was asked for.
        held: Gets the sockets that keep them.

    Raises:
        HostError: one is in use, is not for this user, or has an address that is not this host's.
    """
    if len(ports) > _MOST:
        raise HostError(f"{len(ports)} published ports are too many", hint=f"{_MOST} can be")
    # Those that were asked for by number first, so that no free one is one of them.
    order = sorted(range(len(ports)), key=lambda place: ports[place].host_port is None)
    taken = {place: _reserve_one(ports[place], held) for place in order}
    return tuple(taken[place] for place in range(len(ports)))


def _reserve_one(port: PublishedPort, held: ExitStack) -> PublishedPort:
    holder = held.enter_context(socket.socket(socket.AF_INET, _KINDS[port.protocol]))
    try:
        if port.protocol == "tcp":
            # Else connections of a server that has just ended would be in the way for a minute.
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((port.host_address, port.host_port or 0))
        if port.protocol == "tcp":
            holder.listen()  # until then another who says the same could take it, too
    except OSError as exc:
        raise _refusal(port, exc) from exc
    return replace(port, host_port=holder.getsockname()[1])


def _flag(port: PublishedPort, host_port: str = "") -> str:
    """Return what `-p` takes for the same port and address with another port of the host."""
    inside = str(port.container_port) if port.protocol == "tcp" else port.inside
    if port.host_address != ANY_ADDRESS:
        return f"{port.host_address}:{host_port}:{inside}"
    return f"{host_port}:{inside}" if host_port else inside


def _refusal(port: PublishedPort, exc: OSError) -> HostError:
    said = f"cannot publish {port.outside} for {port.inside}"
    if exc.errno == errno.EADDRINUSE:
        return HostError(
            f"{said}: the port is in use",
            hint=f"another one: `-p {_flag(port, 'OTHER')}`; or any: `-p {_flag(port)}`",
        )
    if exc.errno in {errno.EACCES, errno.EPERM}:
        return HostError(
            f"{said}: not allowed",
            hint="a plain user may take ports from 1024 "
            "(/proc/sys/net/ipv4/ip_unprivileged_port_start)",
        )
    if exc.errno == errno.EADDRNOTAVAIL:
        return HostError(
            f"{said}: {port.host_address} is no address of this host",
            hint="`ip address` lists them; without an address it is published on all",
        )
    return HostError(f"{said}: {exc.strerror or exc}", hint=f"any free one: `-p {_flag(port)}`")
