"""Dockerfiles read: bytes to stages of instructions, every error with its file and line."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.errors import SpecError
from sandbox.image.dockerfile.arguments import Statement, parse_list, split_statement
from sandbox.image.dockerfile.instructions import parse_from, parse_instruction
from sandbox.image.dockerfile.lines import Text, read_texts
from sandbox.image.dockerfile.syntax import (
    DEFAULT_ESCAPE,
    Arg,
    Cmd,
    Dockerfile,
    Entrypoint,
    Instruction,
    Run,
    Stage,
    Warned,
    refusal,
)
from sandbox.records.light import replace

_HEREDOCS = frozenset({"RUN", "COPY", "ADD"})
_FRONTENDS = ("docker/dockerfile", "docker.io/docker/dockerfile")


def parse(data: bytes | str, name: str) -> Dockerfile:
    """Return what a Dockerfile says.

    Args:
        data: The file.
        name: How the user knows it; errors begin with it.

    Raises:
        SpecError: something in it cannot be meant or is not supported, with file and line.
    """
    texts = read_texts(data, name, takes_heredocs)
    escape = texts.directives.get("escape", DEFAULT_ESCAPE)
    global_args: list[Arg] = []
    stages: list[Stage] = []
    inside: list[list[Instruction]] = []
    for text in texts.texts:
        statement = _cut(text, name, escape)
        if statement.keyword == "FROM":
            stages.append(parse_from(statement))
            inside.append([])
            continue
        instruction = parse_instruction(statement)
        if stages:
            inside[-1].append(instruction)
        elif isinstance(instruction, Arg):
            global_args.append(instruction)
        else:
            raise statement.refusal(
                f"{statement.keyword} stands before the first FROM",
                "begin with `FROM IMAGE`; only ARG may stand before it",
            )
    if not stages:
        what = "no FROM" if texts.texts else "no instruction"
        raise refusal(name, 1, f"there is {what} in it", "begin with `FROM IMAGE`")
    filled = [
        replace(stage, instructions=tuple(instructions))
        for stage, instructions in zip(stages, inside, strict=True)
    ]
    return Dockerfile(
        name=name,
        directives=texts.directives,
        global_args=tuple(global_args),
        stages=tuple(filled),
        warnings=_sorted([*texts.warnings, *_warnings(texts.directives, filled)]),
    )


def parse_trigger(expression: str, name: str, line: int) -> Instruction:
    """Return the instruction that an image's ONBUILD holds.

    Args:
        expression: The text, as in the image's configuration.
        name: The Dockerfile that is being built.
        line: Of the FROM that named the image.

    Raises:
        SpecError: it is not one instruction, or one that ONBUILD cannot hold.
    """
    try:
        return _trigger(expression, name, line)
    except SpecError as exc:
        shown = expression.split("\n", 1)[0][:80]
        why = str(exc).removeprefix(f"{name}:{line}: ")
        raise refusal(name, line, f"the image's `ONBUILD {shown}`: {why}", exc.hint) from exc


def _trigger(expression: str, name: str, line: int) -> Instruction:
    texts = read_texts(expression, name, takes_heredocs).texts
    if len(texts) != 1:
        raise SpecError(
            "it is not one instruction",
            hint="the base image has such an ONBUILD: build on another one",
        )
    statement = _cut(replace(texts[0], line=line), name, DEFAULT_ESCAPE)
    if statement.keyword in {"FROM", "ONBUILD", "MAINTAINER"}:
        raise SpecError(
            f"it cannot hold {statement.keyword}",
            hint="the base image has such an ONBUILD: build on another one",
        )
    return parse_instruction(statement)


def _cut(text: Text, name: str, escape: str) -> Statement:
    keyword, flags, rest = split_statement(text.text, escape)
    if not keyword:
        raise refusal(name, text.line, "an instruction is missing", "the line only goes on")
    return Statement(
        file=name,
        line=text.line,
        text=text.text,
        keyword=keyword.upper(),
        flags=flags,
        rest=rest,
        escape=escape,
        heredocs=text.heredocs,
    )


def takes_heredocs(text: str, escape: str) -> bool:
    """Return whether `<<` begins a heredoc in an instruction: not in the exec form."""
    keyword, _, rest = split_statement(text, escape)
    if keyword.upper() == "ONBUILD":
        keyword, _, rest = split_statement(rest, escape)
    if keyword.upper() not in _HEREDOCS:
        return False
    try:
        return parse_list(rest) is None
    except ValueError:
        return False


def _sorted(warnings: Sequence[Warned]) -> tuple[Warned, ...]:
    return tuple(sorted(warnings, key=lambda warning: warning.line))


def _warnings(directives: dict[str, str], stages: Sequence[Stage]) -> list[Warned]:
    found: list[Warned] = []
    syntax = directives.get("syntax", "").partition(" ")[0]
    if syntax and syntax.partition(":")[0] not in _FRONTENDS:
        text = f"the frontend `{syntax}` is not fetched: the file is read as a Dockerfile"
        found.append(Warned(line=1 + list(directives).index("syntax"), text=text))
    names: dict[str, int] = {}
    for stage in stages:
        if stage.name in names:
            text = f"the stage `{stage.name}` is there already, at line {names[stage.name]}"
            found.append(Warned(line=stage.line, text=text))
        if stage.name is not None:
            names[stage.name] = stage.line
        for instruction in stage.instructions:
            if isinstance(instruction, Run | Cmd | Entrypoint):
                found.extend(_not_json(instruction))
    return found


def _not_json(instruction: Run | Cmd | Entrypoint) -> list[Warned]:
    command = instruction.command
    if not command.is_shell or not command.words or not command.words[0].startswith("["):
        return []
    # `[ -f x ] && y` is a test of the shell's, and meant.
    if command.words[0][1:2].isspace():
        return []
    keyword = type(instruction).__name__.upper()
    text = f"{keyword} begins with `[` but is no JSON array of texts: a shell will read it"
    return [Warned(line=instruction.line, text=text)]
