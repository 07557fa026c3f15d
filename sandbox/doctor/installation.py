"""What sandbox itself needs: a shell for the guard, a place for records, its packages."""

from __future__ import annotations

import re
import shlex
import sys

from sandbox.doctor.check import Answer, Check, fail, ok, warn
from sandbox.doctor.facts import Facts, requirement_name
from sandbox.units import format_size

_ROOM_BYTES = 1 << 30
_SPECIFIER = re.compile(r"(>=|<=|==|<|>|!=)\s*([\w.]+)")
_PYTHON_MARKER = re.compile(r"""python_version\s*(<|>=)\s*["'](\d+)\.(\d+)["']""")


def _shell(facts: Facts) -> Answer:
    if facts.has_shell:
        return ok("/bin/sh guards runs against the loss of their supervisor")
    return warn("there is no /bin/sh: a Python process guards runs, which takes 5 MiB more")


def _writable(facts: Facts) -> Answer:
    store = facts.store
    if store.problem is None:
        return ok(f"{store.home}")
    return fail(
        f"nothing can be recorded: {store.problem}", 'export SANDBOX_HOME="$HOME/sandbox-runs"'
    )


def _space(facts: Facts) -> Answer:
    store = facts.store
    if store.free_bytes is None:
        return warn(f"the room at {store.home} cannot be told")
    text = f"{format_size(store.free_bytes)} free, {store.runs} runs recorded"
    if store.free_bytes >= _ROOM_BYTES:
        return ok(text)
    return warn(
        f"{text}: a long run may lose samples",
        "sandbox runs ls -q | tail -n +20 | xargs -r sandbox runs rm  # keeps the newest 19",
    )


def _leftovers(facts: Facts) -> Answer:
    lost = facts.store.lost
    if not lost:
        return ok("no lost run has left a group behind")
    some = ", ".join(lost[:3])
    return warn(f"{len(lost)} lost runs have left groups behind, such as {some}", "sandbox clean")


def _packages(facts: Facts) -> Answer:
    packages = facts.packages
    missing, wrong, right = [], [], []
    for requirement in packages.required:
        wanted, _, marker = requirement.partition(";")
        if not _is_for_us(marker):
            continue
        name = requirement_name(wanted)
        version = packages.versions.get(name)
        if version is None:
            missing.append(wanted.strip())
        elif not fits(version, wanted):
            wrong.append(f"{name} {version} is not {wanted.strip()}")
        else:
            right.append(f"{name} {version}")
    if missing or wrong:
        lacking = [f"{name} is missing" for name in missing]
        return warn(
            "; ".join([*lacking, *wrong]),
            f"{shlex.quote(sys.executable)} -m pip install --upgrade cgroup-sandbox",
        )
    return ok(", ".join(right) or "run from a checkout that is not installed")


def _is_for_us(marker: str) -> bool:
    """Return whether a requirement's marker holds here; extras are asked for by name alone."""
    if "extra" in marker:
        return False
    bound = _PYTHON_MARKER.search(marker)
    if bound is None:
        return True
    version = (int(bound[2]), int(bound[3]))
    return sys.version_info[:2] < version if bound[1] == "<" else sys.version_info[:2] >= version


def fits(version: str, requirement: str) -> bool:
    """Return whether an installed version is one that a requirement asks for.

    Only numbers are compared; what stands behind them (`rc1`, `+local`) is left out.
    """
    have = _numbers(version)
    for operator, text in _SPECIFIER.findall(requirement):
        want = _numbers(text)
        size = max(len(have), len(want))
        left, right = (parts + (0,) * (size - len(parts)) for parts in (have, want))
        holds = {
            ">=": left >= right,
            "<=": left <= right,
            "<": left < right,
            ">": left > right,
            "==": left == right,
            "!=": left != right,
        }
        if not holds[operator]:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


TOOL_CHECKS = (Check("shell", "Is there a shell to guard runs?", _shell),)
STORE_CHECKS = (
    Check("records", "Can runs be recorded?", _writable),
    Check("space", "Is there room for records?", _space),
    Check("leftovers", "Have lost runs left anything behind?", _leftovers),
)
PACKAGE_CHECKS = (Check("packages", "Are all packages there, in the right versions?", _packages),)
