"""Docker's `--format`: `table`, `json`, `table TEMPLATE` or a template, one line a record.

The template language is Go's text/template with docker's functions; see `gotemplate`. Errors have
docker's words and are SpecErrors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sandbox.errors import SpecError
from sandbox.report.columns import align
from sandbox.report.gotemplate.evaluate import Execution
from sandbox.report.gotemplate.functions import FUNCTIONS, HEADER_FUNCTIONS
from sandbox.report.gotemplate.nodes import Action, Block, Field, Text
from sandbox.report.gotemplate.parser import Parser
from sandbox.report.gotemplate.values import Record, TemplateProblem, Value

TABLE = "table"
JSON = "json"
_JSON_TEMPLATE = "{{json .}}"
_UNKNOWN_FIELD = "can't evaluate field"


class Template:
    """A template that was parsed once and is executed for many values."""

    def __init__(self, text: str) -> None:
        """Parse `text`.

        Raises:
            SpecError: it is not a template; the text says where, in docker's words.
        """
        self.text = text
        try:
            self._block = Parser(text, FUNCTIONS).parse()
        except TemplateProblem as problem:
            raise SpecError(
                f"template parsing error: {problem}",
                hint="a field stands in braces: `{{.Name}}`; a quick form is `--format json`",
            ) from None
        self._parts = _plain_parts(self._block)

    def render(self, value: Value, *, missing_is_error: bool = False) -> str:
        """Return the text for one value; a key that a dict lacks is `<no value>`, or an error.

        Raises:
            SpecError: the value lacks a field, or a function cannot work on what it was given.
        """
        if self._parts is not None and isinstance(value, Record):
            return self._fill(value, self._parts)
        execution = Execution(self.text, value, missing_is_error=missing_is_error)
        try:
            return execution.run(self._block)
        except TemplateProblem as problem:
            raise SpecError(
                f"template parsing error: {problem}", hint=_fields_hint(str(problem), value)
            ) from None

    def render_header(self, headings: Mapping[str, str]) -> str:
        """Return the heading of a table: each field replaced by its heading.

        What cannot be done to headings ends the line there, as in docker; it is no error.
        """
        execution = Execution(self.text, _header(headings), HEADER_FUNCTIONS)
        try:
            return execution.run(self._block)
        except TemplateProblem:
            return "".join(execution.out)

    def _fill(self, record: Record, parts: Iterable[str | Field]) -> str:
        """Return what the commonest templates make, texts and fields, without a walk."""
        out = []
        for part in parts:
            if isinstance(part, str):
                out.append(part)
                continue
            getter = record.getters.get(part.path[0])
            value = None if getter is None else getter(record.source)
            if not isinstance(value, str):
                self._parts = None
                return self.render(record)
            out.append(value)
        return "".join(out)


class Format:
    """What `--format` asks for."""

    def __init__(self, text: str, *, default_table: str) -> None:
        """Parse `text`; `default_table` is the template of the plain word `table`.

        Raises:
            SpecError: it is not a template.
        """
        text = text or TABLE
        self.is_table = text.startswith(TABLE)
        self.is_json = text == JSON
        if text == TABLE:
            text = default_table
        elif self.is_table:
            text = text.removeprefix(TABLE)
        elif self.is_json:
            text = _JSON_TEMPLATE
        self.template = Template(text.strip(" ").replace(r"\t", "\t").replace(r"\n", "\n"))

    def render(self, records: Iterable[Record], headings: Mapping[str, str]) -> str:
        """Return a line for each record, under headings if this is a table; ends in a newline.

        Raises:
            SpecError: the template asks for what the records lack.
        """
        lines = "".join(self.template.render(record) + "\n" for record in records)
        if not self.is_table:
            return lines
        return align(self.template.render_header(headings) + "\n" + lines)


def _plain_parts(block: Block) -> list[str | Field] | None:
    """Return a template's texts and fields, or None if there is more to it."""
    parts: list[str | Field] = []
    for node in block.nodes:
        if isinstance(node, Text):
            parts.append(node.text)
            continue
        if not isinstance(node, Action) or node.pipeline.variables:
            return None
        terms = [term for command in node.pipeline.commands for term in command.terms]
        if len(terms) != 1 or not isinstance(terms[0], Field) or len(terms[0].path) != 1:
            return None
        parts.append(terms[0])
    return parts


def _header(headings: Mapping[str, str]) -> Record:
    def label(_: Any, key: str) -> str:
        return key.rpartition(".")[2].replace("-", " ").replace("_", " ")

    return Record(
        type_name="formatter.SubHeaderContext",
        getters={name: _constant(text) for name, text in headings.items()},
        source=None,
        methods={"Label": label},
        json_names=tuple(headings),
        lenient=True,
    )


def _constant(text: str) -> Any:
    return lambda _: text


def _fields_hint(problem: str, value: Value) -> str | None:
    if _UNKNOWN_FIELD not in problem or not isinstance(value, Record):
        return None
    return "the fields are " + ", ".join(f".{name}" for name in sorted(value.getters))
