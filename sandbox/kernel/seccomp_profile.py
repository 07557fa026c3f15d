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
_SHOWN = 60
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


class _WrongError(Exception):
    """What is wrong in a profile, and where: the keys that lead there."""

    def __init__(self, where: str, what: str, hint: str) -> None:
        super().__init__(what)
        self.where = where
        self.hint = hint


def parse_profile(text: str, around: Circumstances, path: str) -> Policy:
    """Return what a profile says for one program on one machine.

    Of rules about the same call one without checks decides, and else the first that holds.

    Args:
        text: The profile.
        around: The program and the machine.
        path: Where it comes from, for errors to name.

    Raises:
        SpecError: it is not a profile, or asks for what cannot be done here.
    """
    try:
        return _read_policy(json.loads(text), around)
    except json.JSONDecodeError as exc:
        raise SpecError(
            f"the seccomp profile {path} is not JSON: line {exc.lineno}, column {exc.colno}: "
            f"{exc.msg}",
            hint=f"`python3 -m json.tool {path}` checks it",
        ) from None
    except (ValueError, RecursionError) as exc:
        raise SpecError(
            f"the seccomp profile {path} is not JSON: {exc}",
            hint="it holds what no profile needs: start from docker's own",
        ) from None
    except _WrongError as wrong:
        where = f"{wrong.where}: " if wrong.where else ""
        raise SpecError(f"the seccomp profile {path}: {where}{wrong}", hint=wrong.hint) from None


def _read_policy(plain: Any, around: Circumstances) -> Policy:
    profile = _Reader(_object(plain, ""), around)
    if profile.plain.get("listenerPath"):
        raise _WrongError(
            "listenerPath", "there are no listeners here", "take it out, and SCMP_ACT_NOTIFY"
        )
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
            verdict = self._action(entry.get("action"), entry.get("errnoRet"), f"{where}.action")
            args = enumerate(_list(entry.get("args"), f"{where}.args"))
            checks = tuple(_check(each, f"{where}.args[{number}]") for number, each in args)
            names = _names(entry.get("names"), f"{where}.names")
            if entry.get("name"):
                names += _names([entry["name"]], f"{where}.name")
            for name in names:
                if name in numbers:
                    yield numbers[name], Rule(verdict, checks)

    def _action(self, name: Any, number: Any, where: str) -> int:
        word = name.removeprefix("SCMP_ACT_") if isinstance(name, str) else ""
        if word not in _ACTIONS:
            raise _WrongError(
                where,
                f"there is no action `{_shown(name)}` here",
                "there are " + ", ".join(f"SCMP_ACT_{each}" for each in _ACTIONS),
            )
        if word not in _WITH_NUMBER:
            return _ACTIONS[word]
        given = _number(number, where.replace(".action", ".errnoRet"), _MOST_ERRNO)
        return _ACTIONS[word] | (self._default_errno if given is None else given)

    def _applies(self, entry: Mapping[str, Any], where: str) -> bool:
        inside, outside = f"{where}.includes", f"{where}.excludes"
        includes = _object(entry.get("includes") or {}, inside)
        excludes = _object(entry.get("excludes") or {}, outside)
        wanted = _capabilities(includes, inside)
        if not wanted <= set(self._around.capabilities):
            return False
        if _capabilities(excludes, outside) & set(self._around.capabilities):
            return False
        name = self._around.architecture.name
        arches = _names(includes.get("arches"), f"{inside}.arches")
        not_on = _names(excludes.get("arches"), f"{outside}.arches")
        if (arches and name not in arches) or name in not_on:
            return False
        least = _version(includes.get("minKernel"), f"{inside}.minKernel")
        not_from = _version(excludes.get("minKernel"), f"{outside}.minKernel")
        kernel = self._around.kernel
        return not ((least and kernel < least) or (not_from and kernel >= not_from))


def _capabilities(conditions: Mapping[str, Any], where: str) -> set[str]:
    names = _names(conditions.get("caps"), f"{where}.caps")
    return {name.upper().removeprefix("CAP_").lower() for name in names}


def _check(plain: Any, where: str) -> Check:
    entry = _object(plain, where)
    index = _number(entry.get("index"), f"{where}.index", _ARGUMENTS - 1)
    value = _number(entry.get("value", 0), f"{where}.value", _MOST_ARGUMENT)
    second = _number(entry.get("valueTwo", 0), f"{where}.valueTwo", _MOST_ARGUMENT)
    word = str(entry.get("op")).removeprefix("SCMP_CMP_")
    if index is None or value is None or second is None or word not in {*Comparison}:
        raise _WrongError(
            where,
            f"this is not a check of an argument: {_shown(plain)}",
            'write it as {"index": 0, "value": 1, "op": "SCMP_CMP_EQ"}, with one of '
            + ", ".join(Comparison),
        )
    comparison = Comparison(word)
    if comparison is Comparison.MASKED_EQ:
        return Check(index, comparison, second, value)
    return Check(index, comparison, value)


def _number(plain: Any, where: str, most: int) -> int | None:
    if plain is None:
        return None
    if isinstance(plain, bool) or not isinstance(plain, int) or not 0 <= plain <= most:
        raise _WrongError(
            where,
            f"`{_shown(plain)}` is not a number up to {most}",
            "write it in decimal digits, without quotes",
        )
    return plain


def _version(plain: Any, where: str) -> tuple[int, int] | None:
    if plain is None or plain == "":
        return None
    parts = plain.split(".") if isinstance(plain, str) else []
    if len(parts) != 2 or not all(part.isascii() and part.isdecimal() for part in parts):  # noqa: PLR2004
        raise _WrongError(
            where, f"`{_shown(plain)}` is not a kernel's version", 'write it as "4.8"'
        )
    return int(parts[0]), int(parts[1])


def _names(plain: Any, where: str) -> list[str]:
    names = _list(plain, where)
    if not all(isinstance(name, str) for name in names):
        raise _WrongError(
            where, f"these are not names: {_shown(names)}", 'write them as ["read", "write"]'
        )
    return list(names)


def _list(plain: Any, where: str) -> list[Any]:
    if plain is None:
        return []
    if not isinstance(plain, list):
        raise _WrongError(where, f"this is not a list: {_shown(plain)}", "put it in [ ]")
    return plain


def _object(plain: Any, where: str) -> dict[str, Any]:
    if not isinstance(plain, dict):
        raise _WrongError(where, f"this is not an object: {_shown(plain)}", "put it in { }")
    return plain


def _shown(plain: Any) -> str:
    """Return a value as it may stand in an error, however long it is."""
    text = plain if isinstance(plain, str) else json.dumps(plain, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
