"""The columns and totals of a network beside those of a group."""

from __future__ import annotations

from typing import Any

from sandbox.analysis.phases import traffic_between
from sandbox.errors import KernelError
from sandbox.kernel.traffic import CountingReader
from sandbox.records.result import NetworkIo
from sandbox.records.sample import ABSENT, COLUMNS


class Reader:
    fast_columns = ("cpu_usage_usec",)
    slow_columns = ("processes",)
    is_closed = False

    def read_fast(self) -> list[int]:
        return [1]

    def read_slow(self) -> list[int]:
        return [2]

    def close(self) -> None:
        self.is_closed = True


class Traffic:
    def __init__(self, *readings: tuple[NetworkIo, ...] | Exception) -> None:
        self._readings = list(readings)

    def read(self) -> tuple[NetworkIo, ...]:
        found = self._readings.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def close(self) -> None:
        pass


def port(name: str, value: int, *, whole: bool = True) -> NetworkIo:
    more: dict[str, Any] = {}
    if whole:
        more = dict.fromkeys(("rx_errors", "tx_errors", "rx_dropped", "tx_dropped"), value)
    return NetworkIo(
        name=name, rx_bytes=value, tx_bytes=2 * value, rx_packets=value, tx_packets=value, **more
    )


def test_columns_count_from_the_start_and_add_interfaces_up() -> None:
    before = (port("a", 10),)
    reader = CountingReader(Reader(), Traffic((port("a", 15), port("b", 7))), before)

    assert set(reader.slow_columns) <= set(COLUMNS)
    row = dict(zip(reader.slow_columns, reader.read_slow(), strict=True))
    assert row["processes"] == 2
    assert (row["net_rx_bytes"], row["net_tx_bytes"], row["net_rx_dropped"]) == (12, 24, 12)
    assert reader.fast_columns == ("cpu_usage_usec",)
    assert reader.read_fast() == [1]


def test_what_is_not_counted_has_no_column() -> None:
    reader = CountingReader(
        Reader(), Traffic((port("host", 3, whole=False),)), (port("host", 1, whole=False),)
    )

    assert reader.slow_columns == (
        "processes",
        "net_rx_bytes",
        "net_tx_bytes",
        "net_rx_packets",
        "net_tx_packets",
    )
    assert reader.read_slow() == [2, 2, 4, 2, 2]


def test_a_reading_that_fails_is_absent_and_the_group_is_not() -> None:
    reader = CountingReader(Reader(), Traffic(KernelError("gone")), (port("a", 1),))

    assert reader.read_slow() == [2, *[ABSENT] * 8]


def test_without_an_interface_nothing_has_passed() -> None:
    reader = CountingReader(Reader(), Traffic(()), ())

    assert reader.read_slow() == [2, *[0] * 8]


def test_totals_are_by_interface() -> None:
    now = (port("a", 15), port("b", 7))

    assert traffic_between((port("a", 10),), now) == (port("a", 5), port("b", 7))
