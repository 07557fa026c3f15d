"""The values that a template works on, and what Go would call their types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

from sandbox.records.light import dataclass, field


class TemplateProblem(Exception):  # noqa: N818 - internal; users see a SpecError with its text
    """A template that cannot be parsed or executed; the text says where and why."""


class CallProblem(Exception):  # noqa: N818 - internal; becomes a TemplateProblem with its place
    """A function was given what it cannot work on."""


class _Absent(Enum):
    NO_VALUE = "<no value>"


NO_VALUE: Final = _Absent.NO_VALUE
"""What a missing key gives. It differs from nil: nil's fields cannot be asked for."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """A value with named fields, each computed from `source` only when a template asks for it."""

    type_name: str
    """What an error about an unknown field calls it."""
    getters: Mapping[str, Callable[[Any], Value]]
    source: Any
    methods: Mapping[str, Callable[[Any, str], Value]] = field(default_factory=dict)
    """Fields that take one text, such as `.Label "key"`."""
    json_names: tuple[str, ...]
    """The fields that `json` writes."""
    lenient: bool = False
    """A field that it lacks is `<no value>` instead of an error."""

    def plain(self) -> dict[str, Value]:
        """Return the fields that `json` writes."""
        return {name: self.getters[name](self.source) for name in self.json_names}


Value: TypeAlias = (
    bool
    | int
    | float
    | str
    | Record
    | list["Value"]
    | tuple["Value", ...]
    | dict[str, "Value"]
    | Literal[_Absent.NO_VALUE]
    | None
)


def truth(value: Value) -> bool:
    """Return whether `if` takes a value as true: whether it is not the zero of its type."""
    if isinstance(value, Record):
        return True
    return value is not NO_VALUE and bool(value)


def type_name(value: Value) -> str:
    """Return Go's name for the type of a value."""
    names = {bool: "bool", int: "int", float: "float64", str: "string"}
    name = names.get(type(value))
    if name is not None:
        return name
    if isinstance(value, Record):
        return value.type_name
    if isinstance(value, dict):
        texts = bool(value) and all(isinstance(item, str) for item in value.values())
        return "map[string]string" if texts else "map[string]interface {}"
    if isinstance(value, (list, tuple)):
        texts = bool(value) and all(isinstance(item, str) for item in value)
        return "[]string" if texts else "[]interface {}"
    return "interface {}"


def is_integer(value: Value) -> bool:
    """Return whether a value is an int and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def cut(text: str, start: int, end: int) -> str:
    """Return the bytes from `start` to `end` of a text, as Go counts; half characters become �."""
    return text.encode("utf-8", "replace")[start:end].decode("utf-8", "replace")


def byte_length(text: str) -> int:
    """Return the length of a text as Go counts it: in bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
