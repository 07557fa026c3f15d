"""A template's tokens to its tree; errors carry the line that they are on."""

from __future__ import annotations

from collections.abc import Container

from sandbox.report.gotemplate import literals
from sandbox.report.gotemplate.lexer import Lexer
from sandbox.report.gotemplate.nodes import (
    Action,
    Block,
    Branch,
    Chain,
    Command,
    Constant,
    Dot,
    Field,
    Mark,
    Name,
    Nil,
    Pipeline,
    Statement,
    Term,
    Text,
    Variable,
)
from sandbox.report.gotemplate.quoting import quote
from sandbox.report.gotemplate.tokens import Kind, Token
from sandbox.report.gotemplate.values import TemplateProblem

_DEEPEST = 40
"""Levels of parentheses and blocks; deeper than any format needs, and than the stack bears."""
_TERM_KINDS = {
    Kind.BOOL,
    Kind.CHARACTER_CONSTANT,
    Kind.DOT,
    Kind.FIELD,
    Kind.IDENTIFIER,
    Kind.NUMBER,
    Kind.NIL,
    Kind.RAW_STRING,
    Kind.STRING,
    Kind.VARIABLE,
    Kind.LEFT_PAREN,
}
_UNSUPPORTED = {Kind.DEFINE, Kind.TEMPLATE, Kind.BLOCK}
_CONTROLS = {Kind.IF: "if", Kind.RANGE: "range", Kind.WITH: "with"}
_MARKS = {Kind.END: "end", Kind.BREAK: "break", Kind.CONTINUE: "continue"}
_CHAINED_ELSE = {"if": Kind.IF, "with": Kind.WITH}


