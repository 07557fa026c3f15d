"""The network of a group: the interfaces that one of its processes sees, read from outside."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sandbox.kernel.files import KeptFile
from sandbox.kernel.live_parts import Files, Read, list_members
from sandbox.kernel.parse_proc import parse_net_dev
from sandbox.kernel.roots import Roots
from sandbox.records.stats import NetworkIo

SHARED = "it uses the host's network, where nothing tells its traffic from others'"
NOBODY = "no process of it can be seen here, so that its network cannot be found"
_LOOPBACK = "lo"
_MOST_TRIED = 16  # a process that ends meanwhile is followed by another


def network(groups: Iterable[Path], files: Files, roots: Roots) -> tuple[Read | None, str | None]:
    """Return what reads the interfaces of a group, and why there is nothing to read.

    A group that shares the host's network has no interface of its own: `network` is then empty.
    The open file keeps its network namespace, so that it does not matter when the process ends.
    """
    tried = 0
    for directory in groups:
        for pid in list_members(directory):
            namespace = _namespace(roots, str(pid))
            if namespace is not None:
                if namespace in {_namespace(roots, "self"), _namespace(roots, "1")}:
                    return lambda: {"network": ()}, SHARED
                file = files.find(roots.proc / str(pid) / "net/dev")
                if file is not None:
                    return _reading(file), None
            tried += 1
            if tried == _MOST_TRIED:
                return None, NOBODY
    return None, NOBODY


def _reading(file: KeptFile) -> Read:
    return lambda: {"network": parse_interfaces(file.read())}


def parse_interfaces(data: bytes) -> tuple[NetworkIo, ...]:
    """Return every interface but the loopback.

    Raises:
        KernelError: it is not a `/proc/PID/net/dev`.
    """
    return tuple(
        NetworkIo(
            name=name,
            rx_bytes=counters.received_bytes,
            tx_bytes=counters.sent_bytes,
            rx_packets=counters.received_packets,
            tx_packets=counters.sent_packets,
            rx_errors=counters.received_errors,
            tx_errors=counters.sent_errors,
            rx_dropped=counters.received_drops,
            tx_dropped=counters.sent_drops,
        )
        for name, counters in parse_net_dev(data).items()
        if name != _LOOPBACK
    )


def _namespace(roots: Roots, process: str) -> Any:
    try:
        return os.readlink(f"{roots.proc}/{process}/ns/net")  # noqa: PTH115 - a name, not a path
    except OSError:
        return None
