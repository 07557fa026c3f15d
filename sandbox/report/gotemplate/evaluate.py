"""A template's tree over a value: the text that it makes, or where it fails.

An error is placed at the node that was looked at last, as docker's are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sandbox.report.gotemplate import nodes
from sandbox.report.gotemplate.functions import FUNCTIONS, Function, Parameter
from sandbox.report.gotemplate.printing import show, show_output
from sandbox.report.gotemplate.quoting import quote
from sandbox.report.gotemplate.values import (
    NO_VALUE,
    CallProblem,
    Record,
    TemplateProblem,
    Value,
    is_integer,
    truth,
    type_name,
)

_MOST_STEPS = 100_000
"""Statements for one row; only a loop over a large number comes to it."""
_LARGEST_INT = (1 << 63) - 1


class _NoArgument:
    """Stands for the value of the previous command, where there was none."""


_NONE = _NoArgument()


@dataclass(frozen=True, slots=True)
class _Given:
    """What a function or field is called with: the terms behind it, and the piped value."""

    terms: Sequence[nodes.Term] = ()
    last: Value | _NoArgument = _NONE

    def __len__(self) -> int:
        return len(self.terms) + (not isinstance(self.last, _NoArgument))


_NOTHING = _Given()


class _Jump(Exception):  # noqa: N818 - `break` or `continue`, to the nearest range
    def __init__(self, word: str) -> None:
        super().__init__(word)
        self.word = word


class Execution:
    """One walk over a tree; `out` holds what was written, also after an error."""

    def __init__(
        self,
        source: str,
        root: Value,
        functions: Mapping[str, Function] = FUNCTIONS,
        *,
        missing_is_error: bool = False,
    ) -> None:
        self.out: list[str] = []
        self._source = source
        self._functions = functions
        self._missing_is_error = missing_is_error
        self._variables: list[tuple[str, Value]] = [("$", root)]
        self._node: nodes.Node | None = None
        self._steps = 0

    def run(self, block: nodes.Block) -> str:
        """Return what the template writes.

        Raises:
            TemplateProblem: it asks for what is not there, or calls something wrongly.
        """
        self._walk(self._variables[0][1], block)
        return "".join(self.out)

    def _problem(self, text: str) -> TemplateProblem:
        node = self._node
        if node is None:
            return TemplateProblem(f"template: : {text}")
        before = self._source[: node.start]
        line = before.count("\n") + 1
        column = len(before[before.rfind("\n") + 1 :].encode("utf-8", "replace"))
        return TemplateProblem(f'template: :{line}:{column}: executing "" at <{node}>: {text}')

    # --- statements -------------------------------------------------------------------------------

    def _walk(self, dot: Value, block: nodes.Block) -> None:
        for node in block.nodes:
            self._node = node
            self._step()
            if isinstance(node, nodes.Text):
                self.out.append(node.text)
            elif isinstance(node, nodes.Action):
                value = self._pipeline(dot, node.pipeline)
                if not node.pipeline.variables:
                    self.out.append(show_output(value))
            elif isinstance(node, nodes.Mark):
                raise _Jump(node.word)
            elif node.word == "range":
                self._range(dot, node)
            else:
                self._choose(dot, node)

    def _step(self) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise self._problem(f"the template does not end within {_MOST_STEPS} steps")

    def _choose(self, dot: Value, node: nodes.Branch) -> None:
        known = len(self._variables)
        value = self._pipeline(dot, node.pipeline)
        if truth(value):
            self._walk(value if node.word == "with" else dot, node.body)
        elif node.otherwise is not None:
            self._walk(dot, node.otherwise)
        del self._variables[known:]

    def _range(self, dot: Value, node: nodes.Branch) -> None:
        known = len(self._variables)
        value = self._pipeline(dot, node.pipeline)
        names = node.pipeline.variables
        empty = True
        inside = len(self._variables)
        for key, item in self._items(value, len(names)):
            empty = False
            if names:
                self._set_loop_variables(node.pipeline, key, item)
            try:
                self._walk(item, node.body)
            except _Jump as jump:
                if jump.word == "break":
                    break
            finally:
                del self._variables[inside:]
        if empty and node.otherwise is not None:
            self._walk(dot, node.otherwise)
        del self._variables[known:]

    def _items(self, value: Value, names: int) -> Iterator[tuple[Value, Value]]:
        if value is None or value is NO_VALUE:
            return
        if isinstance(value, dict):
            yield from sorted(value.items())
        elif isinstance(value, (list, tuple)):
            yield from enumerate(value)
        elif isinstance(value, int) and is_integer(value):
            if names > 1:
                raise self._problem(f"can't use {value} to iterate over more than one variable")
            for number in range(value):
                self._step()
                yield number, number
        else:
            raise self._problem(f"range can't iterate over {show(value)}")

    def _set_loop_variables(self, pipeline: nodes.Pipeline, key: Value, item: Value) -> None:
        names = [variable.path[0] for variable in pipeline.variables]
        values = [key, item] if len(names) > 1 else [item]
        if pipeline.assigns:
            for name, value in zip(names, values, strict=True):
                self._assign(name, value)
            return
        start = len(self._variables) - len(names)
        for offset, (name, value) in enumerate(zip(names, values, strict=True)):
            self._variables[start + offset] = (name, value)

    # --- pipelines --------------------------------------------------------------------------------

    def _pipeline(self, dot: Value, pipeline: nodes.Pipeline) -> Value:
        self._node = pipeline
        value: Value | _NoArgument = _NONE
        for command in pipeline.commands:
            value = self._command(dot, command, value)
        result = NO_VALUE if isinstance(value, _NoArgument) else value
        for variable in pipeline.variables:
            if pipeline.assigns:
                self._assign(variable.path[0], result)
            else:
                self._variables.append((variable.path[0], result))
        return result

    def _assign(self, name: str, value: Value) -> None:
        for index in range(len(self._variables) - 1, -1, -1):
            if self._variables[index][0] == name:
                self._variables[index] = (name, value)
                return
        raise self._problem(f"undefined variable: {name}")

    def _variable(self, name: str) -> Value:
        for known, value in reversed(self._variables):
            if known == name:
                return value
        raise self._problem(f"undefined variable: {name}")

    def _command(self, dot: Value, command: nodes.Command, last: Value | _NoArgument) -> Value:
        first, given = command.terms[0], _Given(command.terms[1:], last)
        if isinstance(first, nodes.Field):
            self._node = first
            return self._path(dot, dot, first.path, given)
        if isinstance(first, nodes.Chain):
            return self._chain(dot, first, given)
        if isinstance(first, nodes.Variable):
            return self._variable_path(dot, first, given)
        if isinstance(first, nodes.Name):
            return self._function(dot, first, command, given)
        if isinstance(first, nodes.Pipeline):
            self._refuse_arguments(first, given)
            return self._pipeline(dot, first)
        self._node = first
        self._refuse_arguments(first, given)
        if isinstance(first, nodes.Nil):
            raise self._problem("nil is not a command")
        return dot if isinstance(first, nodes.Dot) else self._constant(first)

    def _refuse_arguments(self, term: nodes.Term, given: _Given) -> None:
        if len(given):
            raise self._problem(f"can't give argument to non-function {term}")

    def _constant(self, constant: nodes.Constant) -> Value:
        self._node = constant
        value = constant.value
        if isinstance(value, int) and value > _LARGEST_INT:
            raise self._problem(f"{constant.written} overflows int")
        return value

    # --- fields -----------------------------------------------------------------------------------

    def _chain(self, dot: Value, chain: nodes.Chain, given: _Given) -> Value:
        self._node = chain
        start = self._argument(dot, chain.term, None)
        return self._path(dot, start, chain.path, given)

    def _variable_path(self, dot: Value, variable: nodes.Variable, given: _Given) -> Value:
        self._node = variable
        value = self._variable(variable.path[0])
        if len(variable.path) == 1:
            self._refuse_arguments(variable, given)
            return value
        return self._path(dot, value, variable.path[1:], given)

    def _path(
        self,
        dot: Value,
        value: Value,
        path: Sequence[str],
        given: _Given,
    ) -> Value:
        *outer, final = path
        for name in outer:
            value = self._field(dot, value, name, _NOTHING)
        return self._field(dot, value, final, given)

    def _field(
        self,
        dot: Value,
        value: Value,
        name: str,
        given: _Given,
    ) -> Value:
        if value is NO_VALUE:
            if self._missing_is_error:
                raise self._problem(f"nil data; no entry for key {quote(name)}")
            return NO_VALUE
        if value is None:
            raise self._problem(f"nil pointer evaluating interface {{}}.{name}")
        if isinstance(value, dict):
            return self._key(value, name, given)
        if isinstance(value, Record):
            return self._member(dot, value, name, given)
        raise self._problem(f"can't evaluate field {name} in type {type_name(value)}")

    def _key(self, value: dict[str, Value], name: str, given: _Given) -> Value:
        if len(given):
            raise self._problem(f"{name} is not a method but has arguments")
        if name in value:
            return value[name]
        if self._missing_is_error:
            raise self._problem(f"map has no entry for key {quote(name)}")
        return NO_VALUE

    def _member(
        self,
        dot: Value,
        record: Record,
        name: str,
        given: _Given,
    ) -> Value:
        method = record.methods.get(name)
        wanted = 0 if method is None else 1
        if name not in record.getters and method is None:
            if record.lenient:
                return NO_VALUE
            raise self._problem(f"can't evaluate field {name} in type {record.type_name}")
        if len(given) != wanted:
            raise self._problem(f"wrong number of args for {name}: want {wanted} got {len(given)}")
        if method is None:
            return record.getters[name](record.source)
        if isinstance(given.last, _NoArgument):
            argument = self._argument(dot, given.terms[0], Parameter.STRING)
        else:
            argument = self._checked(given.last, Parameter.STRING)
        return method(record.source, str(argument))

    # --- calls ------------------------------------------------------------------------------------

    def _function(
        self,
        dot: Value,
        name: nodes.Name,
        whole: nodes.Node,
        given: _Given,
    ) -> Value:
        self._node = name
        function = self._functions[name.name]
        fixed = len(function.parameters)
        count = len(given)
        if function.rest is not None and count < fixed:
            raise self._problem(
                f"wrong number of args for {name}: want at least {fixed} got {len(given.terms)}"
            )
        if function.rest is None and count != fixed:
            raise self._problem(f"wrong number of args for {name}: want {fixed} got {count}")
        if name.name in {"and", "or"}:
            return self._short_circuit(dot, name.name, given)
        kinds = [*function.parameters, *[function.rest] * (count - fixed)]
        values = [
            self._argument(dot, term, kind) for term, kind in zip(given.terms, kinds, strict=False)
        ]
        if not isinstance(given.last, _NoArgument):
            values.append(self._checked(given.last, kinds[-1]))
        try:
            return function.call(*values)
        except CallProblem as problem:
            self._node = whole
            raise self._problem(f"error calling {name}: {problem}") from None

    def _short_circuit(self, dot: Value, name: str, given: _Given) -> Value:
        value: Value = NO_VALUE
        for term in given.terms:
            value = self._argument(dot, term, Parameter.ANY)
            if truth(value) == (name == "or"):
                return value
        return value if isinstance(given.last, _NoArgument) else given.last

    def _argument(self, dot: Value, term: nodes.Term, kind: Parameter | None) -> Value:
        """Return the value of a term that stands as an argument."""
        self._node = term
        if isinstance(term, nodes.Constant):
            return self._constant_as(term, kind)
        if not isinstance(term, nodes.Nil):
            return self._checked(self._value(dot, term), kind)
        if kind is Parameter.ANY:
            return None
        raise self._problem(f"cannot assign nil to {'' if kind is None else kind.value}")

    def _value(self, dot: Value, term: nodes.Source) -> Value:
        if isinstance(term, nodes.Dot):
            return dot
        if isinstance(term, nodes.Field):
            return self._path(dot, dot, term.path, _NOTHING)
        if isinstance(term, nodes.Variable):
            return self._variable_path(dot, term, _NOTHING)
        if isinstance(term, nodes.Pipeline):
            return self._pipeline(dot, term)
        if isinstance(term, nodes.Name):
            return self._function(dot, term, term, _NOTHING)
        return self._chain(dot, term, _NOTHING)

    def _constant_as(self, constant: nodes.Constant, kind: Parameter | None) -> Value:
        value = constant.value
        if kind is Parameter.STRING and not isinstance(value, str):
            raise self._problem(f"expected string; found {constant}")
        if kind is Parameter.INTEGER:
            if isinstance(value, float) and value.is_integer() and abs(value) <= _LARGEST_INT:
                return int(value)
            if not isinstance(value, int) or not is_integer(value) or value > _LARGEST_INT:
                raise self._problem(f"expected integer; found {constant}")
        return self._constant(constant)

    def _checked(self, value: Value, kind: Parameter | None) -> Value:
        """Return `value` if it is of the kind that a function wants."""
        if kind is None or kind is Parameter.ANY:
            return value
        if value is NO_VALUE:
            raise self._problem(f"invalid value; expected {kind.value}")
        fits = isinstance(value, str) if kind is Parameter.STRING else is_integer(value)
        if not fits:
            raise self._problem(
                f"wrong type for value; expected {kind.value}; got {type_name(value)}"
            )
        return value