class Parser:
    """Reads one template; `functions` are the names that it may call."""

    def __init__(self, text: str, functions: Container[str]) -> None:
        self._tokens = list(Lexer(text).tokens())
        self._index = 0
        self._functions = functions
        self._variables = ["$"]
        self._ranges = 0
        self._depth = 0
        self._action_line = 0
        self._line = 1

    def parse(self) -> Block:
        """Return the tree.

        Raises:
            TemplateProblem: the text is not a template.
        """
        block = Block(start=0)
        while self._peek().kind is not Kind.EOF:
            statement = self._statement()
            if _is_closing(statement):
                raise self._problem(f"unexpected {statement}")
            block.nodes.append(statement)
        return block

    # --- tokens -----------------------------------------------------------------------------------

    def _peek(self) -> Token:
        token = self._tokens[min(self._index, len(self._tokens) - 1)]
        self._line = max(self._line, token.line)
        return token

    def _next(self) -> Token:
        token = self._peek()
        self._index += 1
        return token

    def _skip_spaces(self) -> None:
        while self._peek().kind is Kind.SPACE:
            self._index += 1

    def _next_word(self) -> Token:
        self._skip_spaces()
        return self._next()

    def _peek_word(self) -> Token:
        self._skip_spaces()
        return self._peek()

    def _problem(self, text: str) -> TemplateProblem:
        return TemplateProblem(f"template: :{self._line}: {text}")

    def _unexpected(self, token: Token, context: str) -> TemplateProblem:
        if token.kind is not Kind.ERROR:
            return self._problem(f"unexpected {token} in {context}")
        text = token.value
        if self._action_line not in {0, token.line}:
            started = f" started at :{self._action_line}"
            text += started if text.endswith(" action") else f" in action{started}"
        return self._problem(text)

    def _expect(self, kind: Kind, context: str) -> Token:
        token = self._next_word()
        if token.kind is not kind:
            raise self._unexpected(token, context)
        return token

    # --- statements -------------------------------------------------------------------------------

    def _statement(self) -> Statement:
        token = self._next_word()
        if token.kind is Kind.TEXT:
            return Text(start=token.start, text=token.value)
        if token.kind is not Kind.LEFT_DELIMITER:
            raise self._unexpected(token, "input")
        self._action_line = token.line
        try:
            return self._action()
        finally:
            self._action_line = 0

    def _action(self) -> Statement:
        token = self._peek_word()
        if token.kind in _CONTROLS:
            self._index += 1
            return self._control(_CONTROLS[token.kind])
        if token.kind in _UNSUPPORTED:
            raise self._problem(f"{token} has no meaning in a format, which is one template")
        if token.kind in _MARKS:
            self._index += 1
            return self._mark(token)
        if token.kind is Kind.ELSE:
            self._index += 1
            if self._peek_word().kind not in _CHAINED_ELSE.values():
                self._expect(Kind.RIGHT_DELIMITER, "else")
            return Mark(start=token.start, word="else")
        pipeline = self._pipeline("command", Kind.RIGHT_DELIMITER)
        return Action(start=token.start, pipeline=pipeline)

    def _mark(self, token: Token) -> Mark:
        word = _MARKS[token.kind]
        if word == "end":
            self._expect(Kind.RIGHT_DELIMITER, "end")
        else:
            self._expect(Kind.RIGHT_DELIMITER, "{{" + word + "}}")
            if not self._ranges:
                raise self._problem("{{" + word + "}} outside {{range}}")
        return Mark(start=token.start, word=word)

    def _control(self, word: str) -> Branch:
        known = len(self._variables)
        self._deeper()
        pipeline = self._pipeline(word, Kind.RIGHT_DELIMITER)
        self._ranges += word == "range"
        body, closing = self._block()
        self._ranges -= word == "range"
        otherwise: Block | None = None
        if closing.word == "else":
            otherwise = self._otherwise(word)
        del self._variables[known:]
        self._depth -= 1
        return Branch(
            start=pipeline.start, word=word, pipeline=pipeline, body=body, otherwise=otherwise
        )

    def _otherwise(self, word: str) -> Block:
        """Read what follows an `else`: a block, or a chained `if` that shares the `end`."""
        following = self._peek()
        if word in _CHAINED_ELSE and following.kind is _CHAINED_ELSE[word]:
            self._index += 1
            return Block(start=following.start, nodes=[self._control(word)])
        block, closing = self._block()
        if closing.word != "end":
            raise self._problem(f"expected end; found {closing}")
        return block

    def _block(self) -> tuple[Block, Mark]:
        """Read statements up to an `end` or `else`."""
        block = Block(start=self._peek_word().start)
        while self._peek_word().kind is not Kind.EOF:
            statement = self._statement()
            if isinstance(statement, Mark) and _is_closing(statement):
                return block, statement
            block.nodes.append(statement)
        raise self._problem("unexpected EOF")

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._problem(f"more than {_DEEPEST} levels of parentheses and blocks")

    # --- pipelines --------------------------------------------------------------------------------

    def _pipeline(self, context: str, closing: Kind) -> Pipeline:
        pipeline = Pipeline(start=self._peek_word().start)
        self._declarations(pipeline, context)
        while (token := self._peek_word()).kind is not closing:
            if token.kind not in _TERM_KINDS:
                raise self._unexpected(token, context)
            pipeline.commands.append(self._command())
        self._index += 1
        if not pipeline.commands:
            raise self._problem(f"missing value for {context}")
        for stage, command in enumerate(pipeline.commands[1:], 2):
            if isinstance(command.terms[0], (Constant, Dot, Nil)):
                raise self._problem(f"non executable command in pipeline stage {stage}")
        return pipeline

    def _declarations(self, pipeline: Pipeline, context: str) -> None:
        """Read `$x :=`, `$x =` or, for a range, `$i, $x :=`."""
        while (token := self._peek_word()).kind is Kind.VARIABLE:
            mark = self._index
            self._index += 1
            following = self._peek_word()
            if following.kind in {Kind.ASSIGN, Kind.DECLARE}:
                self._index += 1
                pipeline.assigns = following.kind is Kind.ASSIGN
                self._declare(pipeline, token)
                return
            if following.kind is not Kind.CHARACTER or following.value != ",":
                self._index = mark
                return
            self._index += 1
            self._declare(pipeline, token)
            if context != "range" or len(pipeline.variables) > 1:
                raise self._problem(f"too many declarations in {context}")
            if self._peek_word().kind not in {
                Kind.VARIABLE,
                Kind.RIGHT_DELIMITER,
                Kind.RIGHT_PAREN,
            }:
                raise self._problem("range can only initialize variables")

    def _declare(self, pipeline: Pipeline, token: Token) -> None:
        pipeline.variables.append(Variable(start=token.start, path=(token.value,)))
        self._variables.append(token.value)

    def _command(self) -> Command:
        command = Command(start=self._peek_word().start)
        while True:
            self._skip_spaces()
            operand = self._operand()
            if operand is not None:
                command.terms.append(operand)
            token = self._next()
            if token.kind is Kind.SPACE:
                continue
            if token.kind in {Kind.RIGHT_DELIMITER, Kind.RIGHT_PAREN}:
                self._index -= 1
            elif token.kind is not Kind.PIPE:
                raise self._unexpected(token, "operand")
            break
        if not command.terms:
            raise self._problem("empty command")
        return command

    def _operand(self) -> Term | None:
        """Read a term and the fields behind it."""
        term = self._term()
        if term is None or self._peek().kind is not Kind.FIELD:
            return term
        start, path = self._peek().start, []
        while self._peek().kind is Kind.FIELD:
            path.append(self._next().value[1:])
        if isinstance(term, Field):
            return Field(start=start, path=(*term.path, *path))
        if isinstance(term, Variable):
            return Variable(start=start, path=(*term.path, *path))
        if isinstance(term, (Constant, Nil, Dot)):
            raise self._problem(f"unexpected . after term {quote(str(term))}")
        return Chain(start=start, term=term, path=tuple(path))

    def _term(self) -> Term | None:
        token = self._next_word()
        if token.kind is Kind.LEFT_PAREN:
            self._deeper()
            pipeline = self._pipeline("parenthesized pipeline", Kind.RIGHT_PAREN)
            self._depth -= 1
            return pipeline
        term = self._word(token) or self._constant(token)
        if term is None:
            self._index -= 1
        return term

    def _word(self, token: Token) -> Term | None:
        start, value = token.start, token.value
        if token.kind is Kind.IDENTIFIER:
            if value not in self._functions:
                raise self._problem(f"function {quote(value)} not defined")
            return Name(start=start, name=value)
        if token.kind is Kind.VARIABLE:
            if value not in self._variables:
                raise self._problem(f"undefined variable {quote(value)}")
            return Variable(start=start, path=(value,))
        if token.kind is Kind.FIELD:
            return Field(start=start, path=(value[1:],))
        if token.kind is Kind.DOT:
            return Dot(start=start)
        return Nil(start=start) if token.kind is Kind.NIL else None

    def _constant(self, token: Token) -> Constant | None:
        value: bool | int | float | str
        try:
            if token.kind is Kind.BOOL:
                value = token.value == "true"
            elif token.kind is Kind.NUMBER:
                value = literals.number(token.value)
            elif token.kind is Kind.CHARACTER_CONSTANT:
                value = literals.character(token.value)
            elif token.kind in {Kind.STRING, Kind.RAW_STRING}:
                value = literals.string(token.value)
            else:
                return None
        except TemplateProblem as problem:
            raise self._problem(str(problem)) from None
        return Constant(start=token.start, value=value, written=token.value)


def _is_closing(statement: Statement) -> bool:
    return isinstance(statement, Mark) and statement.word in {"end", "else"}
