"""The network of one run: made while the program waits, counted, taken away at the end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from sandbox.errors import KernelError
from sandbox.kernel.group import Reader
from sandbox.records.light import replace
from sandbox.records.ports import PublishedPort
from sandbox.records.program import MARKS_VARIABLE, Program
from sandbox.records.result import NetworkIo, RunWarning, Totals

if TYPE_CHECKING:
    from sandbox.kernel.backend import Backend
    from sandbox.kernel.private_network import PrivateNetwork
    from sandbox.kernel.traffic import Traffic
    from sandbox.kernel.user_network import UserNetwork
    from sandbox.records.enclosure import OwnNetwork

METRIC = "network"
SHARED = "the run shares the host's network"


class RunNetwork:
    """What the engine knows of a run's network; without one of its own, the host's."""

    def __init__(self, program: Program, run_id: str) -> None:
        """Prepare it; nothing is made yet, and no port of the host's taken."""
        self._own = own = program.own_network
        self._has_marks = os.fsencode(MARKS_VARIABLE) in program.environment
        self._made = _find_maker(own, run_id)
        self._traffic: Traffic | None = None
        self._before: tuple[NetworkIo, ...] = ()
        self._reason = ""
        self._has_ended = False
        self._pid = 0

    @property
    def lease(self) -> str:
        """Return what a guard has to release; empty for nothing."""
        return "" if self._own is None else self._own.lease

    @property
    def ports(self) -> tuple[PublishedPort, ...]:
        """Return the ports of the host that lead inside, once it is connected."""
        return () if self._made is None else self._made.ports

    def connect(self, pid: int) -> None:
        """Give the network namespace of a process its interfaces, if it is to have some.

        Raises:
            HostError: this host cannot.
        """
        if self._made is not None:
            self._made.connect(pid)

    def open_reader(self, pid: int, backend: Backend) -> Reader:
        """Count from now on; return the group's reader, with columns of the network if it can be.

        Args:
            pid: The paused child.
            backend: What has started it.
        """
        self._pid = pid
        reader = backend.group.open_reader()
        if self._own is None and (backend.kill_directory is None or os.geteuid() != 0):
            self._reason = SHARED
            return reader
        from sandbox.kernel.traffic import CountingReader, open_traffic

        is_own = self._own is not None
        self._traffic, why = open_traffic(pid, backend.kill_directory, is_own=is_own)
        self._reason = why if is_own or not why else f"{SHARED}, and {why}"
        if self._traffic is None:
            return reader
        self._before = self._traffic.read()
        return CountingReader(reader, self._traffic, self._before)

    def open_mailbox(self, name: bytes) -> int | None:
        """Return a mailbox in the run's own network, where abstract names are its own, if any.

        A program that is not told where its marks go needs none.
        """
        if self._own is None or not self._has_marks:
            return None
        from sandbox.kernel.in_network import open_mailbox_inside

        try:
            return open_mailbox_inside(self._pid, name)
        except OSError:
            return None

    def add_to(self, totals: Totals) -> Totals:
        """Return totals with what has passed since the start."""
        if self._traffic is None:
            return totals
        from sandbox.analysis.phases import traffic_between

        try:
            now = self._traffic.read()
        except (OSError, KernelError):
            return totals
        return replace(totals, network=traffic_between(self._before, now))

    def finish(self, totals: Totals) -> Totals:
        """Return totals as they are at the end, and let the network begin to go.

        The kernel takes some hundredths of a second for that, and whoever concludes the run has
        enough to do meanwhile.
        """
        totals = self.add_to(totals)
        if self._traffic is not None:
            self._traffic.close()
            self._traffic, self._has_ended = None, True
        if self._made is not None:
            self._made.begin_close()
        return totals

    def correct(self, unavailable: dict[str, str]) -> dict[str, str]:
        """Return what is unavailable, right about the network."""
        known = {name: why for name, why in unavailable.items() if name != METRIC}
        is_counted = self._traffic is not None or self._has_ended
        return known if is_counted else known | {METRIC: self._reason}

    def problems(self) -> tuple[RunWarning, ...]:
        """Return what makes the network weaker than it should be."""
        told: Any = () if self._made is None else self._made.warnings
        return tuple(RunWarning(code="network", text=text, hint=hint) for text, hint in told)

    def close(self) -> None:
        """Take everything away; a second time does nothing."""
        if self._traffic is not None:
            self._traffic.close()
            self._traffic = None
        if self._made is not None:
            self._made.close()


def _find_maker(own: OwnNetwork | None, run_id: str) -> PrivateNetwork | UserNetwork | None:
    if own is None or own.kind.value != "private":
        return None
    if own.lease:
        from sandbox.kernel.private_network import PrivateNetwork

        return PrivateNetwork(run_id, own.lease, own.ports)
    from sandbox.kernel.user_network import UserNetwork

    return UserNetwork(own.ports)
