"""Records to plain JSON values and back; unknown keys are ignored, so newer files can be read."""

from __future__ import annotations

import dataclasses
import types
import typing
from enum import Enum
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Return `value` with dataclasses as dicts, enums as text and tuples as lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    return value


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
        field.name: _convert(hints[field.name], value[field.name])
        for field in dataclasses.fields(record)  # type: ignore[arg-type]
        if field.name in value
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
        item = typing.get_args(hint)[1]
        return {key: _convert(item, part) for key, part in value.items()}
    if not isinstance(hint, type):
        return value
    if dataclasses.is_dataclass(hint):
        return from_plain(hint, value)
    return hint(value) if issubclass(hint, Enum) else value


def _convert_tuple(items: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"expected a list, got {type(value).__name__}")
    if len(items) == 2 and items[1] is Ellipsis:  # noqa: PLR2004 - tuple[X, ...]
        return tuple(_convert(items[0], part) for part in value)
    return tuple(_convert(item, part) for item, part in zip(items, value, strict=True))
