"""A run's record to one row of a profile and to the samples of its file; a stream."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from sandbox.analysis.docker import memory_limit
from sandbox.analysis.in_force import memory_in_force_bytes
from sandbox.analysis.windows import WINDOW_NS, Windows
from sandbox.records.light import replace
from sandbox.records.profile import ModelProfile, ProfileSample
from sandbox.records.result import RunResult, Totals
from sandbox.records.sample import ABSENT, TIME, Block, Table

_NS_PER_USEC = 1_000
_NS_PER_MS = 1_000_000
_FAST = ("cpu_usage_usec", "memory_current_bytes", "io_read_bytes", "io_write_bytes")
_INACTIVE = "memory_inactive_file_bytes"
_NETWORK = ("net_rx_bytes", "net_tx_bytes")
_PERCENT = 100.0

Reading = tuple[int | None, ...]


def profile_of(
    result: RunResult,
    blocks: Iterable[Block],
    *,
    name: str,
    model: str | None,
    step_ns: int,
) -> tuple[ModelProfile, tuple[ProfileSample, ...]]:
    """Return the row of a run that has ended, and its samples at every step and at the end."""
    wall_ns = result.wall_ns or 0
    count = max(-(-wall_ns // step_ns), 1) if wall_ns else 0
    ends = [min((index + 1) * step_ns, wall_ns) + result.started_ns for index in range(count)]
    fast, slow = _Steps(_FAST, ends), _Steps((_INACTIVE, *_NETWORK), ends)
    inactive, windows = _Mean(_INACTIVE), Windows()
    for block in blocks:
        if block.table is Table.FAST:
            fast.add(block)
            _add_windows(windows, block)
        else:
            slow.add(block)
            inactive.add(block)
    row = _row(result, name=name, model=model)
    mean = None if result.summary is None else result.summary.memory_mean_bytes
    if mean is not None:
        mean = max(mean - (inactive.value() or 0), 0)
    row = replace(
        row, memory_mean_bytes=mean, cpu_peak_percent=_peak_percent(row, windows, wall_ns)
    )
    return row, _samples(result, ends, fast.readings(), slow.readings())


def _row(result: RunResult, *, name: str, model: str | None) -> ModelProfile:
    totals, summary = result.totals, result.summary
    cpus = None if summary is None else summary.cpu_mean
    return ModelProfile(
        name=name,
        model=model,
        run_id=result.run_id,
        outcome=result.outcome,
        exit_code=result.exit_code,
        reason=result.reason,
        cpu_mean_percent=None if cpus is None else cpus * _PERCENT,
        throttled_ratio=None if summary is None else summary.throttled_ratio,
        memory_limit_bytes=memory_limit(
            memory_in_force_bytes(result), result.host.memory_total_bytes
        ),
        memory_peak_bytes=totals.memory_peak_bytes,
        net_received_bytes=_passed(totals, "rx_bytes"),
        net_sent_bytes=_passed(totals, "tx_bytes"),
        read_bytes=None if summary is None else summary.io_read_bytes,
        write_bytes=None if summary is None else summary.io_write_bytes,
        wall_ns=result.wall_ns,
    )


def _passed(totals: Totals, name: str) -> int | None:
    """Return what all interfaces have counted together; None where nothing has."""
    return None if totals.network is None else sum(getattr(port, name) for port in totals.network)


def _peak_percent(row: ModelProfile, windows: Windows, wall_ns: int) -> float | None:
    """Return the busiest second's; a run that was shorter is its own busiest."""
    mean, peak = row.cpu_mean_percent, windows.max_cpus()
    if wall_ns < WINDOW_NS or peak is None:
        return mean if wall_ns < WINDOW_NS else None
    # The mean is of exact totals, a window of samples: it never is below the mean in truth.
    return max(peak * _PERCENT, mean or 0.0)


def _add_windows(windows: Windows, block: Block) -> None:
    times, usage = block.column(TIME), block.column("cpu_usage_usec")
    if times is None or usage is None:
        return
    pairs = [pair for pair in zip(times, usage, strict=True) if pair[1] != ABSENT]
    windows.add([time for time, _ in pairs], [used for _, used in pairs])


def _samples(
    result: RunResult, ends: Sequence[int], fast: Sequence[Reading], slow: Sequence[Reading]
) -> tuple[ProfileSample, ...]:
    samples = []
    before_ns, before_usec = result.started_ns, 0
    for end_ns, (usage, current, read, write), rest in zip(ends, fast, slow, strict=True):
        inactive, received, sent = rest
        percent = None
        if usage is not None and end_ns > before_ns:
            percent = max(usage - before_usec, 0) * _NS_PER_USEC / (end_ns - before_ns) * _PERCENT
            before_usec = usage
        before_ns = end_ns
        samples.append(
            ProfileSample(
                utc_ms=(result.started_utc_ns + end_ns - result.started_ns) // _NS_PER_MS,
                cpu_percent=percent,
                memory_bytes=None if current is None else max(current - (inactive or 0), 0),
                read_bytes=read,
                write_bytes=write,
                net_received_bytes=received,
                net_sent_bytes=sent,
            )
        )
    return tuple(samples)


class _Steps:
    """The last reading of some columns at or before each end of a step."""

    def __init__(self, names: Sequence[str], ends: Sequence[int]) -> None:
        self._names = names
        self._ends = ends
        self._found: list[Reading] = []
        self._last: Reading = (None,) * len(names)

    def add(self, block: Block) -> None:
        times = block.column(TIME)
        columns = [block.column(name) for name in self._names]
        for place, time_ns in enumerate(times or ()):
            while len(self._found) < len(self._ends) and time_ns > self._ends[len(self._found)]:
                self._found.append(self._last)
            self._last = tuple(
                _value(column, place, last)
                for column, last in zip(columns, self._last, strict=True)
            )

    def readings(self) -> list[Reading]:
        """Return one for each end; after the last sample there is no other than that."""
        missing = len(self._ends) - len(self._found)
        return [*self._found, *[self._last] * missing]


def _value(column: array[int] | None, place: int, last: int | None) -> int | None:
    if column is None:
        return None
    return last if column[place] == ABSENT else column[place]


class _Mean:
    """The mean of a gauge, weighted by time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._area = 0
        self._first: int | None = None
        self._last: tuple[int, int] | None = None

    def add(self, block: Block) -> None:
        times, values = block.column(TIME), block.column(self._name)
        if times is None or values is None:
            return
        for time_ns, value in zip(times, values, strict=True):
            if value == ABSENT:
                continue
            if self._last is None:
                self._first = time_ns
            else:
                self._area += (time_ns - self._last[0]) * (value + self._last[1]) // 2
            self._last = (time_ns, value)

    def value(self) -> int | None:
        if self._last is None or self._first is None:
            return None
        span = self._last[0] - self._first
        return self._area // span if span else self._last[1]
