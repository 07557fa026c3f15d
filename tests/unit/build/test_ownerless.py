"""The filter of steps in which there is one user only."""

from __future__ import annotations

import pytest

from sandbox.kernel.seccomp_policy import DONE, REFUSED, default_policy, ownerless_policy
from sandbox.kernel.syscalls import find_architecture


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_only_changes_of_owners_and_users_are_said_to_be_done(machine: str) -> None:
    architecture = find_architecture(machine)
    assert architecture is not None
    ours = ownerless_policy(architecture, {"chown"})
    dockers = default_policy(architecture, {"chown"})
    changed = {
        name
        for name, number in architecture.numbers.items()
        if ours.verdict(architecture.audit, number, [0] * 6)
        != dockers.verdict(architecture.audit, number, [0] * 6)
    }

    assert {"fchown", "fchownat", "setgroups", "setresuid", "setresgid"} <= changed
    assert all("chown" in name or name.startswith("set") for name in changed)
    numbers = architecture.numbers
    assert ours.verdict(architecture.audit, numbers["fchownat"], [0] * 6) == DONE
    assert ours.verdict(architecture.audit, numbers["mount"], [0] * 6) == REFUSED
