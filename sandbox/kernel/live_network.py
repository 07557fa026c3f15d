"""The network of a group: the interfaces that one of its processes sees, read from outside."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox.kernel.files import KeptFile
from sandbox.kernel.live_parts import Files, list_members
from sandbox.kernel.parse_proc import parse_interfaces
from sandbox.kernel.roots import Roots
from sandbox.units import NS_PER_SEC

if TYPE_CHECKING:
    from sandbox.kernel.bpf import GroupTraffic

SHARED = "it uses the host's network, where nothing tells its traffic from others'"
NOBODY = "no process of it can be seen here, so that its network cannot be found"
_MOST_TRIED = 16  # a process that ends meanwhile is followed by another


class Network:
    """Reads the interfaces of a group; while nobody is in it, it looks again now and then.

    Of a group that shares the host's network there is what a supervisor counts on it, if root asks;
    else `network` is empty.
    The open file keeps its network namespace, so that it does not matter when the process ends.
    """

    def __init__(
        self, groups: Sequence[Path], files: Files, roots: Roots, v2: Path | None = None
    ) -> None:
        """Find a process of a group, in any of the directories that list them.

        `v2` is its directory on that side, where programs may count.
        """
        self.reason: str | None = None
        """Why there is nothing to read, or nothing of its own."""
        self._groups, self._files, self._roots, self._v2 = groups, files, roots, v2
        self._counters: GroupTraffic | None = None
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
                self._counters = None if self._v2 is None else _find_counters(self._v2)
                self.reason = SHARED if self._counters is None else None
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
        if self._counters is not None:
            return {"network": self._counters.read()}
        return {"network": ()} if self.reason == SHARED else {}

    def close(self) -> None:
        """Let the counters go; a second time does nothing."""
        if self._counters is not None:
            self._counters.close()
            self._counters = None


def _find_counters(group: Path) -> GroupTraffic | None:
    """Return what counts the traffic of a group on the host's network; only root can see it."""
    if os.geteuid() != 0:
        return None
    from sandbox.kernel.bpf import GroupTraffic

    try:
        return GroupTraffic.find(group)
    except OSError:
        return None
