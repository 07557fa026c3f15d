"""The network that a program finds: whether it is its own, and which servers look names up."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from sandbox.records.enclosure import IdMap, Network, OwnNetwork
from sandbox.records.ports import PublishedPort
from sandbox.records.result import RunWarning

_RESOLV_CONF = "/etc/resolv.conf"
_RESOLVED = "/run/systemd/resolve/resolv.conf"
"""The servers behind systemd's own on the loopback, as docker takes them too."""
_LARGEST_FILE_BYTES = 1 << 20
_LOOPBACK = ("127.", "::1", "0.0.0.0", "::ffff:127.")  # noqa: S104 - nothing is bound to it


def find_own_network(
    kind: Network, run_id: str, ids: IdMap | None = None, *, ports: Sequence[PublishedPort] = ()
) -> OwnNetwork | None:
    """Return the network namespace that a run takes; None for the host's.

    Args:
        kind: Which network was asked for.
        run_id: The run's.
        ids: Of the root file system's user namespace; a plain user without one gets one for this.
        ports: Of the host, that are to lead inside.
    """
    if kind is Network.HOST:
        return None
    if os.geteuid() == 0:
        if kind is not Network.PRIVATE:
            return OwnNetwork(kind=kind)
        from sandbox.kernel.forwarding import lease_path

        return OwnNetwork(kind=kind, lease=lease_path(run_id), ports=tuple(ports))
    uid, gid = os.geteuid(), os.getegid()
    single = IdMap(uids=((uid, uid, 1),), gids=((gid, gid, 1),))
    return OwnNetwork(kind=kind, ids=ids or single, ports=tuple(ports))


def find_resolv_conf(kind: Network) -> str:
    """Return the text that tells a program where names are looked up."""
    text = read_host_file(_RESOLV_CONF)
    if kind is not Network.PRIVATE or [*_servers(text, loopback=False)]:
        return text if kind is not Network.PRIVATE else _without_loopback(text)
    behind = read_host_file(_RESOLVED)
    return _without_loopback(behind if [*_servers(behind, loopback=False)] else text)


def warn_of_names(kind: Network, text: str) -> Iterator[RunWarning]:
    """Yield a warning if names cannot be looked up by what a program finds in `resolv.conf`."""
    if kind is Network.PRIVATE and not [*_servers(text, loopback=False)]:
        yield RunWarning(
            code="no_name_server",
            text="names cannot be looked up: no name server of this host can be reached from a "
            "private network",
            hint=f"name one in {_RESOLV_CONF} that is not on the loopback, or use addresses",
        )


def warn_of_host_names(kind: Network) -> Iterator[RunWarning]:
    """Yield the same for a program that reads the host's own file."""
    return warn_of_names(kind, read_host_file(_RESOLV_CONF))


def _servers(text: str, *, loopback: bool) -> Iterator[str]:
    """Yield the name servers, or those on the loopback alone."""
    for line in text.splitlines():
        words = line.split()
        is_server = words[:1] == ["nameserver"] and len(words) > 1
        if is_server and words[1].startswith(_LOOPBACK) is loopback:
            yield words[1]


def _without_loopback(text: str) -> str:
    dropped = {*_servers(text, loopback=True)}
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not {*line.split()[1:2]} & dropped)


def read_host_file(path: str) -> str:
    """Return what a file of the host says; nothing if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
            return file.read(_LARGEST_FILE_BYTES)
    except OSError:
        return ""
