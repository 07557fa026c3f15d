"""Dataclasses that take no time to define: the words of `dataclasses`, without generated code.

The standard library writes and compiles six functions for each class, half a millisecond every
time that a command starts. Here all classes share functions that look their fields up. What is
left out (`slots`, `order`, `init`, inheritance) is refused; type checkers see the standard
library's own, and its `fields`, `asdict` and `replace` work on what is made here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["dataclass", "field", "names_of", "replace"]

T = TypeVar("T")


def names_of(kind: type) -> tuple[str, ...] | None:
    """Return the fields of a dataclass, the standard library's included; None for other types."""
    layout = getattr(kind, "__light__", None)
    if layout is not None:
        return tuple(layout.names)
    fields = getattr(kind, "__dataclass_fields__", None)
    return None if fields is None else tuple(fields)


if TYPE_CHECKING:
    from dataclasses import dataclass, field, replace
else:

    def dataclass(*, frozen: bool = False, kw_only: bool = False) -> Callable[[type], type]:
        """Make a dataclass: it can be printed and compared, and if it is frozen, hashed."""

        def make(cls: type) -> type:
            _equip(cls, _Layout(cls, frozen=frozen, kw_only=kw_only))
            return cls

        return make

    def field(*, default_factory: Callable[[], T], repr: bool = True) -> T:  # noqa: A002
        """Return what stands for a default that is made anew, or that is not to be shown."""
        return _Made(default_factory, is_shown=repr)

    def replace(record: T, /, **changes: Any) -> T:
        """Return a record with some values changed."""
        return type(record)(**{**record.__dict__, **changes})


class _Made:
    """A default before it is taken out of the class."""

    def __init__(self, make: Callable[[], Any], *, is_shown: bool) -> None:
        self.make = make
        self.is_shown = is_shown


class _Layout:
    """What the shared functions know of a class."""

    def __init__(self, cls: type, *, frozen: bool, kw_only: bool) -> None:
        if hasattr(cls, "__light__"):
            raise TypeError(f"{cls.__name__} inherits from a dataclass: use `dataclasses` for it")
        self.names = cls.__annotations__  # in order, and looked up quickly
        self.frozen = frozen
        self.kw_only = kw_only
        given = {name: cls.__dict__[name] for name in self.names if name in cls.__dict__}
        self.made = {name: value for name, value in given.items() if isinstance(value, _Made)}
        self.plain = {name: value for name, value in given.items() if name not in self.made}
        for name in self.made:
            delattr(cls, name)

    def complain(self, kind: type, values: Mapping[str, Any]) -> TypeError:
        """Return what to raise for arguments that are not the fields."""
        unknown = [name for name in values if name not in self.names]
        if unknown:
            return TypeError(f"{kind.__name__}() has no field {unknown[0]!r}")
        missing = [name for name in self.names if name not in values]
        return TypeError(f"{kind.__name__}() needs a value for {', '.join(map(repr, missing))}")


def _equip(cls: Any, layout: _Layout) -> None:
    cls.__light__ = layout
    cls.__init__ = _init
    cls.__repr__ = _repr
    cls.__eq__ = _eq
    cls.__hash__ = _hash if layout.frozen else None
    cls.__replace__ = replace
    if layout.frozen:
        cls.__setattr__ = _refuse
        cls.__delattr__ = _refuse
    for name in ("__dataclass_fields__", "__dataclass_params__", "__signature__"):
        setattr(cls, name, _Standard(name))


def _init(self: Any, *args: Any, **values: Any) -> None:
    layout = self.__light__
    if args:
        if layout.kw_only or len(args) > len(layout.names):
            raise TypeError(f"{type(self).__name__}() takes its fields by name")
        values.update(zip(layout.names, args, strict=False))
    state = self.__dict__  # nothing but this writes to a frozen one
    state.update(layout.plain)
    state.update(values)
    for name, value in layout.made.items():
        if name not in values:
            state[name] = value.make()
    if state.keys() != layout.names.keys():
        raise layout.complain(type(self), state)
    if hasattr(self, "__post_init__"):
        self.__post_init__()


def _repr(self: Any) -> str:
    made = self.__light__.made
    shown = (name for name in self.__light__.names if name not in made or made[name].is_shown)
    values = ", ".join(f"{name}={self.__dict__[name]!r}" for name in shown)
    return f"{type(self).__qualname__}({values})"


def _eq(self: Any, other: object) -> bool:
    return self.__dict__ == other.__dict__ if type(self) is type(other) else NotImplemented


def _hash(self: Any) -> int:
    return hash(tuple(self.__dict__[name] for name in self.__light__.names))


def _refuse(self: Any, name: str, *_value: Any) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"{type(self).__name__}.{name} cannot be changed: use `replace`")


class _Standard:
    """An attribute that `dataclasses` or `inspect` wants to see, made when it does."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, _record: object, kind: Any) -> Any:
        import dataclasses
        import inspect

        layout = kind.__light__
        fields = [
            (name, hint, _standard_field(layout, name)) for name, hint in layout.names.items()
        ]
        twin = dataclasses.make_dataclass(
            kind.__name__, fields, frozen=layout.frozen, kw_only=layout.kw_only
        )
        kind.__dataclass_fields__ = twin.__dataclass_fields__  # type: ignore[attr-defined]
        kind.__dataclass_params__ = twin.__dataclass_params__  # type: ignore[attr-defined]
        kind.__signature__ = inspect.signature(twin)
        return getattr(kind, self._name)


def _standard_field(layout: _Layout, name: str) -> Any:
    import dataclasses

    if name in layout.made:
        made = layout.made[name]
        return dataclasses.field(default_factory=made.make, repr=made.is_shown)
    return dataclasses.field(default=layout.plain.get(name, dataclasses.MISSING))
