"""RUN, CMD, ENTRYPOINT, SHELL, HEALTHCHECK: a command in the shell or the exec form."""

from __future__ import annotations

import re

from sandbox.errors import SpecError
from sandbox.image.dockerfile.arguments import (
    Flags,
    Statement,
    nearest,
    needs,
    parse_list,
    refuse_flags,
    split_pair,
    strip,
)
from sandbox.image.dockerfile.mounts import parse_mount, read_from
from sandbox.image.dockerfile.syntax import Cmd, Command, Entrypoint, Healthcheck, Run, Shell
from sandbox.units import NS_PER_SEC

NETWORKS = ("default", "none", "host")

_GO_DURATION = re.compile(r"(?a)[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+|[+-]?0")
_GO_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": NS_PER_SEC,
    "m": 60 * NS_PER_SEC,
    "h": 3_600 * NS_PER_SEC,
}
_LEAST_INTERVAL_NS = 1_000_000
_LARGEST_NS = (1 << 63) - 1
_LARGEST_RETRIES = (1 << 31) - 1


def parse_words(statement: Statement, text: str) -> tuple[str, ...] | None:
    """Return the words of a JSON array of texts; None if the text is not JSON.

    Raises:
        SpecError: something is wrong with it.
    """
    try:
        return parse_list(text)
    except ValueError as exc:
        raise statement.refusal(str(exc), 'such as `["echo", "1"]`') from exc


def _command(statement: Statement, text: str) -> Command:
    words = parse_words(statement, text)
    if words is not None:
        return Command(words=words, is_shell=False)
    return Command(words=(text,) if text else (), is_shell=True, heredocs=statement.heredocs)


def parse_run(statement: Statement) -> Run:
    """Return the record of RUN.

    Raises:
        SpecError: something is wrong with it.
    """
    flags = Flags(statement)
    mounts = flags.texts("mount")
    network = flags.text("network") or "default"
    security = flags.text("security")
    device = flags.texts("device")
    flags.finish()
    if network not in NETWORKS:
        raise statement.refusal(f"`--network={network}` is not known", nearest(network, NETWORKS))
    if security not in {None, "sandbox"}:
        raise statement.refusal(
            f"`--security={security}` is not given to builds",
            "leave it out: RUN is always confined",
        )
    if device:
        raise statement.refusal(f"`--device={device[0]}` is not given to builds")
    for mount in mounts:
        _check_mount(statement, mount)
    command = _command(statement, statement.rest)
    if not any(command.words):
        raise needs(statement, "a command")
    return Run(
        line=statement.line,
        source=strip(statement.text),
        command=command,
        mounts=mounts,
        network=network,
    )


def _check_mount(statement: Statement, text: str) -> None:
    """Refuse early what is wrong already before variables are known."""
    try:
        read_from(text)
        if "$" not in text:
            parse_mount(text, str)
    except SpecError as exc:
        raise statement.refusal(str(exc), exc.hint) from exc


def parse_cmd(statement: Statement) -> Cmd:
    """Return the record of CMD.

    Raises:
        SpecError: something is wrong with it.
    """
    refuse_flags(statement)
    command = _command(statement, statement.rest)
    return Cmd(line=statement.line, source=strip(statement.text), command=command)


def parse_entrypoint(statement: Statement) -> Entrypoint:
    """Return the record of ENTRYPOINT.

    Raises:
        SpecError: something is wrong with it.
    """
    refuse_flags(statement)
    command = _command(statement, statement.rest)
    return Entrypoint(line=statement.line, source=strip(statement.text), command=command)


def parse_shell(statement: Statement) -> Shell:
    """Return the record of SHELL.

    Raises:
        SpecError: something is wrong with it.
    """
    refuse_flags(statement)
    words = parse_words(statement, statement.rest)
    if not words:
        raise statement.refusal(
            "SHELL needs a JSON array", 'write such as `SHELL ["/bin/bash", "-c"]`'
        )
    return Shell(line=statement.line, source=strip(statement.text), words=words)


def parse_healthcheck(statement: Statement) -> Healthcheck:
    """Return the record of HEALTHCHECK.

    Raises:
        SpecError: something is wrong with it.
    """
    kind, rest = split_pair(statement.rest) or (statement.rest, "")
    if kind.upper() == "NONE":
        refuse_flags(statement)
        if rest:
            raise statement.refusal("HEALTHCHECK NONE takes nothing more")
        return Healthcheck(line=statement.line, source=strip(statement.text), test=("NONE",))
    flags = Flags(statement)
    times = {
        name: _interval(statement, name, flags.text(name))
        for name in ("interval", "timeout", "start-period", "start-interval")
    }
    retries = flags.text("retries")
    flags.finish()
    if kind.upper() != "CMD":
        raise statement.refusal(
            f"HEALTHCHECK knows no `{kind}`" if kind else "HEALTHCHECK needs a command",
            "write `HEALTHCHECK CMD command` or `HEALTHCHECK NONE`",
        )
    command = _command(statement, rest)
    if not any(command.words):
        raise needs(statement, "a command after CMD")
    return Healthcheck(
        line=statement.line,
        source=strip(statement.text),
        test=("CMD-SHELL" if command.is_shell else "CMD", *command.words),
        interval_ns=times["interval"],
        timeout_ns=times["timeout"],
        start_period_ns=times["start-period"],
        start_interval_ns=times["start-interval"],
        retries=_retries(statement, retries),
    )


def _interval(statement: Statement, name: str, text: str | None) -> int:
    """Return nanoseconds for a duration as Go writes it: `1m30s`, `500ms`."""
    if not text:
        return 0
    if not _GO_DURATION.fullmatch(text):
        raise statement.refusal(
            f"`--{name}={text}` is no duration", "write such as `30s`, `1m30s` or `500ms`"
        )
    from decimal import Decimal

    parts = re.findall(r"(?a)(\d+\.?\d*|\.\d+)([a-zµμ]+)", text)
    total = sum(int(Decimal(number) * _GO_UNITS[unit]) for number, unit in parts)
    if (total and total < _LEAST_INTERVAL_NS) or (total and text[0] == "-") or total > _LARGEST_NS:
        raise statement.refusal(f"`--{name}={text}` cannot be used", "the least is `1ms`")
    return total


def _retries(statement: Statement, text: str | None) -> int:
    if not text:
        return 0
    digits = text.removeprefix("+")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10):  # noqa: PLR2004 - 2³¹
        raise statement.refusal(f"`--retries={text}` is no number from 0", "write such as `3`")
    if int(digits) > _LARGEST_RETRIES:
        raise statement.refusal(f"`--retries={text}` is too large")
    return int(digits)
