"""What the doctor reads of the rules of packets, in networks of the tests' own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

# Makes what the test asks for, then lets the doctor look.
SCRIPT = """
import runpy, sys
from pyroute2 import IPRoute
from pyroute2.nftables.main import NFTables

kind = sys.argv[1]
if kind != "bare":
    with IPRoute() as route:
        route.link("add", ifname="up0", kind="veth", peer="up1")
        index = route.link_lookup(ifname="up0")[0]
        route.addr("add", index=index, address="192.0.2.2", prefixlen=24)
        route.link("set", index=index, state="up")
        route.route("add", dst="default", gateway="192.0.2.1")
if kind == "closed":
    with NFTables(nfgen_family=2) as tables:
        tables.table("add", name="other")
        tables.chain("add", table="other", name="forward", hook="forward", type="filter", policy=0)
sys.argv = ["sandbox", "doctor", "--json", "network"]
runpy.run_module("sandbox", run_name="__main__")
"""

pytestmark = [
    pytest.mark.both,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a network"),
]


def look(kind: str) -> dict[str, Any]:
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", SCRIPT, kind],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout, done.stderr
    return {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}


@pytest.mark.parametrize(
    ("kind", "state", "why"),
    [
        ("bare", "skip", "no default route"),
        ("open", "ok", "by up0"),
        ("closed", "warn", "`ip other` of another firewall"),
    ],
)
def test_the_way_out_is_judged(kind: str, state: str, why: str) -> None:
    found = look(kind)

    assert found["private-network"]["state"] == "ok"
    assert found["way-out"]["state"] == state
    assert why in found["way-out"]["why"]
