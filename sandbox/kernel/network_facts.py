"""What this host's network has for runs with a network of their own, read by pyroute2.

Its tenth of a second of imports does not matter to whoever waits for an answer; the start of a run
speaks to the kernel by itself (`netlink`).
"""

from __future__ import annotations

import errno
import shutil
import socket
from collections.abc import Iterator
from typing import Any

from sandbox.kernel.private_network import PREFIX
from sandbox.records.light import dataclass

_CARRIERS = ("pasta", "slirp4netns")
_FAMILIES = {"ip": 2, "inet": 1}  # NFPROTO_IPV4 and NFPROTO_INET
_HOOK_FORWARD, _DROP = 2, 0


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
        closed = tuple(_find_closed_tables())
    except OSError as exc:
        problem = exc.strerror or str(exc)
    except Exception as exc:  # noqa: BLE001 - pyroute2 has errors of its own, with a number
        number = getattr(exc, "code", None)
        problem = f"{exc}" if number is None else errno.errorcode.get(number, f"{number}")
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


def _find_closed_tables() -> Iterator[str]:
    """Yield the tables that drop whatever is forwarded, unless a rule of theirs is about us."""
    from pyroute2.nftables.main import NFTables

    for family, number in _FAMILIES.items():
        with NFTables(nfgen_family=number) as tables:
            closed = {
                chain.get_attr("NFTA_CHAIN_TABLE")
                for chain in tables.get_chains()
                if _is_closed(chain)
            }
            passing = {
                rule.get_attr("NFTA_RULE_TABLE")
                for rule in (tables.get_rules() if closed else ())
                if _mentions(rule, PREFIX.encode())
            }
        yield from sorted(f"{family} {table}" for table in closed - passing)


def _is_closed(chain: Any) -> bool:
    hook = chain.get_attr("NFTA_CHAIN_HOOK")
    return (
        hook is not None
        and hook.get_attr("NFTA_HOOK_HOOKNUM") == _HOOK_FORWARD
        and chain.get_attr("NFTA_CHAIN_POLICY") == _DROP
        and chain.get_attr("NFTA_CHAIN_TYPE") == "filter"
    )


def _mentions(value: Any, wanted: bytes) -> bool:
    """Return whether a text stands anywhere in a message."""
    if isinstance(value, bytes):
        return wanted in value
    if isinstance(value, dict):
        return _mentions(value.get("attrs", ()), wanted)
    if isinstance(value, (list, tuple)):
        return any(_mentions(item, wanted) for item in value)
    return False
