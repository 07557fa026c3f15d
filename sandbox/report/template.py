"""Docker's `--format`: `table`, `json`, `table TEMPLATE` or a template, one line a record.

The template language is Go's text/template with docker's functions; see `gotemplate`. Errors have
docker's words and are SpecErrors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sandbox.errors import SpecError
from sandbox.report.columns import align
from sandbox.report.gotemplate.values import Record, TemplateProblem, Value

if TYPE_CHECKING:
    from sandbox.report.gotemplate.nodes import Block

TABLE = "table"
JSON = "json"
_FIELD = re.compile(r"\{\{ *\.([A-Za-z]\w*) *\}\}", re.ASCII)
_UNKNOWN_FIELD = "can't evaluate field"


class Template:
    """A template that was parsed once and is executed for many values."""

    def __init__(self, text: str) -> None:
        """Parse `text`.

        Raises:
            SpecError: it is not a template; the text says where, in docker's words.
        """
        self.text = text
        self._parts = _plain_parts(text)
        self._block = None if self._parts is not None else _parse(text)

    def render(self, value: Value, *, missing_is_error: bool = False) -> str:
        """Return the text for one value; a key that a dict lacks is `<no value>`, or an error.

        Raises:
            SpecError: the value lacks a field, or a function cannot work on what it was given.
        """
        if isinstance(value, Record):
            filled = _fill(self._parts, value)
            if filled is not None:
                return filled
        from sandbox.report.gotemplate.evaluate import Execution

        execution = Execution(self.text, value, missing_is_error=missing_is_error)
        try:
            return execution.run(self._tree())
        except TemplateProblem as problem:
            raise SpecError(
                f"template parsing error: {problem}", hint=_fields_hint(str(problem), value)
            ) from None

    def render_header(self, headings: Mapping[str, str]) -> str:
        """Return the heading of a table: each field replaced by its heading.

        What cannot be done to headings ends the line there, as in docker; it is no error.
        """
        record = _header(headings)
        filled = _fill(self._parts, record)
        if filled is not None:
            return filled
        from sandbox.report.gotemplate.evaluate import Execution
        from sandbox.report.gotemplate.functions import HEADER_FUNCTIONS

        execution = Execution(self.text, record, HEADER_FUNCTIONS)
        try:
            return execution.run(self._tree())
        except TemplateProblem:
            return "".join(execution.out)

    def _tree(self) -> Block:
        if self._block is None:
            self._block = _parse(self.text)
        return self._block


class Format:
    """What `--format` asks for."""

    def __init__(self, text: str, *, default_table: str) -> None:
        """Parse `text`; `default_table` is the template of the plain word `table`.

        Raises:
            SpecError: it is not a template.
        """
        # An argument may hold bytes that are no text; printing them again would fail.
        text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace") or TABLE
        self.is_table = text.startswith(TABLE)
        self.is_json = text == JSON
        if text == TABLE:
            text = default_table
        elif self.is_table:
            text = text.removeprefix(TABLE)
        elif self.is_json:
            text = ""  # what docker takes as `{{json .}}` needs no parser
        self.template = Template(text.strip(" ").replace(r"\t", "\t").replace(r"\n", "\n"))

    def render(self, records: Iterable[Record], headings: Mapping[str, str]) -> str:
        """Return a line for each record, under headings if this is a table; ends in a newline.

        Raises:
            SpecError: the template asks for what the records lack.
        """
        if self.is_json:
            from sandbox.report.gotemplate.go_json import marshal

            return "".join(marshal(record) + "\n" for record in records)
        lines = "".join(self.template.render(record) + "\n" for record in records)
        if not self.is_table:
            return lines
        return align(self.template.render_header(headings) + "\n" + lines)


def _parse(text: str) -> Block:
    from sandbox.report.gotemplate.functions import FUNCTIONS
    from sandbox.report.gotemplate.parser import Parser

    try:
        return Parser(text, FUNCTIONS).parse()
    except TemplateProblem as problem:
        raise SpecError(
            f"template parsing error: {problem}",
            hint="a field stands in braces: `{{.Name}}`; a quick form is `--format json`",
        ) from None


def _plain_parts(text: str) -> list[str] | None:
    """Return texts and fields in turn, if there is nothing else: most templates are like that.

    They need no parser, whose modules take time to load, and no walk for every row.
    """
    parts = _FIELD.split(text)
    texts = parts[::2]
    return None if any("{{" in text or text.endswith("{") for text in texts) else parts


def _fill(parts: list[str] | None, record: Record) -> str | None:
    """Return a plain template with its fields filled in, or None if that needs a real walk."""
    if parts is None:
        return None
    out = list(parts)
    for index in range(1, len(parts), 2):
        getter = record.getters.get(parts[index])
        value = None if getter is None else getter(record.source)
        if not isinstance(value, str):
            return None
        out[index] = value
    return "".join(out)


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
