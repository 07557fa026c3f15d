"""Whether runs can have a network of their own, and what may stand in its way."""

from __future__ import annotations

from sandbox.doctor.check import Answer, Check, ok, skip, warn
from sandbox.doctor.facts import Facts
from sandbox.kernel.private_network import PREFIX

_MODULES = "sudo modprobe -a veth nf_tables nft_masq nft_ct"


def _private(facts: Facts) -> Answer:
    network = facts.network
    if not facts.is_root:
        if network.carrier is not None:
            return ok(f"{network.carrier} carries the packets of a plain user's runs")
        return warn(
            "--network private without root takes pasta or slirp4netns, and neither is here",
            "sudo apt install passt",
        )
    if network.rules_problem is not None:
        return warn(
            f"the rules of packets cannot be read, so none can be made: {network.rules_problem}",
            _MODULES,
        )
    return ok("by a pair of interfaces and rules of each run's own")


def _way_out(facts: Facts) -> Answer:
    network = facts.network
    if network.uplink is None:
        return skip("there is no default route: nothing beyond this host can be reached anyway")
    if not facts.is_root:
        return ok(f"by {network.uplink}, as this user's own connections")
    if network.rules_problem is not None:
        return skip("the rules of packets cannot be read")
    if not network.closed_tables:
        return ok(f"by {network.uplink}; no other firewall drops what runs send")
    names = ", ".join(f"`{name}`" for name in network.closed_tables)
    return warn(
        f"{names} of another firewall drops what runs with --network private send by "
        f"{network.uplink}",
        f"sudo iptables -I FORWARD -i {PREFIX}+ -j ACCEPT && "
        f"sudo iptables -I FORWARD -o {PREFIX}+ -j ACCEPT  # with docker in DOCKER-USER",
    )


CHECKS = (
    Check("private-network", "Can runs have a network of their own?", _private),
    Check("way-out", "Do runs get beyond this host from there?", _way_out),
)
