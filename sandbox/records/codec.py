"""Records to plain JSON values and back; unknown keys are ignored, so newer files can be read."""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from sandbox.records.light import names_of

T = TypeVar("T")


_LEAVES = frozenset({str, int, float, bool, type(None)})


def to_plain(value: Any) -> Any:
    """Return `value` with dataclasses as dicts, enums as text and tuples as lists."""
    kind = type(value)
    if kind in _LEAVES:  # nearly always, and a run is written twice in its few milliseconds
        return value
    names = _field_names(kind)
    if names is not None:
        return {name: to_plain(getattr(value, name)) for name in names}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    return value


_field_names: Callable[[Any], tuple[str, ...] | None] = cache(names_of)


def to_json(value: Any) -> str:
    """Return `value` as JSON for people; what JSON has no number for becomes null."""
    return json.dumps(_finite(to_plain(value)), indent=2, default=str) + "\n"


def to_line(value: Any) -> str:
    """Return `value` as one line of JSON; many times faster than `to_json`."""
    try:
        return _ENCODER.encode(value)
    except ValueError:
        return _ENCODER.encode(_finite(to_plain(value)))


def to_lines(fields: Mapping[str, Any]) -> str:
    """Return fields, by names, as a JSON object with one a line: nearly as fast, and to be read."""
    lines = (f'"{name}": {to_line(value)}' for name, value in fields.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _shallow(value: Any) -> Any:
    """Return what stands for a value that JSON does not know: its fields, or its text."""
    return str(value) if _field_names(type(value)) is None else fields_of(value)


_ENCODER = json.JSONEncoder(allow_nan=False, default=_shallow, separators=(",", ":"))


def fields_of(record: Any) -> dict[str, Any]:
    """Return the values of a dataclass by name; `to_plain` does it all the way down."""
    return {name: getattr(record, name) for name in _field_names(type(record)) or ()}


def _finite(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {key: _finite(item) for key, item in plain.items()}
    if isinstance(plain, list):
        return [_finite(item) for item in plain]
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain


@cache
def _types_of(record: type) -> dict[str, Any]:
    return typing.get_type_hints(record)


def from_plain(record: type[T], value: Any) -> T:
    """Return a `record` built from plain values.

    Raises:
        TypeError, ValueError, KeyError: the values do not fit the record.
    """
    if not isinstance(value, dict):
        raise TypeError(f"expected the fields of {record.__name__}, got {type(value).__name__}")
    hints = _types_of(typing.cast("Any", record))
    known = {
        name: _convert(hints[name], value[name])
        for name in _field_names(record) or ()
        if name in value
    }
    return record(**known)


def _convert(hint: Any, value: Any) -> Any:
    origin = typing.get_origin(hint)
    if origin in {types.UnionType, typing.Union}:
        if value is None:
            return None
        return _convert(next(arg for arg in typing.get_args(hint) if arg is not type(None)), value)
    if origin is tuple:
        return _convert_tuple(typing.get_args(hint), value)
    if origin is dict:
        return _convert_dict(typing.get_args(hint)[1], value)
    return _convert_one(hint, value) if isinstance(hint, type) else value


def _convert_one(hint: type, value: Any) -> Any:
    if _field_names(hint) is not None:
        return from_plain(hint, value)
    if issubclass(hint, Enum):
        return hint(value)
    if hint is float and type(value) is int:
        return float(value)
    if hint in {int, float, str, bool} and type(value) is not hint:
        raise TypeError(f"expected {hint.__name__}, got {type(value).__name__}")
    return value


def _convert_dict(item: Any, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"expected an object, got {type(value).__name__}")
    return {key: _convert(item, part) for key, part in value.items()}


def _convert_tuple(items: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"expected a list, got {type(value).__name__}")
    if len(items) == 2 and items[1] is Ellipsis:  # noqa: PLR2004 - tuple[X, ...]
        return tuple(_convert(items[0], part) for part in value)
    return tuple(_convert(item, part) for item, part in zip(items, value, strict=True))
