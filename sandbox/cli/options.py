"""How the flags of `sandbox run` are declared and read."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand

from sandbox.errors import SpecError
from sandbox.units import UNLIMITED


class RunCommand(TyperCommand):
    """Lets `--capture` stand alone as well as with `=tee`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give a bare `--capture` its usual value, left of the command only."""
        takes_value = {
            name
            for param in self.params
            if not getattr(param, "is_flag", False)
            for name in param.opts
            if name.startswith("-")
        }
        position = 0
        while position < len(args) and args[position].startswith("-") and args[position] != "--":
            if args[position] == "--capture":
                args[position] = "--capture=file"
            elif args[position] in takes_value:
                position += 1
            position += 1
        return super().parse_args(ctx, args)


def parse_pids(text: str) -> int:
    """Return a limit on processes; docker has several ways to say that there is none."""
    if text in {"0", "-1", "max", "unlimited"}:
        return UNLIMITED
    if not text.isdecimal():
        raise SpecError(f"`{text}` is not a number of processes")
    return int(text)


def parse_shares(text: str) -> int:
    """Return CPU shares on docker's scale."""
    if not text.isdecimal():
        raise SpecError(f"`{text}` is not a number of CPU shares", hint="1024 is the usual share")
    return int(text)


def option(name: str, *more: str, panel: str, help: str, **kw: Any) -> Any:  # noqa: A002
    """Declare one flag of a panel of `--help`."""
    return typer.Option(name, *more, help=help, rich_help_panel=panel, show_default=False, **kw)
