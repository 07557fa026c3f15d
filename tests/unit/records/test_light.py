"""Our dataclasses beside the standard library's: the same to whoever uses them."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Any

import pytest

from sandbox.records.light import dataclass, field, names_of, replace


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """One with every kind of field."""

    first: int
    second: str = "two"
    third: dict[str, int] = field(default_factory=dict)
    secret: tuple[str, ...] = field(default_factory=tuple, repr=False)


@dataclass(frozen=True)
class Ordered:
    """One whose fields may be given in order."""

    left: int
    right: int = 0


@dataclass()
class Mutable:
    """One that may be changed."""

    value: int


@dataclass(frozen=True, kw_only=True)
class Positive:
    """One that checks itself."""

    value: int

    def __post_init__(self) -> None:
        if self.value <= 0:
            raise ValueError(self.value)


def test_defaults_are_filled_in_and_made_anew() -> None:
    one, other = Frozen(first=1), Frozen(first=1)

    assert (one.second, one.third) == ("two", {})
    assert one.third is not other.third
    assert one == other


def test_fields_may_be_given_in_order_unless_only_by_name() -> None:
    assert Ordered(1, 2) == Ordered(right=2, left=1)
    with pytest.raises(TypeError, match="by name"):
        Frozen(1)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "Frozen() needs a value for 'first'"),
        ({"first": 1, "fourth": 4}, "Frozen() has no field 'fourth'"),
    ],
)
def test_wrong_arguments_are_named(values: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError) as caught:
        Frozen(**values)

    assert str(caught.value) == said


def test_equality_asks_for_the_same_class_and_values() -> None:
    assert Ordered(1) != Ordered(2)
    assert Ordered(1) != Mutable(1)
    assert Mutable(1) == Mutable(1)


def test_equal_frozen_ones_have_one_hash_and_mutable_ones_none() -> None:
    assert len({Ordered(1, 2), Ordered(right=2, left=1), Ordered(2, 1)}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(Mutable(1))


def test_frozen_ones_cannot_be_changed_and_mutable_ones_can() -> None:
    frozen, mutable = Ordered(1), Mutable(1)

    with pytest.raises(dataclasses.FrozenInstanceError):
        frozen.left = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del frozen.left  # type: ignore[misc]
    mutable.value = 2

    assert (frozen.left, mutable.value) == (1, 2)


def test_replace_checks_again_and_leaves_the_original() -> None:
    record = Positive(value=1)

    assert replace(record, value=2) == Positive(value=2)
    assert record.value == 1
    with pytest.raises(ValueError, match="0"):
        replace(record, value=0)
    with pytest.raises(TypeError, match="no field 'other'"):
        replace(record, other=0)


def test_what_is_hidden_is_not_printed() -> None:
    shown = repr(Frozen(first=1, secret=("password",)))

    assert shown == "Frozen(first=1, second='two', third={})"


def test_copies_and_pickles_are_equal() -> None:
    record = Frozen(first=1, third={"x": 1})

    assert copy.deepcopy(record) == record
    assert pickle.loads(pickle.dumps(record)) == record


def test_the_standard_library_takes_them_for_its_own() -> None:
    record = Frozen(first=1)

    assert dataclasses.is_dataclass(Frozen)
    assert [item.name for item in dataclasses.fields(Frozen)] == [
        "first",
        "second",
        "third",
        "secret",
    ]
    assert dataclasses.asdict(record) == {"first": 1, "second": "two", "third": {}, "secret": ()}
    assert dataclasses.replace(record, second="2").second == "2"
    parameters = inspect.signature(Frozen).parameters
    assert parameters["second"].default == "two"
    assert parameters["first"].kind is inspect.Parameter.KEYWORD_ONLY


def test_inheritance_is_refused() -> None:
    with pytest.raises(TypeError, match="inherits from a dataclass"):

        @dataclass(frozen=True)
        class _Child(Ordered):
            more: int = 0


def test_the_names_of_both_kinds_of_dataclass_are_known() -> None:
    @dataclasses.dataclass
    class Standard:
        one: int

    assert names_of(Standard) == ("one",)
    assert names_of(Ordered) == ("left", "right")
    assert names_of(int) is None
