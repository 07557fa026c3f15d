"""The command line: one file a command; only `main()` exits the process."""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from typing import NoReturn

from sandbox.cli import quick
from sandbox.cli.console import (
    CommandExit,
    Interrupted,
    is_output_lost,
    open_missing_streams,
    print_error,
    print_interrupted,
    raise_on_ending_signals,
)
from sandbox.errors import EXIT_SANDBOX, EXIT_USAGE, SandboxError

# In the order of `--help`. A module has one function of the command's name (`_` for `-`), or a
# `typer.Typer` called `app` for a command with verbs of its own.
COMMANDS = {
    "run": "sandbox.cli.run",
    "ps": "sandbox.cli.ps",
    "stats": "sandbox.cli.stats",
    "top": "sandbox.cli.top",
    "kill": "sandbox.cli.kill",
    "stop": "sandbox.cli.stop",
    "pause": "sandbox.cli.pause",
    "unpause": "sandbox.cli.unpause",
    "update": "sandbox.cli.update",
    "wait": "sandbox.cli.wait",
    "logs": "sandbox.cli.logs",
    "inspect": "sandbox.cli.inspect",
    "port": "sandbox.cli.port",
    "runs": "sandbox.cli.runs",
    "bench": "sandbox.cli.bench",
    "compare": "sandbox.cli.compare",
    "profile": "sandbox.cli.profile",
    "budget": "sandbox.cli.budget",
    "sweep": "sandbox.cli.sweep",
    "venv": "sandbox.cli.venv",
    "image": "sandbox.cli.image",
    "clean": "sandbox.cli.clean",
    "mark": "sandbox.cli.mark",
    "doctor": "sandbox.cli.doctor",
}

_TROUBLE = 1
_SIGNAL_BASE = 128
_WATCHERS = frozenset({"stats", "top", "wait", "logs"})
"""What goes on until one has seen enough: an end by ^C is nothing to tell of."""


def _call(asked: str, arguments: list[str]) -> None:
    """Call the asked command; a plain `run` without typer, which takes as long as all the rest."""
    if asked == "run":
        run = import_module(COMMANDS[asked]).run
        values = quick.read(run, arguments[1:])
        if values is not None:
            run(**values)
            return
    from sandbox.cli.app import build_app

    modules = {asked: COMMANDS[asked]} if asked in COMMANDS else COMMANDS
    build_app(modules)(arguments, prog_name="sandbox")


def _status_of(arguments: list[str]) -> int:
    """Run the asked command and return the exit status of the process."""
    asked = arguments[0] if arguments else ""
    is_run = asked == "run"
    try:
        _call(asked, arguments)
    except CommandExit as leaving:
        return leaving.status
    except SandboxError as error:
        print_error(error)
        return error.exit_code if is_run else error.command_exit_code
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        # The program's own status may be 2, so a usage error of `run` must not be.
        return EXIT_SANDBOX if is_run and status == EXIT_USAGE else status
    except BrokenPipeError:
        raise
    except Exception as error:
        if is_output_lost(error):
            raise
        if os.environ.get("SANDBOX_DEBUG"):
            raise
        print_error(
            SandboxError(
                f"a mistake in sandbox itself: {type(error).__name__}: {error}",
                hint="please report it with what `SANDBOX_DEBUG=1` shows",
            )
        )
        return EXIT_SANDBOX
    return 0


def main() -> NoReturn:
    """Run the command line and leave the process: the only place that does."""
    open_missing_streams()
    raise_on_ending_signals()
    status = 0
    try:
        status = _status_of(sys.argv[1:])
        sys.stdout.flush()
    except Interrupted as stop:
        # What is still to be written stays so: its reader may not read.
        if _WATCHERS.isdisjoint(sys.argv[1:2]):
            print_interrupted(stop)
        status = _SIGNAL_BASE + stop.number
    except BrokenPipeError:
        # The reader of our output has left, as `sandbox runs ls | head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = _SIGNAL_BASE + signal.SIGPIPE
    except OSError as error:
        text = f"the output cannot be written: {error.strerror}"
        print_error(SandboxError(text, hint="make room where it goes, or send it elsewhere"))
        status = status or (EXIT_SANDBOX if sys.argv[1:2] == ["run"] else _TROUBLE)
    sys.stderr.flush()
    # Nothing of ours is left to tidy, and the interpreter's own goodbye takes 5 to 10 ms.
    os._exit(status)
