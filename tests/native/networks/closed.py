"""A firewall of somebody else's that drops what is forwarded, until stdin ends."""

from __future__ import annotations

import sys
from contextlib import closing

from sandbox.kernel import netlink
from sandbox.kernel.netlink import Netlink, attribute, nested, text

HEAD = b"\x02\x00\x00\x00"
MARK = b"\x00\x00\x00\x0a"
HOOK = nested(4, attribute(1, b"\0\0\0\2"), attribute(2, b"\0\0\0\0"))

with closing(Netlink(netlink.NETFILTER)) as rules:
    owned = attribute(2, b"\0\0\0\2")
    chain = text(1, "theirs") + text(3, "FORWARD") + HOOK + attribute(5, b"\0\0\0\0")
    rules.batch(
        [
            (0x10, MARK, 0),
            (0xA00, HEAD + text(1, "theirs") + owned, netlink.CREATE),
            (0xA03, HEAD + chain + text(7, "filter"), netlink.CREATE),
            (0x11, MARK, 0),
        ]
    )
    print("closed", flush=True)
    sys.stdin.read()
