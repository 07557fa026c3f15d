"""The tree of a template; `str()` of a node is its text as error messages show it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(slots=True, kw_only=True)
class Node:
    """Something in a template, and where it starts, in characters."""

    start: int


@dataclass(slots=True, kw_only=True)
class Text(Node):
    """Text outside of actions."""

    text: str

    def __str__(self) -> str:
        """Return the text itself."""
        return self.text


@dataclass(slots=True, kw_only=True)
class Name(Node):
    """A function's name."""

    name: str

    def __str__(self) -> str:
        """Return the name."""
        return self.name


@dataclass(slots=True, kw_only=True)
class Variable(Node):
    """`$x.A.B`: a variable and fields of it."""

    path: tuple[str, ...]

    def __str__(self) -> str:
        """Return the path."""
        return ".".join(self.path)


@dataclass(slots=True, kw_only=True)
class Dot(Node):
    """The value at hand."""

    def __str__(self) -> str:
        """Return the dot."""
        return "."


@dataclass(slots=True, kw_only=True)
class Nil(Node):
    """The word `nil`."""

    def __str__(self) -> str:
        """Return the word."""
        return "nil"


@dataclass(slots=True, kw_only=True)
class Field(Node):
    """`.A.B`: fields of the value at hand."""

    path: tuple[str, ...]

    def __str__(self) -> str:
        """Return the path with its dots."""
        return "".join("." + part for part in self.path)


@dataclass(slots=True, kw_only=True)
class Chain(Node):
    """`(…).A.B`: fields of what a term gives."""

    term: Term
    path: tuple[str, ...]

    def __str__(self) -> str:
        """Return the term, in parentheses if it is a pipeline, and the path."""
        term = f"({self.term})" if isinstance(self.term, Pipeline) else str(self.term)
        return term + "".join("." + part for part in self.path)


@dataclass(slots=True, kw_only=True)
class Constant(Node):
    """A bool, number or string, as written and as meant."""

    value: bool | int | float | str
    written: str

    def __str__(self) -> str:
        """Return it as it was written."""
        return self.written


@dataclass(slots=True, kw_only=True)
class Command(Node):
    """A term and what it is given."""

    terms: list[Term] = field(default_factory=list)

    def __str__(self) -> str:
        """Return the terms, pipelines in parentheses."""
        return " ".join(
            f"({term})" if isinstance(term, Pipeline) else str(term) for term in self.terms
        )


@dataclass(slots=True, kw_only=True)
class Pipeline(Node):
    """Commands, each given what the one before it gave; and variables that keep the result."""

    variables: list[Variable] = field(default_factory=list)
    assigns: bool = False
    """True for `=`, false for `:=`."""
    commands: list[Command] = field(default_factory=list)

    def __str__(self) -> str:
        """Return variables and commands."""
        text = " | ".join(map(str, self.commands))
        if not self.variables:
            return text
        return f"{', '.join(map(str, self.variables))} {'=' if self.assigns else ':='} {text}"


Source: TypeAlias = Name | Variable | Dot | Field | Chain | Pipeline
Term: TypeAlias = Source | Nil | Constant


@dataclass(slots=True, kw_only=True)
class Action(Node):
    """`{{pipeline}}`."""

    pipeline: Pipeline

    def __str__(self) -> str:
        """Return the action with its delimiters."""
        return "{{" + str(self.pipeline) + "}}"


@dataclass(slots=True, kw_only=True)
class Block(Node):
    """Nodes one after another."""

    nodes: list[Statement] = field(default_factory=list)

    def __str__(self) -> str:
        """Return them as text."""
        return "".join(map(str, self.nodes))


@dataclass(slots=True, kw_only=True)
class Branch(Node):
    """`if`, `with` or `range`, what it does, and what it does otherwise."""

    word: str
    pipeline: Pipeline
    body: Block
    otherwise: Block | None

    def __str__(self) -> str:
        """Return the whole, from the first word to its `end`."""
        text = "{{" + f"{self.word} {self.pipeline}" + "}}" + str(self.body)
        if self.otherwise is not None:
            text += "{{else}}" + str(self.otherwise)
        return text + "{{end}}"


@dataclass(slots=True, kw_only=True)
class Mark(Node):
    """`end`, `else`, `break` or `continue`."""

    word: str

    def __str__(self) -> str:
        """Return the word with its delimiters."""
        return "{{" + self.word + "}}"


Statement: TypeAlias = Text | Action | Branch | Mark
