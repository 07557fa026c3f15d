"""Docker's profiles of system calls (JSON), read into a policy.

Names that this machine does not have are passed over, as docker does: profiles are for many.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from sandbox.errors import SpecError
from sandbox.kernel import call_filter
from sandbox.kernel.call_filter import Check, Comparison, Policy, Rule
from sandbox.kernel.seccomp_policy import MISSING
from sandbox.kernel.syscalls import Architecture
from sandbox.records.light import dataclass

_EPERM = 1
_MOST_ERRNO = 0xFFFF
_MOST_ARGUMENT = (1 << 64) - 1
_ARGUMENTS = 6
_ACTIONS = {
    "ALLOW": call_filter.ALLOW,
    "LOG": call_filter.LOG,
    "TRAP": call_filter.TRAP,
    "TRACE": call_filter.TRACE,
    "ERRNO": call_filter.ERRNO,
    "KILL": call_filter.KILL_THREAD,
    "KILL_THREAD": call_filter.KILL_THREAD,
    "KILL_PROCESS": call_filter.KILL_PROCESS,
}
_WITH_NUMBER = frozenset({"ERRNO", "TRACE"})


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """What a profile's rules can depend on."""

    architecture: Architecture
    capabilities: Collection[str]
    """Those that the program may hold, as `sys_admin`."""
    kernel: tuple[int, int]


def parse_profile(text: str, around: Circumstances) -> Policy:
    """Return what a profile says for one program on one machine.

    Of rules about the same call one without checks decides, and else the first that holds.

    Raises:
        SpecError: it is not a profile, or asks for what cannot be done here.
    """
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise SpecError(f"the seccomp profile is not JSON: {exc}") from None
    profile = _Reader(_object(plain, "the seccomp profile"), around)
    if profile.plain.get("listenerPath"):
        raise SpecError("the seccomp profile asks for a listener, and there are none here")
    rules: dict[int, list[Rule]] = {}
    for number, rule in profile.read_rules():
        rules.setdefault(number, []).append(rule)
    return Policy(
        architecture=around.architecture,
        rules={number: _in_order(found) for number, found in rules.items()},
        default=profile.default,
        unknown=MISSING if profile.default >> 16 == call_filter.ERRNO >> 16 else profile.default,
        foreign=MISSING,
    )


def _in_order(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    return tuple(sorted(rules, key=lambda rule: bool(rule.checks)))


class _Reader:
    """Goes through one profile and says where it is wrong."""

    def __init__(self, plain: Mapping[str, Any], around: Circumstances) -> None:
        self.plain = plain
        self._around = around
        default = _number(plain.get("defaultErrnoRet"), "defaultErrnoRet", _MOST_ERRNO)
        self._default_errno = _EPERM if default is None else default
        self.default = self._action(plain.get("defaultAction"), None, "defaultAction")

    def read_rules(self) -> Iterator[tuple[int, Rule]]:
        """Yield the calls of this machine with a rule about each."""
        numbers = self._around.architecture.numbers
        for position, plain in enumerate(_list(self.plain.get("syscalls"), "syscalls")):
            where = f"syscalls[{position}]"
            entry = _object(plain, where)
            if not self._applies(entry, where):
                continue
            verdict = self._action(entry.get("action"), entry.get("errnoRet"), where)
            checks = tuple(_check(each, where) for each in _list(entry.get("args"), where))
            names = _names(entry.get("names"), where)
            if entry.get("name"):
                names += _names([entry["name"]], where)
            for name in names:
                if name in numbers:
                    yield numbers[name], Rule(verdict, checks)

    def _action(self, name: Any, number: Any, where: str) -> int:
        word = name.removeprefix("SCMP_ACT_") if isinstance(name, str) else ""
        if word not in _ACTIONS:
            raise SpecError(
                f"the seccomp profile, {where}: there is no action `{name}` here",
                hint="there are " + ", ".join(f"SCMP_ACT_{each}" for each in _ACTIONS),
            )
        if word not in _WITH_NUMBER:
            return _ACTIONS[word]
        given = _number(number, where, _MOST_ERRNO)
        return _ACTIONS[word] | (self._default_errno if given is None else given)

    def _applies(self, entry: Mapping[str, Any], where: str) -> bool:
        includes = _object(entry.get("includes") or {}, where)
        excludes = _object(entry.get("excludes") or {}, where)
        wanted = _capabilities(includes, where)
        if not wanted <= set(self._around.capabilities):
            return False
        if _capabilities(excludes, where) & set(self._around.capabilities):
            return False
        name = self._around.architecture.name
        arches = _names(includes.get("arches"), where)
        if (arches and name not in arches) or name in _names(excludes.get("arches"), where):
            return False
        least = _version(includes.get("minKernel"), where)
        not_from = _version(excludes.get("minKernel"), where)
        kernel = self._around.kernel
        return not ((least and kernel < least) or (not_from and kernel >= not_from))


def _capabilities(conditions: Mapping[str, Any], where: str) -> set[str]:
    names = _names(conditions.get("caps"), where)
    return {name.upper().removeprefix("CAP_").lower() for name in names}


def _check(plain: Any, where: str) -> Check:
    entry = _object(plain, where)
    index = _number(entry.get("index"), f"{where}.args", _ARGUMENTS - 1)
    value = _number(entry.get("value", 0), f"{where}.args", _MOST_ARGUMENT)
    second = _number(entry.get("valueTwo", 0), f"{where}.args", _MOST_ARGUMENT)
    word = str(entry.get("op")).removeprefix("SCMP_CMP_")
    if index is None or value is None or second is None or word not in {*Comparison}:
        raise SpecError(f"the seccomp profile, {where}: {plain} is not a check of an argument")
    comparison = Comparison(word)
    if comparison is Comparison.MASKED_EQ:
        return Check(index, comparison, second, value)
    return Check(index, comparison, value)


def _number(plain: Any, where: str, most: int) -> int | None:
    if plain is None:
        return None
    if isinstance(plain, bool) or not isinstance(plain, int) or not 0 <= plain <= most:
        raise SpecError(f"the seccomp profile, {where}: `{plain}` is not a number up to {most}")
    return plain


def _version(plain: Any, where: str) -> tuple[int, int] | None:
    if plain is None or plain == "":
        return None
    parts = plain.split(".") if isinstance(plain, str) else []
    if len(parts) != 2 or not all(part.isascii() and part.isdecimal() for part in parts):  # noqa: PLR2004
        raise SpecError(f"the seccomp profile, {where}: `{plain}` is not a kernel's version")
    return int(parts[0]), int(parts[1])


def _names(plain: Any, where: str) -> list[str]:
    names = _list(plain, where)
    if not all(isinstance(name, str) for name in names):
        raise SpecError(f"the seccomp profile, {where}: these are not names: {names}")
    return list(names)


def _list(plain: Any, where: str) -> list[Any]:
    if plain is None:
        return []
    if not isinstance(plain, list):
        raise SpecError(f"the seccomp profile, {where}: this is not a list: {plain}")
    return plain


def _object(plain: Any, where: str) -> dict[str, Any]:
    if not isinstance(plain, dict):
        raise SpecError(f"the seccomp profile, {where}: this is not an object: {plain}")
    return plain
