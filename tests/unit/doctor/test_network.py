"""What the doctor says of networks of runs' own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sandbox.kernel.network_facts import NetworkFacts
from sandbox.records.finding import Finding
from sandbox.records.light import replace

Judge = Callable[..., None]


def find(host: Any, name: str, **network: Any) -> Finding:
    values = {"uplink": "eth0", "carrier": None, **network}
    finding: Finding = host.find(name, replace(host.facts(), network=NetworkFacts(**values)))
    return finding


def test_root_needs_rules_of_packets(host: Any, judge: Judge) -> None:
    judge(find(host, "private-network"), "ok", "rules of each run's own")
    judge(find(host, "private-network", rules_problem="EPERM"), "warn", "EPERM", "sudo modprobe -a")
    judge(find(host, "way-out", rules_problem="EPERM"), "skip", "cannot be read")


def test_a_plain_user_needs_a_carrier(host: Any, judge: Judge) -> None:
    host.become(1000)

    judge(find(host, "private-network"), "warn", "pasta or slirp4netns", "sudo apt install passt")
    judge(find(host, "private-network", carrier="pasta"), "ok", "pasta carries")
    judge(find(host, "way-out"), "ok", "this user's own connections")


def test_another_firewall_stands_in_the_way(host: Any, judge: Judge) -> None:
    judge(find(host, "way-out"), "ok", "by eth0; no other firewall")

    closed = ("ip filter", "inet firewalld")
    found = find(host, "way-out", closed_tables=closed)
    judge(found, "warn", "`ip filter`, `inet firewalld`", "-I FORWARD -i sbx+ -j ACCEPT")


def test_a_host_that_leads_nowhere(host: Any, judge: Judge) -> None:
    judge(find(host, "way-out", uplink=None), "skip", "no default route")
