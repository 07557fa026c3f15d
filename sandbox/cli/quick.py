"""A plain command line read without typer, whose import takes as long as the rest of a launch.

What is read here means what typer would make of it; all else is left to typer: mistakes, `--help`,
several short flags in one word, values that begin with `-` or are empty.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

from sandbox.cli.options import Flag, Words, declared_in
from sandbox.errors import SandboxError

_KINDS = (str, int, Path)


class _NotPlainError(Exception):
    """Typer is to read it."""


def read(function: Callable[..., None], arguments: Sequence[str]) -> dict[str, Any] | None:
    """Return what to call a command's function with; None if typer is to read the arguments.

    Args:
        function: its parameters are declared by Flag and Words, and have defaults.
        arguments: what follows the command's own name; its flags come before the first word.
    """
    declared = declared_in(function)
    flags = {name: (kind, one) for name, kind, one in declared if isinstance(one, Flag)}
    try:
        texts, words = _split(arguments, flags)
        texts |= _texts_of_variables(flags, texts)
        values = {name: _value(given, *flags[name]) for name, given in texts.items()}
    except _NotPlainError:
        return None
    if words:
        values |= {name: words for name, _, one in declared if isinstance(one, Words)}
    return values


def _split(
    arguments: Sequence[str], flags: dict[str, tuple[Any, Flag]]
) -> tuple[dict[str, list[str]], list[str]]:
    """Return the texts that are given for each parameter, and the words.

    Raises:
        _NotPlainError: a flag is unknown or has no plain value.
    """
    parameters = {
        spelled: name
        for name, (_, flag) in flags.items()
        for pair in flag.names
        for spelled in pair.split("/")
    }
    texts: dict[str, list[str]] = {}
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            break
        if argument == "-" or not argument.startswith("-"):
            return texts, [argument, *rest]
        spelled, *given = argument.split("=", 1) if argument.startswith("--") else [argument]
        if spelled not in parameters:
            raise _NotPlainError
        name = parameters[spelled]
        texts.setdefault(name, []).append(_text(spelled, given, rest, *flags[name]))
    return texts, list(rest)


def _text(spelled: str, given: list[str], rest: Iterator[str], kind: Any, flag: Flag) -> str:
    """Return the text of one flag's value; of one that takes none, how the flag is spelled."""
    if kind is bool:
        if given:
            raise _NotPlainError
        return spelled
    if not given:
        given = [next(rest, "") if flag.alone is None else flag.alone]
    if not given[0] or given[0].startswith("-"):
        raise _NotPlainError
    return given[0]


def _texts_of_variables(
    flags: dict[str, tuple[Any, Flag]], given: Collection[str]
) -> dict[str, list[str]]:
    """Return the texts of flags that are not given but set by a variable."""
    texts = {}
    for name, (kind, flag) in flags.items():
        text = None if flag.envvar is None or name in given else os.environ.get(flag.envvar)
        if text:
            if kind is bool:  # of which typer knows many words
                raise _NotPlainError
            texts[name] = [text]
    return texts


def _value(texts: list[str], kind: Any, flag: Flag) -> Any:
    """Return the value of a parameter: of many for one, the last holds."""
    if kind is bool:
        return texts[-1] in [pair.partition("/")[0] for pair in flag.names]
    if NoneType in get_args(kind):
        (kind,) = (one for one in get_args(kind) if one is not NoneType)
    if get_origin(kind) is list:
        (kind,) = get_args(kind)
        return [_converted(text, kind, flag) for text in texts]
    return _converted(texts[-1], kind, flag)


def _converted(text: str, kind: Any, flag: Flag) -> Any:
    if flag.more or not (flag.parser or kind in _KINDS or issubclass(kind, Enum)):
        raise _NotPlainError
    try:
        return (flag.parser or kind)(text)
    except (SandboxError, ValueError):
        raise _NotPlainError from None
