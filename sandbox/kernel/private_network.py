"""A private network as root: a pair of interfaces, an address, a way out by the host's own.

Nothing of it outlives the run: the pair goes with the network namespace that its end is in, the
rules with the socket that owns them, and what lets interfaces forward with the lease.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing, suppress
from typing import NoReturn

from sandbox.errors import HostError, SpecError
from sandbox.kernel import forwarding, links, nftables
from sandbox.kernel.in_network import inside
from sandbox.kernel.netlink import NETFILTER, ROUTE, Netlink
from sandbox.kernel.ports import reserve
from sandbox.records.ports import ANY_ADDRESS, PublishedPort

PREFIX = "sbx"
"""What the names of the host's ends begin with; the run's id follows, and fills 15 characters."""
INSIDE = "eth0"
POOL_SETTING = "SANDBOX_NETWORK_POOL"
POOLS = ("10.209.0.0/16", "172.29.0.0/16", "192.168.209.0/24")
"""Where addresses are looked for, the first with a free place."""

_PREFIX_LENGTH = 30  # two addresses: the host's and the run's
_BITS = 32
_USUAL_MTU = 1500
_SIOCGIFMTU = 0x8921
_MTU_REQUEST = struct.Struct("=16si20x")
_LOOPBACK = "lo"
_FROM_LOOPBACK = (ANY_ADDRESS, "127.")
_LOCALNET = "/proc/sys/net/ipv4/conf/{}/route_localnet"
"""Whether packets of the loopback's addresses may leave by an interface; it goes with that."""
_MODULES = "veth nf_tables nft_masq nft_nat nft_ct nft_fib_ipv4"
_OPEN_INSIDE = {"ip_unprivileged_port_start": "0", "ping_group_range": "0 2147483647"}
"""Whoever is inside may use all ports and ping, as with docker: nobody else is there."""

HINT_RIGHTS = "it takes root with CAP_NET_ADMIN and CAP_SYS_ADMIN; --network none takes less"


class PrivateNetwork:
    """The network of one run."""

    def __init__(self, run_id: str, lease: str, ports: Sequence[PublishedPort] = ()) -> None:
        """Name its parts; nothing is made yet. Whoever ends the run otherwise has the lease."""
        self._lease = lease
        self._asked = ports
        self._reserved = ExitStack()
        self.ports: tuple[PublishedPort, ...] = ()
        """Those of the host that lead inside, once it is connected."""
        self.warnings: list[tuple[str, str]] = []
        """What makes it weaker than it should be, each with what helps."""
        self._veth = f"{PREFIX}{run_id}"
        self._table = f"sandbox-{run_id}"
        self._links: Netlink | None = None
        self._filters: Netlink | None = None
        self._lease_fd: int | None = None

    def connect(self, pid: int) -> None:
        """Give the network namespace of a process an interface, and a way out.

        Raises:
            HostError: this host cannot; nothing is left once `close` was called.
        """
        self.close()  # a child before this one did not get so far
        self.ports = reserve(self._asked, self._reserved)
        doing = "open netlink"
        try:
            self._links, self._filters = Netlink(ROUTE), Netlink(NETFILTER)
            doing = f"make and lock {forwarding.PLACE}"
            with forwarding.exclusively():
                self._lease_fd = forwarding.take(self._lease)
                routes = [*links.list_routes(self._links)]
                network = find_free(routes, find_pools())
                doing = "make the pair of interfaces"
                uplinks = _find_uplinks(routes)
                links.make_pair(self._links, self._veth, INSIDE, pid, _find_mtu(uplinks))
                index = socket.if_nametoindex(self._veth)
                links.set_up(self._links, index, network + 1, _PREFIX_LENGTH)
                doing = "let packets pass (/proc/sys/net/ipv4/conf)"
                forwarding.write_setting(self._veth, "1")
                opened = forwarding.open_up(self._lease, uplinks)
            doing = "set up the interface inside"
            _set_up_inside(pid, network)
            doing = "make the nftables rules (Linux 5.12 with nf_tables and masquerading)"
            nftables.make_table(
                self._filters,
                self._table,
                veth=self._veth,
                address=network + 2,
                prefix=PREFIX,
                opened=opened,
                ports=self.ports,
            )
            self._let_loopback_in(self._links, index)
            self._look_for_others(self._filters)
            self._forget_old()
        except OSError as exc:
            _refuse(exc, doing)

    def _let_loopback_in(self, link: Netlink, index: int) -> None:
        """Let programs of the host come by its loopback; the run must not get there that way."""
        if not any(port.host_address.startswith(_FROM_LOOPBACK) for port in self.ports):
            return
        from sandbox.kernel import ingress

        try:
            ingress.refuse_loopback(link, index)
            forwarding.write_text(_LOCALNET.format(self._veth), "1")
        except OSError as exc:
            text = f"published ports cannot be reached by 127.0.0.1: {exc.strerror}"
            hint = (
                "use an address of the host's; `modprobe -a sch_ingress cls_bpf` may bring what "
                "it takes, and /proc/sys has to be writable"
            )
            self.warnings.append((text, hint))

    def _forget_old(self) -> None:
        if not any(port.protocol == "udp" for port in self.ports):
            return
        from sandbox.kernel import connections

        try:
            connections.forget(self.ports)
        except OSError as exc:
            text = (
                "who has been sending to a published UDP port from before the start may not be "
                f"heard: the kernel lists no connections: {exc.strerror}"
            )
            self.warnings.append((text, "`modprobe nf_conntrack_netlink` may bring what it takes"))

    def _look_for_others(self, filters: Netlink) -> None:
        closed = next(nftables.find_closed(filters, PREFIX), None)
        if closed is not None:
            text = (
                f"table `{closed}` of another firewall drops what is forwarded, "
                "so that the run cannot get beyond this host"
            )
            hint = (
                f"let it pass there: `iptables -I FORWARD -i {PREFIX}+ -j ACCEPT` and "
                f"`iptables -I FORWARD -o {PREFIX}+ -j ACCEPT` (with docker in DOCKER-USER)"
            )
            self.warnings.append((text, hint))

    def begin_close(self) -> None:
        """Have the kernel begin: what it takes away later it does while we do something else."""
        if self._filters is not None:
            with suppress(OSError):  # then it goes with the socket
                nftables.remove_table(self._filters, self._table)

    def close(self) -> None:
        """Take everything away; a second time does nothing."""
        if self._links is not None:
            with suppress(OSError):  # it went with its namespace
                links.remove(self._links, self._veth)
            self._links.close()
            self._links = None
        if self._filters is not None:
            self._filters.close()
            self._filters = None
        self._reserved.close()  # after the rules: nothing that comes is for us
        if self._lease_fd is not None:
            os.close(self._lease_fd)
            self._lease_fd = None
            with suppress(OSError):
                forwarding.release(self._lease)


