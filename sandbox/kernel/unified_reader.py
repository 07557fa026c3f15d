"""Reading a v2 group's counters: descriptors that stay open, one pread each, integers out.

The fast reading is the hot path of a run: at most four preads, no parsing that is not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from sandbox.errors import KernelError
from sandbox.kernel.fast_files import FastFiles
from sandbox.kernel.files import KeptFile
from sandbox.kernel.parse import parse_flat, parse_pressure
from sandbox.kernel.roots import Roots
from sandbox.kernel.unified_snapshot import CPU_COLUMNS, IO_COLUMNS, RESOURCES, Disks, Snapshot
from sandbox.kernel.v2 import list_pids
from sandbox.records.sample import ABSENT

MEMORY_COLUMNS = {
    "memory_anon_bytes": b"anon",
    "memory_file_bytes": b"file",
    "memory_shmem_bytes": b"shmem",
    "memory_kernel_bytes": b"kernel",
    "memory_inactive_file_bytes": b"inactive_file",
}
# Before Linux 5.18 memory.stat has no sum of what the kernel keeps for a group.
_KERNEL_PARTS = (b"kernel_stack", b"pagetables", b"percpu", b"vmalloc", b"slab")

PROCESS_IO_COLUMNS = ("io_read_bytes", "io_write_bytes")
"""What processes count by themselves, where the group lacks the controller."""

_LINE_END = b"\n"


def has_process_io(proc: Path) -> bool:
    """Return whether this kernel counts I/O by process."""
    return (proc / "self" / "io").exists()


class MemoryStat:
    """Finds five numbers in `memory.stat`, whose lines keep their places on one kernel."""

    def __init__(self, data: bytes) -> None:
        self._places: tuple[tuple[bytes, int], ...] = ()
        self.columns: tuple[str, ...] = ()
        self._parts: tuple[bytes, ...] = ()
        self._learn(data.split())

    def _learn(self, words: list[bytes]) -> None:
        keys = {key: index for index, key in enumerate(words) if index % 2 == 0}
        self._parts = () if b"kernel" in keys else tuple(k for k in _KERNEL_PARTS if k in keys)
        self.columns = tuple(
            column
            for column, key in MEMORY_COLUMNS.items()
            if key in keys or (key == b"kernel" and self._parts)
        )
        self._places = tuple((key, keys[key] + 1) for key in MEMORY_COLUMNS.values() if key in keys)

    def values(self, data: bytes) -> list[int]:
        """Return the numbers in the order of `columns`.

        Raises:
            ValueError, IndexError: the file has changed its form.
        """
        words = data.split()
        found = {}
        for key, index in self._places:
            if words[index - 1] != key:
                raise ValueError(key)
            found[key] = int(words[index])
        if self._parts:
            numbers = dict(zip(words[::2], words[1::2], strict=True))
            found[b"kernel"] = sum(int(numbers[part]) for part in self._parts)
        return [found[MEMORY_COLUMNS[column]] for column in self.columns]


class UnifiedReader:
    """Reads one v2 group; see `Reader`. What the group lacks has no column."""

    def __init__(
        self,
        directory: Path,
        inner: Path,
        before: Snapshot,
        roots: Roots,
        *,
        is_slow_only: bool = False,
    ) -> None:
        """Open every file that there is.

        Args:
            directory: The group whose counters are read.
            inner: Where the program's processes are.
            before: What counters start at.
            roots: Where the kernel's file systems are.
            is_slow_only: Never mind the fast table, which a hybrid host reads from v1.

        Raises:
            KernelError: there is no such group.
        """
        self._directory = directory
        self._files: list[KeptFile] = []
        self._disks = Disks(roots)
        self._baseline = before.as_columns()
        self.fast_columns: tuple[str, ...] = ()
        self.read_fast: Callable[[], list[int]] = list  # as many values as there are columns
        """Read CPU time, memory, tasks and I/O; `ABSENT` for what cannot be read."""
        self._open_slow(directory, inner)
        if not is_slow_only:
            self._open_fast(directory, roots)

    def _open_fast(self, directory: Path, roots: Roots) -> None:
        baseline = self._baseline
        memory = self._find(directory / "memory.current")
        pids = self._find(directory / "pids.current")
        io = self._find(directory / "io.stat")
        self._io_base = [baseline.get(column, 0) for column in IO_COLUMNS]
        self.fast_columns = (
            "cpu_usage_usec",
            *(("memory_current_bytes",) if memory else ()),
            *(("pids",) if pids else ()),
            *(IO_COLUMNS if io else ()),
        )
        read = FastFiles(
            self._cpu,
            baseline.get("cpu_usage_usec", 0),
            tuple(gauge for gauge in (memory, pids) if gauge),
            io,
            self._parse_io,
        ).read
        self.read_fast = read
        if io is None and has_process_io(roots.proc):
            from sandbox.kernel.stand_in import ProcessIo

            process_io = ProcessIo(self._find_pids, roots.proc)
            self.fast_columns += PROCESS_IO_COLUMNS
            self.read_fast = lambda: [*read(), *process_io.read()]

    def _open_slow(self, directory: Path, inner: Path) -> None:
        self._cpu = self._open(directory / "cpu.stat")
        present = parse_flat(self._cpu.read())
        self._cpu_columns = {column: key for column, key in CPU_COLUMNS.items() if key in present}
        self._memory = self._find(directory / "memory.stat")
        self._memory_stat = None if self._memory is None else MemoryStat(self._memory.read())
        self._swap = self._find(directory / "memory.swap.current")
        self._descendants = self._find(directory / "cgroup.stat")
        self._procs = self._find(inner / "cgroup.procs")
        self._pressures: list[tuple[KeptFile, tuple[tuple[int, int], ...]]] = []
        columns = [*self._cpu_columns]
        if self._memory_stat is not None:
            columns += self._memory_stat.columns
        if self._swap is not None:
            columns.append("memory_swap_bytes")
        columns.append("processes")
        for resource in RESOURCES:
            columns += self._open_pressure(directory, resource)
        self.slow_columns: tuple[str, ...] = tuple(columns)

    def _open_pressure(self, directory: Path, resource: str) -> list[str]:
        file = self._find(directory / f"{resource}.pressure")
        if file is None:
            return []
        try:
            totals = parse_pressure(file.read())
        except KernelError:  # switched off for this group
            return []
        names = [f"{resource}_pressure_{kind}_usec" for kind in ("some", "full")]
        present = tuple(index for index in (0, 1) if totals[index] is not None)
        bases = tuple((index, self._baseline.get(names[index], 0)) for index in present)
        self._pressures.append((file, bases))
        return [names[index] for index in present]

    def _open(self, path: Path) -> KeptFile:
        try:
            file = KeptFile(path)
        except KernelError:
            self.close()
            raise
        self._files.append(file)
        return file

    def _find(self, path: Path) -> KeptFile | None:
        """Open a file, or return None where it does not exist or cannot be read at all."""
        try:
            file = KeptFile(path)
        except KernelError:
            return None
        try:
            file.read()
        except KernelError:
            file.close()
            return None
        self._files.append(file)
        return file

    def _parse_io(self, data: bytes) -> list[int]:
        sums = self._disks.sums(data)
        return [now - base for now, base in zip(sums, self._io_base, strict=True)]

    def read_slow(self) -> list[int]:
        """Read CPU modes, throttling, what memory is made of, processes and pressure."""
        row = self._read_cpu()
        row += self._read_memory()
        row.append(self._count_processes())
        for file, bases in self._pressures:
            try:
                totals = parse_pressure(file.read())
            except KernelError:
                totals = (None, None)
            for index, base in bases:
                total = totals[index]
                row.append(ABSENT if total is None else total - base)
        return row

    def _read_cpu(self) -> list[int]:
        try:
            values = parse_flat(self._cpu.read())
        except KernelError:
            values = {}
        return [
            values[key] - self._baseline.get(column, 0) if key in values else ABSENT
            for column, key in self._cpu_columns.items()
        ]

    def _read_memory(self) -> list[int]:
        row: list[int] = []
        if self._memory is not None and self._memory_stat is not None:
            try:
                row += self._memory_stat.values(self._memory.read())
            except (KernelError, ValueError, IndexError, KeyError):
                row += [ABSENT] * len(self._memory_stat.columns)
        if self._swap is not None:
            try:
                row.append(int(self._swap.read()))
            except (KernelError, ValueError):
                row.append(ABSENT)
        return row

    def _count_processes(self) -> int:
        try:
            data = self._read_inner()
            return len(list_pids(self._directory)) if data is None else data.count(_LINE_END)
        except KernelError:
            return ABSENT

    def _find_pids(self) -> Iterable[int]:
        data = self._read_inner()
        return list_pids(self._directory) if data is None else map(int, data.split())

    def _read_inner(self) -> bytes | None:
        """Return the inner group's list, or None if the program has made groups of its own."""
        if self._descendants is None or self._procs is None:
            return None
        groups = parse_flat(self._descendants.read())
        return self._procs.read() if groups.get("nr_descendants") == 1 else None

    def close(self) -> None:
        """Close the descriptors."""
        for file in self._files:
            file.close()
