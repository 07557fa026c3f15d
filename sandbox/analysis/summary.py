"""Totals and samples of a run to its summary, as a stream in bounded memory.

Totals are exact however short the run is. What needs samples is None where there are none.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import compress
from operator import add, mul, sub

from sandbox.analysis.in_force import cpus_in_force
from sandbox.analysis.memory import need_of, split_of
from sandbox.analysis.nearest import Nearest
from sandbox.analysis.windows import SHORTEST_RUN_NS, WINDOW_NS, Windows
from sandbox.records.result import RunResult, Summary
from sandbox.records.sample import ABSENT, TIME, Block, Table

_NS_PER_USEC = 1_000
_COLD_SHARE = 0.25
_COLD_BYTES = 4 << 20
_UNEXPLAINED_BYTES = 16 << 20
_IO = ("io_read_bytes", "io_write_bytes", "io_read_ops", "io_write_ops")


def summarize(result: RunResult, blocks: Iterable[Block]) -> Summary:
    """Return the numbers of a run, from its totals and from its samples in order of time.

    Of a run whose totals were lost with its supervisor the last samples take their place.
    """
    fast, slow = _Fast(result), _Slow()
    split, at_split = Nearest(), Nearest()
    for block in blocks:
        if block.table is Table.FAST:
            fast.add(block)
            at_split.add(block)
            if fast.peak_time_ns is not None:
                split.aim(fast.peak_time_ns)
        else:
            slow.add(block)
            split.add(block)
        if split.row is not None:
            at_split.aim(split.row[TIME])
    io = _io_totals(result, fast)
    windowed = _has_windows(result, fast)
    memory_split = split_of(split.row, at_split.row)
    peak_bytes = _peak_bytes(result, fast)
    return Summary(
        cpu_mean=_cpu_mean(result, fast),
        cpu_p95=fast.windows.p95_cpus() if windowed else None,
        cpu_max=fast.windows.max_cpus() if windowed else None,
        cpu_limit=cpus_in_force(result),
        throttled_ratio=_throttled_ratio(result),
        memory_mean_bytes=fast.memory_mean_bytes(),
        memory_peak_sampled_bytes=fast.peak_bytes,
        memory_peak_time_ns=fast.peak_time_ns,
        memory_split=memory_split,
        memory_need_bytes=need_of(slow.need_bytes, memory_split, peak_bytes),
        memory_cache_bytes=slow.cache_bytes,
        page_cache=page_cache_state(io["io_read_bytes"], slow.cache_bytes),
        io_read_bytes=io["io_read_bytes"],
        io_write_bytes=io["io_write_bytes"],
        io_read_ops=io["io_read_ops"],
        io_write_ops=io["io_write_ops"],
        processes_peak=slow.processes_peak,
        samples=fast.rows,
    )


def page_cache_state(read_bytes: int | None, cache_bytes: int | None) -> str | None:
    """Return `cold` or `warm`, or None if it cannot be told.

    Cold: at least 4 MiB were read from block devices, and at least a quarter of the page cache
    that the run was charged for. Not to be told: more than 16 MiB of page cache were neither read
    from a block device nor there before; the run wrote them, or their file system's reads are not
    accounted to a device (network and host-shared file systems).
    """
    if read_bytes is None or cache_bytes is None:
        return None
    if read_bytes >= _COLD_BYTES and read_bytes >= _COLD_SHARE * cache_bytes:
        return "cold"
    return None if cache_bytes - read_bytes > _UNEXPLAINED_BYTES else "warm"


class _Fast:
    """What the fast table gives."""

    def __init__(self, result: RunResult) -> None:
        self.windows = Windows()
        self.windows.add([result.started_ns], [0])  # counters start at 0 when the program does
        self.rows = 0
        self.peak_bytes: int | None = None
        self.peak_time_ns: int | None = None
        self.last: dict[str, int] = {}
        self._started_ns = result.started_ns
        self._weighted = 0  # byte-nanoseconds, doubled
        self._weight_ns = 0
        self._memory_end: tuple[int, int] | None = None

    def add(self, block: Block) -> None:
        times = block.column(TIME)
        if not times:
            return
        self.rows += len(times)
        for name, column in zip(block.columns, block.data, strict=True):
            if column[-1] != ABSENT:
                self.last[name] = column[-1]
        usage = _present(times, block.column("cpu_usage_usec"))
        if usage is not None:
            self._add_cpu(*usage)
        memory = _present(times, block.column("memory_current_bytes"))
        if memory is not None:
            self._add_memory(*memory)

    def _add_cpu(self, times: array[int], usage: array[int]) -> None:
        if times[0] < self._started_ns:  # the baseline's own sample
            first = next((i for i, t in enumerate(times) if t >= self._started_ns), len(times))
            times, usage = times[first:], usage[first:]
        self.windows.add(times, usage)

    def _add_memory(self, times: array[int], memory: array[int]) -> None:
        peak = max(memory)
        if self.peak_bytes is None or peak > self.peak_bytes:
            self.peak_bytes = peak
            self.peak_time_ns = times[memory.index(peak)]
        if self._memory_end is not None:
            times = array("q", (self._memory_end[0],)) + times
            memory = array("q", (self._memory_end[1],)) + memory
        steps = map(sub, times[1:], times)
        self._weighted += sum(map(mul, map(add, memory, memory[1:]), steps))
        self._weight_ns += times[-1] - times[0]
        self._memory_end = (times[-1], memory[-1])

    def memory_mean_bytes(self) -> int | None:
        """Return the mean under straight lines between the samples; None for fewer than two."""
        if self._weight_ns <= 0:
            return None
        return round(self._weighted / 2 / self._weight_ns)


class _Slow:
    """What the slow table gives."""

    def __init__(self) -> None:
        self.need_bytes: int | None = None
        self.cache_bytes: int | None = None
        self.processes_peak: int | None = None

    def add(self, block: Block) -> None:
        anon, file = block.column("memory_anon_bytes"), block.column("memory_file_bytes")
        shmem, kernel = block.column("memory_shmem_bytes"), block.column("memory_kernel_bytes")
        if anon:
            parts = [part for part in (anon, shmem, kernel) if part is not None]
            self.need_bytes = _largest(self.need_bytes, _sums(parts))
        if file and shmem:
            cache = [f - s for f, s in zip(file, shmem, strict=True) if ABSENT not in {f, s}]
            self.cache_bytes = _largest(self.cache_bytes, cache)
        processes = block.column("processes")
        if processes:
            seen = [number for number in processes if number != ABSENT]
            self.processes_peak = _largest(self.processes_peak, seen)


def _present(times: array[int], values: array[int] | None) -> tuple[array[int], array[int]] | None:
    """Return times and values without the readings that failed, or None if none is left."""
    if values is None:
        return None
    if min(values) != ABSENT:
        return times, values
    kept = [value != ABSENT for value in values]
    if not any(kept):
        return None
    return array("q", compress(times, kept)), array("q", compress(values, kept))


def _sums(parts: Sequence[array[int]]) -> list[int]:
    return [sum(row) for row in zip(*parts, strict=True) if ABSENT not in row]


def _largest(known: int | None, values: Sequence[int]) -> int | None:
    if not values:
        return known
    return max(values) if known is None else max(known, *values)


def _peak_bytes(result: RunResult, fast: _Fast) -> int | None:
    peaks = [
        peak for peak in (result.totals.memory_peak_bytes, fast.peak_bytes) if peak is not None
    ]
    return max(peaks, default=None)


def _seen_ns(result: RunResult, fast: _Fast) -> int:
    """Return how much of the run the samples saw."""
    return fast.last.get(TIME, result.started_ns) - result.started_ns


def _has_windows(result: RunResult, fast: _Fast) -> bool:
    """Return whether the run is long enough for windows, and was sampled within each of them."""
    interval_ns = result.spec.get("interval_ns")
    if isinstance(interval_ns, int) and interval_ns > WINDOW_NS:
        return False
    wall_ns = _seen_ns(result, fast) if result.wall_ns is None else result.wall_ns
    return wall_ns >= SHORTEST_RUN_NS


def _cpu_mean(result: RunResult, fast: _Fast) -> float | None:
    used, wall_ns = result.totals.cpu_usage_usec, result.wall_ns
    if wall_ns is None:  # the supervisor was lost: as far as the samples go
        used, wall_ns = fast.last.get("cpu_usage_usec"), _seen_ns(result, fast)
    if used is None or wall_ns <= 0:
        return None
    return used * _NS_PER_USEC / wall_ns


def _throttled_ratio(result: RunResult) -> float | None:
    periods, throttled = result.totals.cpu_periods, result.totals.cpu_throttled_periods
    if not periods or throttled is None:  # without a quota there are no periods
        return None
    return throttled / periods


def _io_totals(result: RunResult, fast: _Fast) -> dict[str, int | None]:
    devices = result.totals.io
    if devices is None:
        return {name: fast.last.get(name) for name in _IO}
    return {
        "io_read_bytes": sum(device.read_bytes for device in devices),
        "io_write_bytes": sum(device.write_bytes for device in devices),
        "io_read_ops": sum(device.read_ops for device in devices),
        "io_write_ops": sum(device.write_ops for device in devices),
    }
