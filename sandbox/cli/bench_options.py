"""The flags that `bench` and `profile` share with `run`, and the words before their command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer.core import TyperCommand

from sandbox.cli.limit_options import LIMITS
from sandbox.cli.options import option
from sandbox.errors import SpecError
from sandbox.units import parse_duration, parse_size_or_unlimited

PROGRAM = "Program"
AFTER_DASHES = "\x1f"
"""Stands between the words of the command after `--`: typer has one list of arguments."""
_BETWEEN = "\x1e"

Memory = Annotated[
    int | None,
    option(
        "--memory",
        "-m",
        panel=LIMITS,
        metavar="SIZE",
        parser=parse_size_or_unlimited,
        envvar="SANDBOX_MEMORY",
        help="Memory limit: 512m, 2g. No swap beside it.",
    ),
]
Timeout = Annotated[
    int | None,
    option(
        "--timeout",
        panel=LIMITS,
        metavar="TIME",
        parser=parse_duration,
        help="Wall-clock time of each run: 250ms, 10s, 1m30s.",
    ),
]
Environment = Annotated[
    list[str] | None,
    option("--env", "-e", panel=PROGRAM, metavar="NAME[=VALUE]", help="Set a variable for it."),
]
VenvPath = Annotated[
    Path | None,
    option("--venv", panel=PROGRAM, metavar="DIR", help="Run in this virtual environment."),
]
Requirements = Annotated[
    list[Path] | None,
    option(
        "--requirements",
        panel=PROGRAM,
        metavar="FILE",
        help="Run in an environment with what FILE lists, or a script's header (PEP 723).",
    ),
]
Packages = Annotated[
    list[str] | None,
    option("--pip", panel=PROGRAM, metavar="PACKAGE", help="Likewise with this package."),
]


class BenchCommand(TyperCommand):
    """Takes several commands as texts, or one as words after `--`; and flags of two words."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Join what typer could not tell apart."""
        if "--" in args:
            place = args.index("--")
            words = args[place + 1 :]
            args = args[:place] + (["--", AFTER_DASHES.join(("", *words))] if words else [])
        return super().parse_args(ctx, _joined(args))


def _joined(args: list[str]) -> list[str]:
    """Return `-L name a,b` and `-P name 1 4` with the words of each flag in one."""
    counts = {"-L": 2, "--parameter-list": 2, "-P": 3, "--parameter-scan": 3}
    joined: list[str] = []
    place = 0
    while place < len(args) and args[place] != "--":
        words = counts.get(args[place], 0)
        joined.append(args[place])
        if words:
            values = args[place + 1 : place + 1 + words]
            if len(values) < words or "--" in values:
                raise SpecError(f"{args[place]} takes {words} values", hint="see --help")
            joined.append(_BETWEEN.join(values))
        place += 1 + words
    return [*joined, *args[place:]]


def split_words(text: str) -> list[str]:
    """Return the words that were joined for one flag."""
    return text.split(_BETWEEN)
