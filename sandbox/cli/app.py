"""The application that typer makes of the commands, with their `--help` and usage errors."""

# Without `from __future__ import annotations`, as in `run`: typer reads the flags' types.

import inspect
import os
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from sandbox.cli.options import Flag, Words, declared_in
from sandbox.errors import SpecError

_TERMINAL = "leave it out: a program has the terminal and the stdin of `sandbox run` anyway"
_DOCKERS_FLAGS = {
    "--rm": "leave it out: nothing of a run is left but its record (`sandbox runs rm`)",
    **dict.fromkeys(("-i", "-t", "--interactive", "--tty"), _TERMINAL),
}
"""Habits of those who come from docker."""


def _show_version(value: bool) -> None:
    if value:
        from sandbox import __version__

        typer.echo(f"sandbox {__version__}")
        raise typer.Exit


def _root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_show_version, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Run a script inside the CPU and memory budget of a target device; see what it used."""


def build_app(modules: Mapping[str, str]) -> typer.Typer:
    """Return the application with the commands of some modules; only these are imported."""
    app = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name, path in modules.items():
        module = import_module(path)
        if hasattr(module, "app"):
            for command in module.app.registered_commands:
                command.callback = in_typers_words(command.callback)
            app.add_typer(module.app, name=name)
        else:
            function = getattr(module, name.replace("-", "_"))
            app.command(
                name,
                cls=getattr(module, "COMMAND_CLASS", None) or _command_class(function),
                context_settings=getattr(module, "CONTEXT_SETTINGS", None),
            )(in_typers_words(function))
    return app


def in_typers_words(function: Callable[..., None]) -> Callable[..., None]:
    """Return a function that declares the same flags by typer's own means."""
    signature = inspect.signature(function, eval_str=True)
    hints = {name: _translate(one.annotation) for name, one in signature.parameters.items()}

    @wraps(function)
    def call(**values: Any) -> None:
        function(**values)

    call.__annotations__ = hints
    parameters = [one.replace(annotation=hints[name]) for name, one in signature.parameters.items()]
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return call


def _translate(hint: Any) -> Any:
    for declared in getattr(hint, "__metadata__", ()):
        if isinstance(declared, Flag):
            return Annotated[hint.__origin__, _option(declared)]
        if isinstance(declared, Words):
            words = typer.Argument(metavar=declared.metavar, show_default=False, help=declared.help)
            return Annotated[hint.__origin__, words]
    return hint


def _option(flag: Flag) -> Any:
    return typer.Option(
        *flag.names,
        help=flag.help,
        rich_help_panel=flag.panel,
        show_default=False,
        metavar=flag.metavar,
        parser=_names_its_variable(flag),
        envvar=flag.envvar,
        **flag.more,
    )


def _names_its_variable(flag: Flag) -> Callable[[str], Any] | None:
    """Return the parser of a flag, whose error names the variable that has the value, if one has.

    Where the same value is also given by the flag, either is the mistake.
    """
    parse, variable = flag.parser, flag.envvar
    if parse is None or variable is None:
        return parse

    @wraps(parse)
    def parse_or_name(text: str) -> Any:
        try:
            return parse(text)
        except SpecError as error:
            if os.environ.get(variable) != text:
                raise
            raise SpecError(f"{variable}: {error}", hint=error.hint) from None

    return parse_or_name


def _command_class(function: Callable[..., None]) -> type[TyperCommand] | None:
    """Return the class of a command some of whose flags may stand alone; None for any other."""
    flags = [flag for _, _, flag in declared_in(function) if isinstance(flag, Flag)]
    alone = {name: flag.alone for flag in flags if flag.alone is not None for name in flag.names}
    if not alone:
        return None

    class Command(TyperCommand):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            """Give a flag that stands alone its usual value, left of the command only."""
            takes_value = {
                name
                for param in self.params
                if not getattr(param, "is_flag", False)
                for name in param.opts
                if name.startswith("-")
            }
            position = 0
            while position < len(args) and args[position].startswith("-"):
                word = args[position]
                if word in {"-", "--"}:
                    break
                if word in alone:
                    args[position] = f"{word}={alone[word]}"
                elif word in takes_value:
                    position += 1
                position += 1
            try:
                return super().parse_args(ctx, args)
            except Exception as error:  # no release of typer names this class as another does
                unknown = getattr(error, "option_name", "")
                if unknown not in _DOCKERS_FLAGS:
                    raise
                hint = _DOCKERS_FLAGS[unknown]
                raise SpecError(f"there is no flag {unknown}", hint=hint) from None

    return Command
