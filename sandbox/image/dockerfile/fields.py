"""The fields of an instruction with their variables replaced, and what they then have to be.

Expanded are ENV, LABEL (names and values), WORKDIR, USER, VOLUME, STOPSIGNAL, EXPOSE, the paths,
`--chown`, `--chmod` and `--checksum` of COPY and ADD, their heredocs, and the values of `RUN
--mount`. The commands of RUN, CMD, ENTRYPOINT, HEALTHCHECK and ONBUILD are for others to read.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping

from sandbox.errors import SpecError
from sandbox.image.dockerfile.copies import check_checksum, check_sources
from sandbox.image.dockerfile.mounts import parse_mount
from sandbox.image.dockerfile.syntax import (
    Add,
    Copy,
    Dockerfile,
    Env,
    Expose,
    Heredoc,
    Instruction,
    Label,
    Mount,
    Run,
    StopSignal,
    User,
    Volume,
    Workdir,
    refusal,
)
from sandbox.image.dockerfile.words import expand, expand_document, split_words
from sandbox.records.light import replace

_Expand = Callable[[str], str]

_PORT = re.compile(
    r"(?ai)(?:.*:)?(?P<first>[0-9]{1,5})(?:-(?P<last>[0-9]{1,5}))?(?:/(?P<kind>[a-z]*))?"
)
_KINDS = ("tcp", "udp", "sctp")
_LARGEST_PORT = 65535
_REAL_TIME = re.compile(r"(?a)RTM(?:IN(?:\+[0-9]{1,2})?|AX(?:-[0-9]{1,2})?)")
_OCTAL = re.compile(r"[0-7]{1,8}")
_CLAUSE = re.compile(r"(?P<who>[ugoa]*)(?P<actions>(?:[-+=](?:[ugo]|[rwxXst]*))+)")
_ACTION = re.compile(r"(?P<operator>[-+=])(?P<what>[ugo]|[rwxXst]*)")
_MODES = 0o7777


def expand_fields(
    instruction: Instruction, variables: Mapping[str, str], dockerfile: Dockerfile
) -> Instruction:
    """Return an instruction with its variables replaced; ARG and RUN are returned as they are.

    Args:
        instruction: As parsed.
        variables: Of ENV and ARG; of the same name ENV wins.
        dockerfile: Where it stands.

    Raises:
        SpecError: a variable cannot be expanded or its value does not fit, with file and line.
    """
    try:
        return _expanded(instruction, variables, dockerfile.escape)
    except SpecError as exc:
        raise refusal(dockerfile.name, instruction.line, str(exc), exc.hint) from exc


def mounts_of(run: Run, variables: Mapping[str, str], dockerfile: Dockerfile) -> tuple[Mount, ...]:
    """Return the mounts of RUN, with their variables replaced.

    Raises:
        SpecError: one is wrong, with file and line.
    """
    try:
        return tuple(
            parse_mount(text, lambda value: expand(value, variables, dockerfile.escape))
            for text in run.mounts
        )
    except SpecError as exc:
        raise refusal(dockerfile.name, run.line, str(exc), exc.hint) from exc


def _expanded(instruction: Instruction, variables: Mapping[str, str], escape: str) -> Instruction:
    def word(text: str) -> str:
        return expand(text, variables, escape)

    done: Instruction = instruction
    match instruction:
        case Env() | Label():
            done = replace(instruction, pairs=_pairs(instruction.pairs, word))
        case Copy():
            done = _copy(instruction, word, variables)
        case Add():
            done = _add(instruction, word, variables)
        case Workdir():
            done = replace(instruction, path=_present(word(instruction.path), "the path"))
        case User():
            done = replace(instruction, user=_present(word(instruction.user), "the user"))
        case Volume():
            paths = tuple(_present(word(path), "the path") for path in instruction.paths)
            done = replace(instruction, paths=paths)
        case StopSignal():
            done = replace(instruction, signal=check_signal(word(instruction.signal)))
        case Expose():
            words = (split_words(port, variables, escape) for port in instruction.ports)
            done = replace(instruction, ports=_ports([each for part in words for each in part]))
        case _:
            pass
    return done


def _pairs(pairs: tuple[tuple[str, str], ...], word: _Expand) -> tuple[tuple[str, str], ...]:
    return tuple((_present(word(name), "the name"), word(value)) for name, value in pairs)


def _present(text: str, what: str) -> str:
    if not text:
        raise SpecError(
            f"{what} is empty after its variables were replaced",
            hint="give the variable a value by ARG, ENV or --build-arg",
        )
    return text


def _maybe(text: str | None, word: _Expand) -> str | None:
    return None if text is None else word(text) or None


def _heredocs(heredocs: tuple[Heredoc, ...], variables: Mapping[str, str]) -> tuple[Heredoc, ...]:
    """Return heredocs whose text is final: their tabs are gone, variables replaced."""
    done = []
    for heredoc in heredocs:
        text = heredoc.text()
        content = expand_document(text, variables) if heredoc.expand else text
        done.append(replace(heredoc, content=content, expand=False, chomp=False))
    return tuple(done)


def _copy(copy: Copy, word: _Expand, variables: Mapping[str, str]) -> Copy:
    done = replace(
        copy,
        sources=tuple(map(word, copy.sources)),
        destination=word(copy.destination),
        heredocs=_heredocs(copy.heredocs, variables),
        chown=_maybe(copy.chown, word),
        chmod=_maybe(copy.chmod, word),
    )
    check_sources("COPY", done.sources)
    if done.chmod is not None:
        change_mode(done.chmod, 0, is_directory=False)
    return done


def _add(add: Add, word: _Expand, variables: Mapping[str, str]) -> Add:
    done = replace(
        add,
        sources=tuple(map(word, add.sources)),
        destination=word(add.destination),
        heredocs=_heredocs(add.heredocs, variables),
        chown=_maybe(add.chown, word),
        chmod=_maybe(add.chmod, word),
        checksum=_maybe(add.checksum, word),
    )
    check_sources("ADD", done.sources)
    if done.checksum is not None:
        check_checksum(done.checksum, done.sources)
    if done.chmod is not None:
        change_mode(done.chmod, 0, is_directory=False)
    return done


def _ports(words: list[str]) -> tuple[str, ...]:
    """Return `80/tcp` for each port of `80`, `80-82/udp`, `127.0.0.1:8080:80`."""
    found: dict[str, None] = {}
    for word in words:
        match = _PORT.fullmatch(word)
        kind = ((match and match["kind"]) or "tcp").lower()
        first = int(match["first"]) if match else 0
        last = int(match["last"] or first) if match else 0
        if not 0 < first <= last <= _LARGEST_PORT or kind not in _KINDS:
            raise SpecError(f"`{word}` is no port", hint="write such as `80`, `53/udp` or `80-82`")
        found |= {f"{port}/{kind}": None for port in range(first, last + 1)}
    return tuple(found)


def check_signal(text: str) -> str:
    """Return a signal as it is written: a name with or without SIG, or a number.

    Raises:
        SpecError: there is no such signal.
    """
    name = text.upper().removeprefix("SIG")
    if text.isascii() and text.isdigit():
        is_known = len(text) < 4 and 0 < int(text) < signal.NSIG  # noqa: PLR2004 - digits
    else:
        is_known = f"SIG{name}" in signal.Signals.__members__ or bool(_REAL_TIME.fullmatch(name))
    if not is_known:
        raise SpecError(f"`{text}` is no signal", hint="write such as `SIGTERM` or `15`")
    return text


def change_mode(text: str, mode: int, *, is_directory: bool) -> int:
    """Return what `--chmod` makes of permissions: octal ones, or as chmod(1) has `u+x,go=rX`.

    As the umask of docker's builder is 0, a change without `u`, `g` or `o` is for all of them.

    Raises:
        SpecError: the text is neither.
    """
    if _OCTAL.fullmatch(text):
        if int(text, 8) > _MODES:
            raise _mode_refusal(text)
        return int(text, 8)
    for clause in text.split(","):
        match = _CLAUSE.fullmatch(clause)
        if match is None:
            raise _mode_refusal(text)
        for action in _ACTION.finditer(match["actions"]):
            mode = _change(mode, match["who"] or "a", action, is_directory=is_directory)
    return mode


def _change(mode: int, who: str, action: re.Match[str], *, is_directory: bool) -> int:
    """Apply one `+x`: POSIX's rules of chmod(1)."""
    who = "ugo" if "a" in who else who
    what = action["what"]
    bits = 0
    if what in {"u", "g", "o"} and what:
        bits = mode >> {"u": 6, "g": 3, "o": 0}[what] & 7
    bits |= 4 * ("r" in what) | 2 * ("w" in what) | ("x" in what)
    if "X" in what and (is_directory or mode & 0o111):
        bits |= 1
    change = affected = 0
    for each in who:
        shift = {"u": 6, "g": 3, "o": 0}[each]
        change |= bits << shift
        affected |= 7 << shift
        special = {"u": 0o4000, "g": 0o2000, "o": 0}[each]
        change |= special if "s" in what else 0
        affected |= special
    if "t" in what and "o" in who:
        change |= 0o1000
    affected |= 0o1000 if who == "ugo" else 0
    if action["operator"] == "+":
        return mode | change
    if action["operator"] == "-":
        return mode & ~change
    return (mode & ~affected) | change


def _mode_refusal(text: str) -> SpecError:
    return SpecError(
        f"`--chmod={text}` is no mode", hint="write it octal, at most 7777, or such as `u+x,go-w`"
    )
