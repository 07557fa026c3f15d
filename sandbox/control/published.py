"""The ports of the host that lead into a sandbox, while it runs."""

from __future__ import annotations

from sandbox.control.inspecting import inspect
from sandbox.control.naming import Names
from sandbox.errors import StoreError
from sandbox.records.ports import PublishedPort
from sandbox.records.stats import State


def find_ports(asked: str, inside: str, names: Names) -> tuple[PublishedPort, ...]:
    """Return the ports of a sandbox; none if it has ended.

    Args:
        asked: A name, an id or the beginning of one.
        inside: `80` or `80/udp`, if only one is wanted; empty for all.
        names: What the sandboxes are called.

    Raises:
        StoreError: there is no such sandbox, or the one port is not published.
    """
    found = inspect(asked, names)
    ports: tuple[PublishedPort, ...] = ()
    if found.result is not None and found.state in {State.RUNNING, State.PAUSED}:
        ports = found.result.ports
    if not inside:
        return ports
    wanted = inside if "/" in inside else f"{inside}/tcp"
    fitting = tuple(port for port in ports if port.inside == wanted)
    if not fitting:
        known = ", ".join(dict.fromkeys(port.inside for port in ports))
        raise StoreError(
            f"the port {wanted} of {found.name or found.id} is not published",
            hint=f"these are: {known}" if known else "none is",
        )
    return fitting
