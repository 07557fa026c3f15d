"""Reading a hybrid run's counters: kept descriptors, one pread each, integers out.

The fast reading is the hot path of a run. What v2 tells without controllers (CPU modes, pressure,
processes) is read as on the unified hierarchy.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sandbox.errors import KernelError
from sandbox.kernel import v1
from sandbox.kernel.fast_files import FastFiles
from sandbox.kernel.files import KeptFile
from sandbox.kernel.hybrid_counters import RunGroups, has_kernel_memory, join_io
from sandbox.kernel.place import INNER_GROUP
from sandbox.kernel.roots import Roots
from sandbox.kernel.unified_reader import UnifiedReader
from sandbox.kernel.unified_snapshot import IO_COLUMNS, Disks, Snapshot, sum_io
from sandbox.records.sample import ABSENT

THROTTLING_COLUMNS = ("cpu_periods", "cpu_throttled_periods", "cpu_throttled_usec")
MEMORY_STAT_KEYS = {
    # `total_`: with the groups below. v1's rss is anonymous memory, huge pages included.
    "memory_anon_bytes": b"total_rss",
    "memory_file_bytes": b"total_cache",
    "memory_shmem_bytes": b"total_shmem",
    "memory_inactive_file_bytes": b"total_inactive_file",
    "memory_swap_bytes": b"total_swap",
}
KERNEL_COLUMN = "memory_kernel_bytes"


class HybridReader:
    """Reads one hybrid run's groups; see `Reader`. What the host lacks has no column."""

    def __init__(
        self, groups: RunGroups, inner: Path, before: Snapshot, disks: Disks, roots: Roots
    ) -> None:
        """Open every file that there is.

        `inner` is the v2 group of the program's processes; counters start at `before`.

        Raises:
            KernelError: there is no such group.
        """
        self._groups = groups
        self._files: list[KeptFile] = []
        self._unified = UnifiedReader(groups.v2, inner, before, roots, is_slow_only=True)
        self._baseline = before.as_columns()
        try:
            cpu = self._open(f"{groups.v2}/cpu.stat")
        except KernelError:
            self._unified.close()
            raise
        memory = self._find("memory", v1.MEMORY_USAGE)
        pids = self._find("pids", v1.PIDS_CURRENT)
        moved, requests = self._open_io(before)
        self._requests: KeptFile | None = requests
        self._disks = disks
        self._io_base = [self._baseline.get(column, 0) for column in IO_COLUMNS]
        self.fast_columns: tuple[str, ...] = (
            "cpu_usage_usec",
            *(("memory_current_bytes",) if memory else ()),
            *(("pids",) if pids else ()),
            *(IO_COLUMNS if moved else ()),
        )
        self.read_fast: Callable[[], list[int]] = FastFiles(
            cpu,
            self._baseline.get("cpu_usage_usec", 0),
            tuple(gauge for gauge in (memory, pids) if gauge),
            moved,
            self._parse_io,
        ).read
        """Read CPU time, memory, tasks and I/O; `ABSENT` for what cannot be read."""
        self._open_slow()

    def _open_io(self, before: Snapshot) -> tuple[KeptFile, KeptFile] | tuple[None, None]:
        if before.io is None:
            return None, None
        moved = self._find("blkio", v1.IO_BYTES)
        requests = self._find("blkio", v1.IO_OPERATIONS)
        return (moved, requests) if moved and requests else (None, None)

    def _open_slow(self) -> None:
        columns = [*self._unified.slow_columns]
        self._throttling = None
        if set(THROTTLING_COLUMNS) <= self._baseline.keys():
            self._throttling = self._find("cpu", v1.CPU_STAT)
            columns += THROTTLING_COLUMNS
        self._memory_stat = self._find("memory", v1.MEMORY_STAT)
        self._inner_memory_stat = self._find("memory", f"{INNER_GROUP}/{v1.MEMORY_STAT}")
        self._memory_places: tuple[tuple[bytes, int], ...] = ()
        if self._memory_stat is not None:
            columns += self._learn_memory_stat(self._memory_stat.read())
        self._kernel = None
        if has_kernel_memory(self._groups):
            self._kernel = self._find("memory", v1.MEMORY_KERNEL)
            columns.append(KERNEL_COLUMN)
        self.slow_columns: tuple[str, ...] = tuple(columns)

    def _learn_memory_stat(self, data: bytes) -> list[str]:
        """Note where the numbers are: on one kernel the lines keep their places."""
        words = data.split()
        places = {key: index + 1 for index, key in enumerate(words) if index % 2 == 0}
        present = {column: key for column, key in MEMORY_STAT_KEYS.items() if key in places}
        self._memory_places = tuple((key, places[key]) for key in present.values())
        return [*present]

    def _open(self, path: str) -> KeptFile:
        file = KeptFile(path)
        self._files.append(file)
        return file

    def _find(self, controller: str, name: str) -> KeptFile | None:
        """Open a v1 file, or return None where it lacks or cannot be read at all."""
        path = self._groups.file(controller, name)
        if path is None:
            return None
        try:
            file = self._open(path)
            file.read()
        except KernelError:
            return None
        return file

    def _parse_io(self, moved: bytes) -> list[int]:
        """Return the I/O columns; called when bytes have moved.

        Only flushes, which move none, can have been requested meanwhile; the next call has them.
        """
        requests = b"" if self._requests is None else self._requests.read()
        sums = sum_io(self._disks.counted(join_io(moved, requests)))
        return [now - base for now, base in zip(sums, self._io_base, strict=True)]

    def read_slow(self) -> list[int]:
        """Read CPU modes, processes, pressure, throttling and what memory is made of."""
        row = self._unified.read_slow()
        if self._throttling is not None:
            row += self._read_throttling(self._throttling)
        if self._memory_stat is not None:
            row += self._read_memory_stat(self._memory_source(self._memory_stat))
        if self._kernel is not None:
            try:
                row.append(int(self._kernel.read()))
            except (KernelError, ValueError):
                row.append(ABSENT)
        return row

    def _read_throttling(self, file: KeptFile) -> list[int]:
        try:
            values = v1.parse_throttling(file.read())
        except KernelError:
            values = None
        if values is None:
            return [ABSENT] * len(THROTTLING_COLUMNS)
        columns = zip(values, THROTTLING_COLUMNS, strict=True)
        return [value - self._baseline[column] for value, column in columns]

    def _memory_source(self, whole: KeptFile) -> KeptFile:
        """Return the file to read: the program's own group where the run has no other.

        The kernel notes in a group whether its counters have changed since they were last summed
        up; a race makes it forget that in the groups above (Linux 6.18), and a group above then
        tells old numbers for seconds.
        """
        if self._inner_memory_stat is None:
            return whole
        try:
            children = self._groups.v1["memory"].stat().st_nlink - 2  # `.` and its own name
        except OSError:
            return whole
        return self._inner_memory_stat if children == 1 else whole

    def _read_memory_stat(self, file: KeptFile) -> list[int]:
        try:
            words = file.read().split()
            return [
                int(words[place]) if words[place - 1] == key else ABSENT
                for key, place in self._memory_places
            ]
        except (KernelError, ValueError, IndexError):
            return [ABSENT] * len(self._memory_places)

    def close(self) -> None:
        """Close the descriptors; a second time does nothing."""
        self._unified.close()
        for file in self._files:
            file.close()
