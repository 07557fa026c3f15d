"""What a template can call: Go's own functions and docker's, with the kinds that they take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any

from sandbox.report.gotemplate.go_json import marshal
from sandbox.report.gotemplate.printing import show, sprint, sprintf, sprintln
from sandbox.report.gotemplate.values import (
    NO_VALUE,
    CallProblem,
    Value,
    byte_length,
    cut,
    is_integer,
    truth,
    type_name,
)

_MOST_SPACES = 1_000_000
_HTML = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;", "\0": "\ufffd"}
)


class Parameter(Enum):
    """The kind of one parameter; the value is what messages call it."""

    ANY = "interface {}"
    STRING = "string"
    INTEGER = "int"


_ANY, _STRING, _INTEGER = Parameter.ANY, Parameter.STRING, Parameter.INTEGER


@dataclass(frozen=True, slots=True)
class Function:
    """A function, its parameters, and the kind of any further ones."""

    call: Callable[..., Value]
    parameters: tuple[Parameter, ...]
    rest: Parameter | None = None


# --- Go's own -------------------------------------------------------------------------------------


def _length(value: Value) -> int:
    if isinstance(value, str):
        return byte_length(value)
    if isinstance(value, (list, tuple, dict)):
        return len(value)
    if _is_nil(value):
        raise CallProblem("len of nil pointer")
    raise CallProblem(f"len of type {type_name(value)}")


def _index(value: Value, *indexes: Value) -> Value:
    if _is_nil(value):
        raise CallProblem("index of untyped nil")
    for index in indexes:
        if _is_nil(value):
            raise CallProblem("index of nil pointer")
        value = _item(value, index)
    return value


def _item(value: Value, index: Value) -> Value:
    if isinstance(value, dict):
        if not isinstance(index, str):
            name = "nil" if _is_nil(index) else type_name(index)
            raise CallProblem(f"value has type {name}; should be string")
        missing = "" if type_name(value) == "map[string]string" else None
        return value.get(index, missing)
    if isinstance(value, str):
        data = value.encode("utf-8", "replace")
        return data[_position(index, len(data) - 1)]
    if isinstance(value, (list, tuple)):
        return value[_position(index, len(value) - 1)]
    raise CallProblem(f"can't index item of type {type_name(value)}")


def _position(index: Value, largest: int) -> int:
    if _is_nil(index):
        raise CallProblem("cannot index slice/array with nil")
    if not isinstance(index, int) or not is_integer(index):
        raise CallProblem(f"cannot index slice/array with type {type_name(index)}")
    if not 0 <= index <= largest:
        raise CallProblem(f"index out of range: {index}")
    return index


def _slice(value: Value, *indexes: Value) -> Value:
    if _is_nil(value):
        raise CallProblem("slice of untyped nil")
    if len(indexes) > 3:  # noqa: PLR2004 - start, end, capacity
        raise CallProblem(f"too many slice indexes: {len(indexes)}")
    if isinstance(value, str):
        if len(indexes) > 2:  # noqa: PLR2004
            raise CallProblem("cannot 3-index slice a string")
        length = byte_length(value)
    elif isinstance(value, (list, tuple)):
        length = len(value)
    else:
        raise CallProblem(f"can't slice item of type {type_name(value)}")
    positions = [_position(index, length) for index in indexes]
    for before, after in pairwise(positions):
        if before > after:
            raise CallProblem(f"invalid slice index: {before} > {after}")
    start, end = [*positions, 0][0], [*positions, length, length][1]
    if not positions:
        start, end = 0, length
    elif len(positions) == 1:
        end = length
    return cut(value, start, end) if isinstance(value, str) else list(value[start:end])


def _is_nil(value: Value) -> bool:
    return value is None or value is NO_VALUE


def _basic(value: Value) -> str | None:
    """Return the kind that comparisons know, or None."""
    kinds = {bool: "bool", int: "int", float: "float", str: "string"}
    return kinds.get(type(value))


def _equal(value: Value, *others: Value) -> bool:
    if not others:
        raise CallProblem("missing argument for comparison")
    return any(_same(value, other) for other in others)


def _same(value: Value, other: Value) -> bool:
    if _basic(value) != _basic(other):
        if _is_nil(value) or _is_nil(other):
            return False
        raise CallProblem("incompatible types for comparison")
    if _basic(value) is not None or _is_nil(value) or _is_nil(other):
        return value == other if _basic(value) else _is_nil(value) and _is_nil(other)
    raise CallProblem(f"non-comparable type {show(value)}: {type_name(value)}")


def _not_equal(value: Value, other: Value) -> bool:
    return not _equal(value, other)


def _less(value: Any, other: Any) -> bool:
    kind, other_kind = _basic(value), _basic(other)
    if kind is None or other_kind is None:
        raise CallProblem("invalid type for comparison")
    if kind != other_kind:
        raise CallProblem("incompatible types for comparison")
    if kind == "bool":
        raise CallProblem("invalid type for comparison")
    if kind == "string":
        return bool(value.encode("utf-8", "replace") < other.encode("utf-8", "replace"))
    return bool(value < other)


def _less_or_equal(value: Value, other: Value) -> bool:
    return _less(value, other) or _equal(value, other)


def _greater(value: Value, other: Value) -> bool:
    return not _less_or_equal(value, other)


def _greater_or_equal(value: Value, other: Value) -> bool:
    return not _less(value, other)


def _not(value: Value) -> bool:
    return not truth(value)


def _and(first: Value, *others: Value) -> Value:
    """Return the first value that is false, or the last one; evaluation stops there as well."""
    return next((value for value in (first, *others) if not truth(value)), (first, *others)[-1])


def _or(first: Value, *others: Value) -> Value:
    return next((value for value in (first, *others) if truth(value)), (first, *others)[-1])


def _printed(*values: Value) -> str:
    return sprint(values)


def _printed_line(*values: Value) -> str:
    return sprintln(values)


def _formatted(text: str, *values: Value) -> str:
    return sprintf(text, values)


def _html(*values: Value) -> str:
    return sprint(values).translate(_HTML)


def _query(*values: Value) -> str:
    from urllib.parse import quote_plus

    return quote_plus(sprint(values), safe="~", errors="replace")


_JS = {
    "\\": "\\\\",
    "'": "\\'",
    '"': '\\"',
    "<": "\\u003C",
    ">": "\\u003E",
    "&": "\\u0026",
    "=": "\\u003D",
}


def _js(*values: Value) -> str:
    return "".join(
        _JS.get(c) or (c if c.isprintable() else f"\\u{ord(c):04X}") for c in sprint(values)
    )


# --- docker's -------------------------------------------------------------------------------------


def _json(value: Value) -> str:
    return marshal(value)


def _split(text: str, separator: str) -> list[Value]:
    return [*(text.split(separator) if separator else text)]


def _join(values: Value, separator: str) -> str:
    if _is_nil(values):
        return ""
    if isinstance(values, dict):
        return separator.join(sorted(show(value) for value in values.values()))
    if not isinstance(values, (list, tuple)):
        raise CallProblem(f"expected slice, got {type_name(values)}")
    return separator.join(show(value) for value in values)


def _title(text: str) -> str:
    """Capitalize each word; a word starts behind what is no letter, digit or underscore."""
    out, before = [], " "
    for character in text:
        large = character.title()
        starts = not (before.isalnum() or before == "_")
        if not before.isascii() and not before.isalnum():
            starts = before.isspace()
        out.append(large if starts and len(large) == 1 else character)
        before = character
    return "".join(out)


def _lower(text: str) -> str:
    return "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def _upper(text: str) -> str:
    return "".join(c.upper() if len(c.upper()) == 1 else c for c in text)


def _pad(text: str, before: int, after: int) -> str:
    if not text:
        return text
    if before < 0 or after < 0:
        raise CallProblem("strings: negative Repeat count")
    if before + after > _MOST_SPACES:
        raise CallProblem(f"more than {_MOST_SPACES} spaces")
    return " " * before + text + " " * after


def _truncate(text: str, length: int) -> str:
    if length < 0:
        raise CallProblem(f"runtime error: slice bounds out of range [:{length}]")
    return text if byte_length(text) < length else cut(text, 0, length)


FUNCTIONS: Mapping[str, Function] = {
    "and": Function(_and, (_ANY,), _ANY),
    "eq": Function(_equal, (_ANY,), _ANY),
    "ge": Function(_greater_or_equal, (_ANY, _ANY)),
    "gt": Function(_greater, (_ANY, _ANY)),
    "html": Function(_html, (), _ANY),
    "index": Function(_index, (_ANY,), _ANY),
    "join": Function(_join, (_ANY, _STRING)),
    "js": Function(_js, (), _ANY),
    "json": Function(_json, (_ANY,)),
    "le": Function(_less_or_equal, (_ANY, _ANY)),
    "len": Function(_length, (_ANY,)),
    "lower": Function(_lower, (_STRING,)),
    "lt": Function(_less, (_ANY, _ANY)),
    "ne": Function(_not_equal, (_ANY, _ANY)),
    "not": Function(_not, (_ANY,)),
    "or": Function(_or, (_ANY,), _ANY),
    "pad": Function(_pad, (_STRING, _INTEGER, _INTEGER)),
    "print": Function(_printed, (), _ANY),
    "printf": Function(_formatted, (_STRING,), _ANY),
    "println": Function(_printed_line, (), _ANY),
    "slice": Function(_slice, (_ANY,), _ANY),
    "split": Function(_split, (_STRING, _STRING)),
    "title": Function(_title, (_STRING,)),
    "truncate": Function(_truncate, (_STRING, _INTEGER)),
    "upper": Function(_upper, (_STRING,)),
    "urlquery": Function(_query, (), _ANY),
}


def _same_text(text: str, *_: Value) -> str:
    return text


HEADER_FUNCTIONS: Mapping[str, Function] = {
    **FUNCTIONS,
    # A heading stays as it is, whatever is done to the values below it.
    "join": Function(_same_text, (_STRING, _STRING)),
    "json": Function(_same_text, (_STRING,)),
    "lower": Function(_same_text, (_STRING,)),
    "split": Function(_same_text, (_STRING, _STRING)),
    "title": Function(_same_text, (_STRING,)),
    "truncate": Function(_same_text, (_STRING, _INTEGER)),
    "upper": Function(_same_text, (_STRING,)),
}