def _refuse(exc: OSError, doing: str) -> NoReturn:
    hint = None
    if exc.errno in {errno.EPERM, errno.EACCES, errno.EROFS}:
        hint = HINT_RIGHTS
    elif exc.errno in {errno.EOPNOTSUPP, errno.ENOENT, errno.EPROTONOSUPPORT, errno.EINVAL}:
        hint = f"the kernel lacks a part: `modprobe -a {_MODULES}` may bring it"
    raise HostError(
        f"cannot make a private network: {doing}: {exc.strerror or exc}", hint=hint
    ) from exc


def _set_up_inside(pid: int, network: int) -> None:
    with inside(pid):
        index, link = socket.if_nametoindex(INSIDE), Netlink(ROUTE)
        for name, value in _OPEN_INSIDE.items():
            with suppress(OSError):  # /proc/sys may be read-only, as in containers
                forwarding.write_text(f"/proc/sys/net/ipv4/{name}", value)
    with closing(link):
        links.set_up(link, index, network + 2, _PREFIX_LENGTH)
        links.add_default_route(link, index, network + 1)


def find_pools() -> Sequence[tuple[int, int]]:
    """Return the pools to take addresses from: what was asked for, else ours.

    Raises:
        SpecError: the setting is no network, or too small.
    """
    asked = os.environ.get(POOL_SETTING)
    return [parse_pool(text) for text in ((asked,) if asked else POOLS)]


def parse_pool(text: str) -> tuple[int, int]:
    """Return the first address and the prefix length of `10.209.0.0/16`.

    Raises:
        SpecError: it is no IPv4 network, or has no room for two addresses.
    """
    address, _, length = text.partition("/")
    try:
        first = int.from_bytes(socket.inet_pton(socket.AF_INET, address), "big")
    except (OSError, ValueError):
        first = -1
    if first < 0 or not (length.isascii() and length.isdecimal()):
        raise SpecError(
            f"`{text}` is no network to take addresses from",
            hint=f"write {POOL_SETTING} as in `10.209.0.0/16`",
        )
    bits = int(length)
    if not 1 <= bits <= _PREFIX_LENGTH or first & ((1 << _BITS - bits) - 1):
        raise SpecError(
            f"`{text}` cannot be a pool: a prefix of 1 to {_PREFIX_LENGTH} bits, "
            "and an address that ends where it does",
            hint=f"write {POOL_SETTING} as in `10.209.0.0/16`",
        )
    return first, bits


def find_free(routes: Iterable[links.Route], pools: Sequence[tuple[int, int]]) -> int:
    """Return the first network of four addresses to which nothing on this host leads.

    Raises:
        HostError: every one is taken.
    """
    taken = sorted(
        (route.network, route.network + (1 << _BITS - route.prefix_length) - 1)
        for route in routes
        if route.prefix_length  # the way to everywhere else is in nobody's way
    )
    size = 1 << _BITS - _PREFIX_LENGTH
    for first, bits in pools:
        candidate, end = first, first + (1 << _BITS - bits)
        for low, high in taken:
            if high < candidate:
                continue
            if low >= candidate + size:
                break
            candidate = (high // size + 1) * size
        if candidate + size <= end:
            return candidate
    raise HostError(
        "no address is free for a private network: routes of this host lead to all of the pool",
        hint=f"set {POOL_SETTING} to a network that nothing here uses, as in 10.209.0.0/16",
    )


def _find_uplinks(routes: Iterable[links.Route]) -> list[str]:
    """Return the interfaces that lead out of the host, those of the default routes first."""
    by_default = sorted(routes, key=lambda route: route.prefix_length)
    names: dict[str, None] = {}
    for index in (index for route in by_default for index in route.interfaces):
        with suppress(OSError):  # it has gone meanwhile
            names[socket.if_indextoname(index)] = None
    return [name for name in names if name != _LOOPBACK and not name.startswith(PREFIX)]


def _find_mtu(uplinks: Sequence[str]) -> int:
    """Return the usual packet size, or the smaller one that the way out has."""
    for name in uplinks[:1]:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked, suppress(OSError):
            answer = fcntl.ioctl(asked, _SIOCGIFMTU, _MTU_REQUEST.pack(name.encode(), 0))
            return min(int(_MTU_REQUEST.unpack(answer)[1]), _USUAL_MTU)
    return _USUAL_MTU
