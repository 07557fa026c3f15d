"""What to benchmark: commands with parameters filled in, each with its hooks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from itertools import product

from sandbox.errors import SpecError
from sandbox.records.light import dataclass, field, replace
from sandbox.spec import RunSpec

_MOST_VALUES = 1_000
_SHELL = "/bin/sh"


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """Shell commands around the runs of one command; they are not measured."""

    setup: str | None = None
    """Once, before the first run."""
    prepare: str | None = None
    """Before each run, warm-up runs included."""
    cleanup: str | None = None
    """Once, after the last run."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One command to repeat."""

    text: str
    spec: RunSpec
    parameters: dict[str, str] = field(default_factory=dict)
    hooks: Hooks = field(default_factory=Hooks)


def make_plans(
    commands: Sequence[Sequence[str]],
    spec: RunSpec,
    *,
    parameters: Mapping[str, Sequence[str]],
    hooks: Sequence[Hooks],
    names: Sequence[str] = (),
) -> list[Plan]:
    """Return a plan for every command and every combination of parameters, in that order.

    Args:
        commands: Each as words.
        spec: Limits and all else that is the same for each.
        parameters: The values of each name; `{name}` stands for them in words and hooks.
        hooks: One for all commands, or one for each.
        names: What to call the plans; `{name}` stands for parameters here too.

    Raises:
        SpecError: hooks or names do not fit the commands, or a parameter is in none of them.
    """
    if len(hooks) not in {1, len(commands)}:
        raise SpecError(
            f"{len(hooks)} --prepare were given for {len(commands)} commands",
            hint="give one for all, or one for each",
        )
    _check_used(commands, hooks, parameters)
    plans = [
        _plan(words, spec, values, hooks[index % len(hooks)])
        for index, words in enumerate(commands)
        for values in _combinations(parameters)
    ]
    if not names:
        return plans
    if len(names) == 1:
        names = list(names) * len(plans)
    if len(names) != len(plans):
        raise SpecError(
            f"{len(names)} names were given for {len(plans)} commands",
            hint="`-n NAME` is given once for each command",
        )
    return [
        replace(plan, text=fill(name, plan.parameters))
        for plan, name in zip(plans, names, strict=True)
    ]


def _plan(words: Sequence[str], spec: RunSpec, values: dict[str, str], hooks: Hooks) -> Plan:
    filled = tuple(fill(word, values) for word in words)
    text = filled[2] if filled[:2] == (_SHELL, "-c") else shlex.join(filled)
    return Plan(
        text=text,
        spec=replace(spec, command=filled),
        parameters=values,
        hooks=Hooks(
            setup=_filled(hooks.setup, values),
            prepare=_filled(hooks.prepare, values),
            cleanup=_filled(hooks.cleanup, values),
        ),
    )


def _filled(text: str | None, values: Mapping[str, str]) -> str | None:
    return None if text is None else fill(text, values)


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return `text` with `{name}` replaced; names that are no parameters stay as they are."""
    return re.sub(r"\{([^{}]*)\}", lambda match: values.get(match[1], match[0]), text)


def _combinations(parameters: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    for values in product(*parameters.values()):
        yield dict(zip(parameters, values, strict=True))


def _check_used(
    commands: Sequence[Sequence[str]],
    hooks: Sequence[Hooks],
    parameters: Mapping[str, Sequence[str]],
) -> None:
    texts = [word for words in commands for word in words]
    for hook in hooks:
        texts += [text for text in (hook.setup, hook.prepare, hook.cleanup) if text is not None]
    for name in parameters:
        if not any(f"{{{name}}}" in text for text in texts):
            raise SpecError(
                f"the parameter {name} is in no command", hint=f"write it as `{{{name}}}`"
            )


def parse_list(text: str) -> tuple[str, ...]:
    r"""Return the values of `a,b,c`; `\,` is a comma inside of a value."""
    values = re.split(r"(?<!\\),", text)
    return tuple(value.replace("\\,", ",") for value in values)


def parse_scan(low: str, high: str, step: str | None) -> tuple[str, ...]:
    """Return the numbers from `low` to `high`, both included if the steps meet it.

    Raises:
        SpecError: they are not numbers, run the wrong way, or are very many.
    """
    try:
        first, last, width = Decimal(low), Decimal(high), Decimal(step or "1")
        if not (first.is_finite() and last.is_finite() and width.is_finite() and width > 0):
            raise SpecError(
                f"a scan from {low} to {high} by {step or 1} cannot be meant",
                hint="write numbers, and a step above 0: `-P threads 1 4 -D 1`",
            )
        count = int((last - first) / width) + 1
    except (InvalidOperation, OverflowError):
        raise SpecError(
            f"a scan from {low} to {high} by {step or 1} cannot be meant",
            hint="write numbers: `-P threads 1 4`",
        ) from None
    if last < first:
        raise SpecError(f"a scan from {low} to {high} is empty", hint="the smaller number is first")
    if count > _MOST_VALUES:
        raise SpecError(f"a scan of {count} values is too long", hint="take larger steps with -D")
    return tuple(f"{first + index * width:f}" for index in range(count))


def split_command(text: str, *, shell: bool) -> tuple[str, ...]:
    """Return the words of a command that was given as one text.

    Raises:
        SpecError: a quotation has no end, or there is no word in it.
    """
    if shell:
        return (_SHELL, "-c", text)
    try:
        words = tuple(shlex.split(text))
    except ValueError as exc:
        raise SpecError(
            f"`{text}` is not a command: {str(exc).lower()}",
            hint="close its quotes, or give it as words after `--`",
        ) from None
    if not words:
        raise SpecError("a command is empty", hint="write it in quotes: `'sleep 0.1'`")
    return words
