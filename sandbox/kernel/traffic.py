"""What passes a run's network, as columns beside those of its group and as totals at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from pathlib import Path
from typing import Protocol

from sandbox.errors import KernelError
from sandbox.kernel.files import KeptFile
from sandbox.kernel.group import Reader
from sandbox.records.result import NetworkIo
from sandbox.records.sample import ABSENT

_COUNTERS = ("rx_bytes", "tx_bytes", "rx_packets", "tx_packets")
_TROUBLES = ("rx_errors", "tx_errors", "rx_dropped", "tx_dropped")


class Traffic(Protocol):
    """Counters of interfaces, since these were made."""

    def read(self) -> tuple[NetworkIo, ...]:
        """Return them as they are now.

        Raises:
            OSError, KernelError: they cannot be read.
        """
        ...

    def close(self) -> None:
        """Let them go."""
        ...


class InterfaceTraffic:
    """The interfaces of a network namespace; the open file keeps it, whoever ends."""

    def __init__(self, pid: int) -> None:
        """Find them by a process inside.

        Raises:
            KernelError: there is no such process.
        """
        from sandbox.kernel.parse_proc import parse_interfaces

        self._parse = parse_interfaces
        self._file = KeptFile(f"/proc/{pid}/net/dev")

    def read(self) -> tuple[NetworkIo, ...]:
        """Return every interface but the loopback."""
        return self._parse(self._file.read())

    def close(self) -> None:
        """Let the namespace go."""
        self._file.close()


def open_traffic(pid: int, group: Path | None, *, is_own: bool) -> tuple[Traffic | None, str]:
    """Return what counts a run's traffic, or None and why there is nothing.

    Args:
        pid: A process of the run.
        group: The run's v2 group, where it has one.
        is_own: Whether the run has a network of its own.
    """
    if is_own:
        try:
            return InterfaceTraffic(pid), ""
        except KernelError as error:
            return None, str(error)
    if group is None:
        return None, "it has no group that could count"
    from sandbox.kernel.bpf import GroupTraffic

    try:
        return GroupTraffic.attach(group), ""
    except OSError as exc:
        return None, f"BPF cannot count there: {exc.strerror}"


class CountingReader:
    """A reader whose slow table has what passed the network as well."""

    def __init__(self, reader: Reader, traffic: Traffic, before: tuple[NetworkIo, ...]) -> None:
        """Add columns for what these interfaces count."""
        self._reader, self._traffic = reader, traffic
        has_troubles = all(port.rx_errors is not None for port in before)
        names = (*_COUNTERS, *(_TROUBLES if has_troubles else ()))
        self._fields = attrgetter(*names)
        self._width = len(names)
        self._base = self._sum(before)
        self.fast_columns = reader.fast_columns
        self.slow_columns = (*reader.slow_columns, *(f"net_{name}" for name in names))
        self.read_fast: Callable[[], list[int]] = reader.read_fast

    def _sum(self, ports: Iterable[NetworkIo]) -> list[int]:
        rows = [[0] * self._width, *map(self._fields, ports)]
        return [sum(values) for values in zip(*rows, strict=True)]

    def read_slow(self) -> list[int]:
        """Read the dear files, and the interfaces."""
        row = self._reader.read_slow()
        try:
            now = self._sum(self._traffic.read())
        except (OSError, KernelError):
            return row + [ABSENT] * self._width
        return row + [count - base for count, base in zip(now, self._base, strict=True)]

    def close(self) -> None:
        """Close the reader; the counters stay."""
        self._reader.close()
