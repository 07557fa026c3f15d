"""Ports of the host that lead into a run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from sandbox.errors import SpecError
from sandbox.records.light import dataclass

ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - docker's meaning: published means all addresses
PROTOCOLS = ("tcp", "udp")
_LAST_PORT = 65535


@dataclass(frozen=True, kw_only=True)
class PublishedPort:
    """One port of a run's own network, and the one of the host that leads to it."""

    container_port: int
    protocol: str = "tcp"
    host_port: int | None = None
    """None asks for a free one; in a result it is the one that was found."""
    host_address: str = ANY_ADDRESS
    """An IPv4 address of the host; `0.0.0.0` is all of them."""

    def __post_init__(self) -> None:
        """Refuse what is no port."""
        if self.protocol not in PROTOCOLS:
            raise SpecError(f"`{self.protocol}` cannot be published", hint="tcp or udp")
        for port in (self.container_port, self.host_port):
            if port is not None and not 1 <= port <= _LAST_PORT:
                raise SpecError(f"{port} is no port", hint=f"ports are 1 to {_LAST_PORT}")

    @property
    def inside(self) -> str:
        """Return the run's end as docker writes it: `80/tcp`."""
        return f"{self.container_port}/{self.protocol}"

    @property
    def outside(self) -> str:
        """Return the host's end: `0.0.0.0:8080`."""
        return f"{self.host_address}:{'?' if self.host_port is None else self.host_port}"

    @property
    def text(self) -> str:
        """Return both as docker's `ps` does: `0.0.0.0:8080->80/tcp`."""
        return f"{self.outside}->{self.inside}"


def check_ports(ports: Sequence[PublishedPort], network: str) -> None:
    """Refuse ports that no network could have.

    Raises:
        SpecError: the network is not the run's own, or a port of the host would lead to two places.
    """
    if ports and network != "private":
        what = "the run shares the host's ports" if network == "host" else "nobody can reach it"
        raise SpecError(
            f"no port can be published with --network {network}: {what}",
            hint="it goes with `--network private`",
        )
    for one, other in combinations(ports, 2):
        is_same = (one.host_port, one.protocol) == (other.host_port, other.protocol)
        addresses = {one.host_address, other.host_address}
        if is_same and one.host_port and (len(addresses) == 1 or ANY_ADDRESS in addresses):
            raise SpecError(f"the port {one.outside} is published twice", hint="give each once")
