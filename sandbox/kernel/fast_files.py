"""The hot path of a run: a group's fast files, one pread each, integers out.

It runs a hundred times a second, each time out of cold caches: what counts is how much code and
how many objects it touches. So everything usual is one function, and what is not stays outside.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from sandbox.errors import KernelError
from sandbox.kernel.files import KeptFile
from sandbox.kernel.unified_snapshot import IO_COLUMNS
from sandbox.records.sample import ABSENT

_LINE_BYTES = 64  # holds any counter, and the first line of cpu.stat
_IO_BYTES = 4_096  # of a longer file the comparison fails, and the whole is read


class FastFiles:
    """Reads CPU time, gauges and I/O of a group through descriptors that its reader keeps open."""

    __slots__ = (
        "_cpu_fd",
        "_gauge_fds",
        "_io",
        "_io_data",
        "_io_fd",
        "_io_row",
        "_parse_io",
        "_usage_base",
    )

    def __init__(
        self,
        cpu: KeptFile,
        usage_base: int,
        gauges: tuple[KeptFile, ...],
        io: KeptFile | None,
        parse_io: Callable[[bytes], list[int]],
    ) -> None:
        """Take open files.

        Args:
            cpu: v2's `cpu.stat`.
            usage_base: What its `usage_usec` was at the baseline.
            gauges: Files of one number each.
            io: What says which bytes have moved, or None.
            parse_io: Makes `IO_COLUMNS` of its content; called only when that has changed.
        """
        self._cpu_fd = cpu.fd
        self._usage_base = usage_base
        self._gauge_fds = tuple(gauge.fd for gauge in gauges)
        self._io = io
        self._io_fd = -1 if io is None else io.fd
        self._io_data: bytes | None = None
        self._io_row: list[int] = []
        self._parse_io = parse_io

    def read(self) -> list[int]:
        """Return a new list: CPU time, each gauge, I/O; `ABSENT` for what cannot be read."""
        pread = os.pread
        try:
            # `usage_usec` is the first line of every kernel's cpu.stat.
            row = [int(pread(self._cpu_fd, _LINE_BYTES, 0).split(None, 2)[1]) - self._usage_base]
            for fd in self._gauge_fds:
                row.append(int(pread(fd, _LINE_BYTES, 0)))  # noqa: PERF401 - a frame more
            if self._io_fd >= 0:
                # At most ticks no byte has moved, and there is nothing to parse.
                if pread(self._io_fd, _IO_BYTES, 0) != self._io_data:
                    self._note_io()
                row += self._io_row
        except (OSError, ValueError, IndexError, KernelError):
            return self._read_each()
        return row

    def _note_io(self) -> None:
        if self._io is not None:
            data = self._io.read()
            self._io_row = self._parse_io(data)
            self._io_data = data

    def _read_each(self) -> list[int]:
        """Read the same one by one: what cannot be read takes nothing else with it."""
        row = [_read_number(self._cpu_fd, 1)]
        if row[0] != ABSENT:
            row[0] -= self._usage_base
        row += [_read_number(fd, 0) for fd in self._gauge_fds]
        try:
            self._note_io()
        except (KernelError, ValueError):
            return row + [ABSENT] * len(IO_COLUMNS)
        return row + self._io_row


def _read_number(fd: int, place: int) -> int:
    try:
        return int(os.pread(fd, _LINE_BYTES, 0).split()[place])
    except (OSError, ValueError, IndexError):
        return ABSENT
