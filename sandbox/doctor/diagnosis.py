"""All checks in the order of the report, and what they find on one host."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sandbox.doctor import cgroup, delegation, installation, kernel, network, noise
from sandbox.doctor.check import Check
from sandbox.doctor.facts import Facts
from sandbox.errors import SpecError
from sandbox.records.finding import Diagnosis

GROUPS: dict[str, tuple[Check, ...]] = {
    "cgroup": cgroup.CHECKS,
    "delegation": delegation.CHECKS,
    "kernel": kernel.CHECKS,
    "network": network.CHECKS,
    "tools": installation.TOOL_CHECKS,
    "store": installation.STORE_CHECKS,
    "packages": installation.PACKAGE_CHECKS,
    "noise": noise.CHECKS,
}


def select(names: Collection[str]) -> Iterator[tuple[str, Check]]:
    """Yield the checks that are asked for, each with its group; all of them for no name.

    A name is a check's or a group's.

    Raises:
        SpecError: there is no such check or group.
    """
    known = {check.name for checks in GROUPS.values() for check in checks} | GROUPS.keys()
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SpecError(
            f"there is no check `{unknown[0]}`", hint="`sandbox doctor --list-checks` names them"
        )
    for group, checks in GROUPS.items():
        for check in checks:
            if not names or group in names or check.name in names:
                yield group, check


def diagnose(facts: Facts, names: Collection[str] = ()) -> Diagnosis:
    """Return what the checks that are asked for find.

    Raises:
        SpecError: there is no such check or group.
    """
    return Diagnosis(
        mode=facts.place.mode,
        mode_reason=facts.place.reason,
        findings=tuple(check.find(group, facts) for group, check in select(names)),
    )
