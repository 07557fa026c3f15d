"""What this host's network has for runs with a network of their own.

The way out is looked up by pyroute2: its fifth of a second of imports does not matter to whoever
waits for an answer; the start of a run speaks to the kernel by itself (`netlink`).
"""

from __future__ import annotations

import shutil
import socket
from contextlib import closing

from sandbox.kernel.netlink import NETFILTER, Netlink
from sandbox.kernel.nftables import find_closed
from sandbox.kernel.private_network import PREFIX
from sandbox.records.light import dataclass

_CARRIERS = ("pasta", "slirp4netns")


@dataclass(frozen=True, kw_only=True)
class NetworkFacts:
    """One host's network as one user sees it."""

    uplink: str | None
    """The interface of the default route of IPv4."""
    carrier: str | None
    """The program that carries packets for a plain user, if one is installed."""
    rules_problem: str | None = None
    """Why the rules of packets cannot be read; as root they cannot be made then either."""
    closed_tables: tuple[str, ...] = ()
    """Tables of other firewalls that drop what runs send beyond this host, such as `ip filter`."""


UNKNOWN_NETWORK = NetworkFacts(uplink=None, carrier=None)


def read_network() -> NetworkFacts:
    """Return what there is; nothing is changed, and nothing is sent anywhere."""
    problem: str | None = None
    closed: tuple[str, ...] = ()
    try:
        with closing(Netlink(NETFILTER)) as filters:
            closed = tuple(dict.fromkeys(find_closed(filters, PREFIX)))
    except OSError as exc:
        problem = exc.strerror or str(exc)
    return NetworkFacts(
        uplink=_find_uplink(),
        carrier=next((name for name in _CARRIERS if shutil.which(name)), None),
        rules_problem=problem,
        closed_tables=closed,
    )


def _find_uplink() -> str | None:
    from pyroute2 import IPRoute

    with IPRoute() as route:
        for found in route.get_default_routes(family=socket.AF_INET):
            for link in route.get_links(found.get_attr("RTA_OIF")):
                return str(link.get_attr("IFLA_IFNAME"))
    return None
