"""What a keeper has counted, in memory that its supervisor shares: read without a system call."""

from __future__ import annotations

import mmap
import os
import resource
import struct

from sandbox.kernel.parse_proc import parse_pid_io
from sandbox.kernel.processes import read_file
from sandbox.records.light import dataclass

_ENTRIES = struct.Struct("=qqqqqq")
_EMPTY_AT = _ENTRIES.size
_USEC_PER_SEC = 1_000_000
_KIB = 1024


@dataclass(frozen=True)
class Reaped:
    """All processes of the run that have ended and were waited for, together."""

    user_usec: int = 0
    system_usec: int = 0
    largest_rss_bytes: int = 0
    """The largest peak of any one of them."""
    read_bytes: int = 0
    write_bytes: int = 0
    processes: int = 0
    """Those that the keeper itself has reaped."""


class Ledger:
    """One page: the keeper writes, the supervisor reads."""

    def __init__(self) -> None:
        """Make the page; a forked child shares it."""
        self._page = mmap.mmap(-1, mmap.PAGESIZE)
        self._last = Reaped()

    def record(self, reaped: Reaped) -> None:
        """Write the entries; each only grows, so a reader that sees a mix is late, not wrong."""
        entries = (
            reaped.user_usec,
            reaped.system_usec,
            reaped.largest_rss_bytes,
            reaped.read_bytes,
            reaped.write_bytes,
            reaped.processes,
        )
        _ENTRIES.pack_into(self._page, 0, *entries)

    def read(self) -> Reaped:
        """Return the entries."""
        if not self._page.closed:
            self._last = Reaped(*_ENTRIES.unpack_from(self._page, 0))
        return self._last

    def record_empty(self) -> None:
        """Write that no process of the run is left."""
        self._page[_EMPTY_AT] = 1

    def is_empty(self) -> bool:
        """Return whether no process of the run is left."""
        return self._page.closed or self._page[_EMPTY_AT] == 1

    def close(self) -> None:
        """Give the page back; the last entries stay readable."""
        self.read()
        self._page.close()


def count_reaped(processes: int) -> Reaped:
    """Return what this process has reaped until now; its own I/O is nothing."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    data = read_file(f"/proc/{os.getpid()}/io")
    # The kernel adds a child's I/O to its parent's when it is waited for.
    io = parse_pid_io(data) if data else {}
    return Reaped(
        user_usec=round(usage.ru_utime * _USEC_PER_SEC),
        system_usec=round(usage.ru_stime * _USEC_PER_SEC),
        largest_rss_bytes=usage.ru_maxrss * _KIB,
        read_bytes=io.get("read_bytes", 0),
        write_bytes=io.get("write_bytes", 0),
        processes=processes,
    )
