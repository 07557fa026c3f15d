"""Docker's syntax for published ports, to values."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable

from sandbox.errors import SpecError
from sandbox.records.ports import ANY_ADDRESS, PublishedPort

_PORTS = re.compile(r"(?a)(\d{1,5})(?:-(\d{1,5}))?")
_HINT = "write `CONTAINERPORT`, `HOSTPORT:CONTAINERPORT` or `IP:HOSTPORT:CONTAINERPORT`"


def parse_publish(text: str) -> tuple[PublishedPort, ...]:
    """Return the ports of `[IP:][HOSTPORT:]CONTAINERPORT[/tcp|udp]`; more than one for ranges.

    Raises:
        SpecError: the text is not one, or asks for IPv6.
    """
    whole, slash, protocol = text.partition("/")
    address, _, rest = whole.rpartition("]:") if whole.startswith("[") else ("", "", whole)
    parts = rest.split(":")
    if address or len(parts) > 3:  # noqa: PLR2004 - address, host's port, run's port
        raise SpecError(
            f"`{text}`: ports are published on IPv4 addresses only", hint="leave the address out"
        )
    inside = _parse_ports(parts[-1], text)
    has_outside = len(parts) > 1 and parts[-2] not in {"", "0"}  # docker's words for a free one
    outside = _parse_ports(parts[-2], text) if has_outside else None
    if outside is not None and len(outside) != len(inside):
        raise SpecError(f"`{text}`: the two ranges are not of the same length", hint=_HINT)
    return tuple(
        PublishedPort(
            container_port=port,
            protocol=protocol.lower() if slash else "tcp",
            host_port=None if outside is None else outside[place],
            host_address=_parse_address(parts[0], text) if len(parts) == 3 else ANY_ADDRESS,  # noqa: PLR2004
        )
        for place, port in enumerate(inside)
    )


def parse_all(texts: Iterable[str]) -> tuple[PublishedPort, ...]:
    """Return the ports of all of them; what is given twice in the same words counts once.

    Raises:
        SpecError: one of the texts is none.
    """
    return tuple(dict.fromkeys(port for text in texts for port in parse_publish(text)))


def _parse_ports(text: str, whole: str) -> range:
    found = _PORTS.fullmatch(text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, -1)
    if first > last:
        raise SpecError(f"`{whole}`: `{text}` is neither a port nor a range of ports", hint=_HINT)
    return range(first, last + 1)


def _parse_address(text: str, whole: str) -> str:
    if not text:  # as in `:8080:80`
        return ANY_ADDRESS
    try:
        return socket.inet_ntop(socket.AF_INET, socket.inet_pton(socket.AF_INET, text))
    except (OSError, ValueError):
        raise SpecError(f"`{whole}`: `{text}` is no IPv4 address", hint=_HINT) from None
