"""The network of a group: the interfaces that one of its processes sees, read from outside."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from sandbox.kernel.files import KeptFile
from sandbox.kernel.live_parts import Files, list_members
from sandbox.kernel.parse_proc import parse_net_dev
from sandbox.kernel.roots import Roots
from sandbox.records.result import NetworkIo
from sandbox.units import NS_PER_SEC

SHARED = "it uses the host's network, where nothing tells its traffic from others'"
NOBODY = "no process of it can be seen here, so that its network cannot be found"
_LOOPBACK = "lo"
_MOST_TRIED = 16  # a process that ends meanwhile is followed by another


class Network:
    """Reads the interfaces of a group; while nobody is in it, it looks again now and then.

    A group that shares the host's network has no interface of its own: `network` is then empty.
    The open file keeps its network namespace, so that it does not matter when the process ends.
    """

    def __init__(self, groups: Sequence[Path], files: Files, roots: Roots) -> None:
        """Find a process of a group, in any of the directories that list them."""
        self.reason: str | None = None
        """Why there is nothing to read, or nothing of its own."""
        self._groups, self._files, self._roots = groups, files, roots
        self._find()

    def _find(self) -> None:
        self._looked_ns = time.monotonic_ns()
        self._file: KeptFile | None = None
        self.reason = NOBODY
        pids = (pid for directory in self._groups for pid in list_members(directory))
        for pid in islice(pids, _MOST_TRIED):
            namespace = self._namespace(str(pid))
            if namespace is None:
                continue
            if namespace in {self._namespace("self"), self._namespace("1")}:
                self.reason = SHARED
                return
            self._file = self._files.find(self._roots.proc / str(pid) / "net/dev")
            if self._file is not None:
                self.reason = None
                return

    def _namespace(self, process: str) -> str | None:
        try:
            return os.readlink(f"{self._roots.proc}/{process}/ns/net")  # noqa: PTH115 - a name
        except OSError:
            return None

    def read(self) -> dict[str, Any]:
        """Return the interfaces; see `Read`."""
        if self.reason == NOBODY and time.monotonic_ns() - self._looked_ns >= NS_PER_SEC:
            self._find()
        if self._file is not None:
            return {"network": parse_interfaces(self._file.read())}
        return {"network": ()} if self.reason == SHARED else {}


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
