"""Rows of `sandbox stats` as docker shows them, to the letter, and wider.

Docker's columns use docker's formulas; the wide ones go by the wall clock, and their headings
state the base. What cannot be told is `--`; a sandbox that has ended is all zeros, as docker's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from sandbox.analysis.docker import (
    UNAVAILABLE,
    docker_cpu_percent,
    format_binary,
    format_decimal,
    format_io,
    format_memory,
    format_percent,
    io_sum,
    mem_percent,
    mem_used,
    memory_limit,
    short_id,
)
from sandbox.analysis.live import LiveUsage, growth, live_usage, whose_network
from sandbox.records.stats import State, StatsReading, StatsRow
from sandbox.report.gotemplate.values import Record
from sandbox.report.style import printable
from sandbox.report.template import Format

DOCKER_TABLE = (
    r"{{.ID}}\t{{.Name}}\t{{.CPUPerc}}\t{{.MemUsage}}\t{{.MemPerc}}"
    r"\t{{.NetIO}}\t{{.BlockIO}}\t{{.PIDs}}"
)
WIDE_TABLE = (
    r"{{.ID}}\t{{.Name}}\t{{.CPUPerc}}\t{{.CPUWallPerc}}\t{{.CPULimitPerc}}\t{{.Throttled}}\t{{.MemUsage}}"
    r"\t{{.MemPerc}}\t{{.MemPeak}}\t{{.Swap}}\t{{.CPUPressure}}\t{{.MemPressure}}"
    r"\t{{.IOPressure}}\t{{.Network}}\t{{.NetIO}}\t{{.BlockIO}}\t{{.BlockRate}}\t{{.IOPS}}\t{{.Processes}}"
    r"\t{{.PIDs}}"
)
HEADINGS = {
    "BlockIO": "BLOCK I/O",
    "CPUPerc": "CPU %",
    "Container": "CONTAINER",
    "ID": "CONTAINER ID",
    "MemPerc": "MEM %",
    "MemUsage": "MEM USAGE / LIMIT",
    "Name": "NAME",
    "NetIO": "NET I/O",
    "PIDs": "PIDS",
}
WIDE_HEADINGS = {
    "BlockRate": "READ / WRITE PER S",
    "CPULimitPerc": "CPU % OF LIMIT",
    "CPUPressure": "CPU STALL",
    "CPUWallPerc": "CPU % BY CLOCK",
    "IOPS": "IOPS R / W",
    "IOPressure": "I/O STALL",
    "MemPeak": "MEM PEAK",
    "MemPressure": "MEM STALL",
    "Network": "NETWORK",
    "Processes": "PROCESSES",
    "State": "STATE",
    "Swap": "SWAP",
    "Throttled": "THROTTLED",
}
_ENDED = {State.CREATED, State.EXITED, State.DEAD}


class StatsView:
    """One way to show rows, parsed once and used for every refresh."""

    def __init__(self, format_text: str = "", *, truncate: bool = True, wide: bool = False) -> None:
        """Take `table`, `json`, `table TEMPLATE` or a template; nothing means `table`.

        Raises:
            SpecError: the template cannot be parsed.
        """
        table = WIDE_TABLE if wide else DOCKER_TABLE
        self._format = Format(format_text, default_table=table)
        self._record = partial(stats_record, truncate=truncate, wide=wide)

    def render(self, rows: Iterable[StatsRow]) -> str:
        """Return the rows as text that ends in a newline; a table has headings also when empty.

        Raises:
            SpecError: the template asks for what a row lacks.
        """
        return self._format.render(map(self._record, rows), {**HEADINGS, **WIDE_HEADINGS})


def stats_record(row: StatsRow, *, truncate: bool = True, wide: bool = False) -> Record:
    """Return a row as templates and `json` see it: docker's fields, with `wide` ours as well.

    A template can always name ours; `wide` decides whether `json` writes them too.
    """
    names = (*HEADINGS, *WIDE_HEADINGS) if wide else tuple(HEADINGS)
    return Record(
        type_name="stats",
        getters=_SHORT_GETTERS if truncate else _GETTERS,
        source=_Source(row),
        json_names=names,
    )


# --- docker's columns -----------------------------------------------------------------------------


def docker_cpu(row: StatsRow) -> float | None:
    """Return docker's CPU %, or None before the second reading."""
    now, before = row.now, row.before
    if now is None or before is None or now.cpus_online is None:
        return None
    cpu_ns = growth(before.cpu_usage_ns, now.cpu_usage_ns)
    system_ns = growth(before.host_cpu_ns, now.host_cpu_ns)
    if cpu_ns is None or system_ns is None:
        return None
    return docker_cpu_percent(cpu_ns, system_ns, now.cpus_online)


def docker_memory(row: StatsRow) -> tuple[int, int] | None:
    """Return docker's MEM USAGE and LIMIT in bytes, or None if memory cannot be told."""
    if row.now is None or row.now.memory_usage_bytes is None:
        return None
    used = mem_used(row.now.memory_usage_bytes, row.now.memory_stat or {})
    return used, memory_limit(row.memory_limit_bytes, row.host_memory_bytes)


class _Source:
    """What the columns of one row are made from: the row, and its rates once they are asked for."""

    def __init__(self, row: StatsRow) -> None:
        self.row = row
        self._usage: LiveUsage | None = None
        self._is_known = False

    def usage(self) -> LiveUsage | None:
        if not self._is_known:
            self._usage, self._is_known = live_usage(self.row), True
        return self._usage


