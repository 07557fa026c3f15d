"""What the reports say of a run's network: sums, interfaces, and why there is nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sandbox.records.result import NetworkIo, RunResult, Totals
from sandbox.report.details import render_details
from sandbox.report.table import render_result

Runs = dict[str, RunResult]
ETH = NetworkIo(
    name="eth0",
    rx_bytes=3 << 20,
    tx_bytes=512,
    rx_packets=2200,
    tx_packets=4,
    rx_errors=0,
    tx_errors=0,
    rx_dropped=7,
    tx_dropped=0,
)
HOST = NetworkIo(name="host", rx_bytes=1024, tx_bytes=0, rx_packets=1, tx_packets=0)


def with_network(result: RunResult, *ports: NetworkIo) -> RunResult:
    return replace(result, totals=replace(result.totals, network=ports), unavailable={})


def table(result: RunResult) -> str:
    return render_result(result, width=80, color=False, unicode=True)


def details(result: RunResult) -> str:
    return render_details(result, width=100, color=False, unicode=True)


@pytest.mark.parametrize(
    ("ports", "line"),
    [
        ((ETH, HOST), "network      received 3 MiB, sent 512 B"),
        ((replace(HOST, rx_bytes=0),), "network      nothing received or sent"),
        ((), "network      none"),
    ],
)
def test_the_table_has_one_line_for_all_interfaces(
    runs: Runs, ports: tuple[NetworkIo, ...], line: str
) -> None:
    text = table(with_network(runs["inference"], *ports))

    assert line in text.splitlines()
    assert "unavailable" not in text


def test_the_details_have_each_interface_and_only_the_troubles_there_were(runs: Runs) -> None:
    text = details(with_network(runs["inference"], ETH, HOST))

    label = "eth0".ljust(23)
    assert f"{label}received 3 MiB in 2200 packets, sent 512 B in 4 packets, 7 dropped" in text
    label = "host".ljust(23)
    assert f"{label}received 1 KiB in 1 packet, sent 0 B in 0 packets\n" in text
    assert "Unavailable" not in text


def test_without_an_interface_the_details_say_so(runs: Runs) -> None:
    assert "none but the loopback" in details(with_network(runs["inference"]))


@pytest.mark.parametrize("render", [table, details])
def test_what_nothing_has_counted_is_unavailable_with_its_reason(
    runs: Runs, render: Callable[[RunResult], str]
) -> None:
    result = replace(runs["inference"], totals=Totals(), unavailable={"network": "BPF is off"})

    text = " ".join(render(result).split())

    assert "BPF is off" in text
    assert "received" not in text
