"""Each instruction judged: a cut statement to its record, or the error that names its line."""

from __future__ import annotations

import re
from collections.abc import Callable

from sandbox.image.dockerfile.arguments import (
    Flags,
    Statement,
    nearest,
    needs,
    refuse_flags,
    split_blanks,
    split_pair,
    split_quoted,
    split_statement,
    strip,
)
from sandbox.image.dockerfile.commands import (
    parse_cmd,
    parse_entrypoint,
    parse_healthcheck,
    parse_run,
    parse_shell,
    parse_words,
)
from sandbox.image.dockerfile.copies import parse_add, parse_copy
from sandbox.image.dockerfile.syntax import (
    Arg,
    Env,
    Expose,
    Instruction,
    Label,
    Maintainer,
    Onbuild,
    Stage,
    StopSignal,
    User,
    Volume,
    Workdir,
)

_STAGE_NAME = re.compile(r"[a-z][a-z0-9_.-]*")
_ONBUILD = re.compile(r"(?i)\s*ONBUILD\s*")
_WITH_AS = 3


def parse_from(statement: Statement) -> Stage:
    """Return a stage that has no instructions yet.

    Raises:
        SpecError: it is not `FROM IMAGE` or `FROM IMAGE AS NAME`.
    """
    words = split_blanks(statement.rest)
    named = len(words) == _WITH_AS and words[1].upper() == "AS"
    if len(words) != 1 and not named:
        raise statement.refusal(
            "FROM needs an image, and may give the stage a name", "write `FROM IMAGE AS NAME`"
        )
    name = words[2].lower() if named else None
    if name is not None and not _STAGE_NAME.fullmatch(name):
        raise statement.refusal(
            f"`{words[2]}` cannot be a stage's name",
            "it begins with a letter and goes on with letters, digits, `-`, `_` and `.`",
        )
    flags = Flags(statement)
    platform = flags.text("platform")
    flags.finish()
    return Stage(
        line=statement.line,
        source=strip(statement.text),
        base=words[0],
        name=name,
        platform=platform,
    )


def parse_instruction(statement: Statement) -> Instruction:
    """Return the record of any instruction but FROM.

    Raises:
        SpecError: there is no such instruction, or something is wrong with it.
    """
    parser = _PARSERS.get(statement.keyword)
    if parser is None:
        hint = nearest(statement.keyword, ["FROM", *_PARSERS])
        raise statement.refusal(f"`{statement.keyword}` is no instruction", hint)
    return parser(statement)


def _pairs(statement: Statement) -> tuple[tuple[str, str], ...]:
    refuse_flags(statement)
    keyword = statement.keyword
    words = split_quoted(statement.rest, statement.escape)
    if not words:
        raise needs(statement, "a name and a value")
    if "=" not in words[0]:
        pair = split_pair(statement.rest)
        if pair is None:
            raise statement.refusal(
                f"{keyword} needs a value for `{words[0]}`", f"write `{keyword} {words[0]}=VALUE`"
            )
        return (pair,)
    pairs = []
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise statement.refusal(
                f"`{word}` has no `=`", f'write `{keyword} NAME="a value" OTHER=value`'
            )
        if not name:
            raise statement.refusal(f"a name is missing before `{word}`")
        pairs.append((name, value))
    return tuple(pairs)


def _env(statement: Statement) -> Env:
    return Env(line=statement.line, source=strip(statement.text), pairs=_pairs(statement))


def _label(statement: Statement) -> Label:
    return Label(line=statement.line, source=strip(statement.text), pairs=_pairs(statement))


def _arg(statement: Statement) -> Arg:
    refuse_flags(statement)
    words = split_quoted(statement.rest, statement.escape)
    if not words:
        raise needs(statement, "a name")
    pairs: list[tuple[str, str | None]] = []
    for word in words:
        name, equals, value = word.partition("=")
        if not name:
            raise statement.refusal(f"a name is missing before `{word}`")
        pairs.append((name, value if equals else None))
    return Arg(line=statement.line, source=strip(statement.text), pairs=tuple(pairs))


def _text(statement: Statement, what: str) -> str:
    refuse_flags(statement)
    if not statement.rest:
        raise needs(statement, what)
    return statement.rest


def _workdir(statement: Statement) -> Workdir:
    path = _text(statement, "a path")
    return Workdir(line=statement.line, source=strip(statement.text), path=path)


def _user(statement: Statement) -> User:
    user = _text(statement, "a user")
    return User(line=statement.line, source=strip(statement.text), user=user)


def _stop_signal(statement: Statement) -> StopSignal:
    signal = _text(statement, "a signal")
    return StopSignal(line=statement.line, source=strip(statement.text), signal=signal)


def _maintainer(statement: Statement) -> Maintainer:
    name = _text(statement, "a name")
    return Maintainer(line=statement.line, source=strip(statement.text), name=name)


def _expose(statement: Statement) -> Expose:
    refuse_flags(statement)
    ports = split_blanks(statement.rest)
    if not ports:
        raise needs(statement, "a port")
    return Expose(line=statement.line, source=strip(statement.text), ports=ports)


def _volume(statement: Statement) -> Volume:
    refuse_flags(statement)
    words = parse_words(statement, statement.rest)
    paths = tuple(map(strip, split_blanks(statement.rest) if words is None else words))
    if not paths or not all(paths):
        raise needs(statement, "paths that are not empty")
    return Volume(line=statement.line, source=strip(statement.text), paths=paths)


def _onbuild(statement: Statement) -> Onbuild:
    keyword, flags, rest = split_statement(statement.rest, statement.escape)
    keyword = keyword.upper()
    if not keyword:
        raise needs(statement, "an instruction")
    if keyword in {"ONBUILD", "FROM", "MAINTAINER"}:
        raise statement.refusal(f"ONBUILD cannot hold {keyword}")
    refuse_flags(statement)
    parse_instruction(
        Statement(
            file=statement.file,
            line=statement.line,
            text=statement.rest,
            keyword=keyword,
            flags=flags,
            rest=rest,
            escape=statement.escape,
            heredocs=statement.heredocs,
        )
    )
    bodies = (f"\n{heredoc.content}{heredoc.name}" for heredoc in statement.heredocs)
    expression = "".join([strip(_ONBUILD.sub("", statement.text, count=1)), *bodies])
    return Onbuild(line=statement.line, source=strip(statement.text), expression=expression)


_PARSERS: dict[str, Callable[[Statement], Instruction]] = {
    "ADD": parse_add,
    "ARG": _arg,
    "CMD": parse_cmd,
    "COPY": parse_copy,
    "ENTRYPOINT": parse_entrypoint,
    "ENV": _env,
    "EXPOSE": _expose,
    "HEALTHCHECK": parse_healthcheck,
    "LABEL": _label,
    "MAINTAINER": _maintainer,
    "ONBUILD": _onbuild,
    "RUN": parse_run,
    "SHELL": parse_shell,
    "STOPSIGNAL": _stop_signal,
    "USER": _user,
    "VOLUME": _volume,
    "WORKDIR": _workdir,
}