_Getter = Callable[[_Source], str]
_PAIR = f"{UNAVAILABLE} / {UNAVAILABLE}"


def _reading(
    absent: str, zero: str
) -> Callable[[Callable[[StatsRow, StatsReading], str]], _Getter]:
    """Let a column show what it does for rows without a reading: nothing known, or the end."""

    def decorate(column: Callable[[StatsRow, StatsReading], str]) -> _Getter:
        def getter(source: _Source) -> str:
            row = source.row
            if row.now is not None:
                return column(row, row.now)
            return zero if row.state in _ENDED else absent

        return getter

    return decorate


def _id(source: _Source) -> str:
    return source.row.id


def _short_id(source: _Source) -> str:
    return short_id(source.row.id)


def _container(source: _Source) -> str:
    return source.row.asked


def _name(source: _Source) -> str:
    return printable(source.row.name.removeprefix("/")) or UNAVAILABLE


@_reading(UNAVAILABLE, "0.00%")
def _cpu(row: StatsRow, _: StatsReading) -> str:
    return format_percent(docker_cpu(row))


@_reading(_PAIR, "0B / 0B")
def _memory(row: StatsRow, _: StatsReading) -> str:
    return format_memory(*(docker_memory(row) or (None, None)))


@_reading(UNAVAILABLE, "0.00%")
def _memory_percent(row: StatsRow, _: StatsReading) -> str:
    memory = docker_memory(row)
    return format_percent(None if memory is None else mem_percent(*memory))


@_reading(UNAVAILABLE, "0B / 0B")
def _network(_: StatsRow, now: StatsReading) -> str:
    if now.network is None:
        return UNAVAILABLE
    return format_io(
        sum(interface.rx_bytes for interface in now.network),
        sum(interface.tx_bytes for interface in now.network),
    )


@_reading(UNAVAILABLE, "0B / 0B")
def _block(_: StatsRow, now: StatsReading) -> str:
    return UNAVAILABLE if now.io is None else format_io(*io_sum(now.io))


@_reading(UNAVAILABLE, "0")
def _pids(_: StatsRow, now: StatsReading) -> str:
    return _count(now.pids)


# --- our columns ----------------------------------------------------------------------------------


def _live(absent: str, zero: str) -> Callable[[Callable[[LiveUsage], str]], _Getter]:
    """Let a column of rates show what it does before the second reading, and after the end."""

    def decorate(column: Callable[[LiveUsage], str]) -> _Getter:
        def getter(source: _Source) -> str:
            if source.row.now is None and source.row.state in _ENDED:
                return zero
            usage = source.usage()
            return absent if usage is None else column(usage)

        return getter

    return decorate


def _live_percent(name: str) -> _Getter:
    @_live(UNAVAILABLE, "0.00%")
    def column(usage: LiveUsage) -> str:
        return format_percent(getattr(usage, name))

    return column


@_live(_PAIR, "0B/s / 0B/s")
def _block_rate(usage: LiveUsage) -> str:
    if usage.read_bytes_per_sec is None or usage.write_bytes_per_sec is None:
        return _PAIR
    read, write = usage.read_bytes_per_sec, usage.write_bytes_per_sec
    return f"{format_decimal(read)}/s / {format_decimal(write)}/s"


@_live(_PAIR, "0 / 0")
def _iops(usage: LiveUsage) -> str:
    if usage.read_ops_per_sec is None or usage.write_ops_per_sec is None:
        return _PAIR
    return f"{usage.read_ops_per_sec:.0f} / {usage.write_ops_per_sec:.0f}"


@_reading(UNAVAILABLE, UNAVAILABLE)
def _peak(_: StatsRow, now: StatsReading) -> str:
    return _size(now.memory_peak_bytes)


@_reading(UNAVAILABLE, "0B")
def _swap(_: StatsRow, now: StatsReading) -> str:
    return _size(now.swap_bytes)


@_reading(UNAVAILABLE, UNAVAILABLE)
def _whose_network(row: StatsRow, _: StatsReading) -> str:
    return whose_network(row) or UNAVAILABLE


@_reading(UNAVAILABLE, "0")
def _processes(_: StatsRow, now: StatsReading) -> str:
    return _count(now.processes)


def _state(source: _Source) -> str:
    return source.row.state.value


def _size(size_bytes: int | None) -> str:
    return UNAVAILABLE if size_bytes is None else format_binary(size_bytes)


def _count(number: int | None) -> str:
    return UNAVAILABLE if number is None else str(number)


_GETTERS: Mapping[str, _Getter] = {
    "BlockIO": _block,
    "BlockRate": _block_rate,
    "CPULimitPerc": _live_percent("cpu_of_limit_percent"),
    "CPUPerc": _cpu,
    "CPUPressure": _live_percent("cpu_pressure_percent"),
    "CPUWallPerc": _live_percent("cpu_percent"),
    "Container": _container,
    "ID": _id,
    "IOPS": _iops,
    "IOPressure": _live_percent("io_pressure_percent"),
    "MemPeak": _peak,
    "MemPerc": _memory_percent,
    "MemPressure": _live_percent("memory_pressure_percent"),
    "MemUsage": _memory,
    "Name": _name,
    "NetIO": _network,
    "Network": _whose_network,
    "PIDs": _pids,
    "Processes": _processes,
    "State": _state,
    "Swap": _swap,
    "Throttled": _live_percent("throttled_percent"),
}
_SHORT_GETTERS: Mapping[str, _Getter] = {**_GETTERS, "ID": _short_id}
