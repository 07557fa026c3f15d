"""The command line: one file a command; only `main()` exits the process."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import NoReturn

from sandbox.cli import quick
from sandbox.cli.console import CommandExit, print_error
from sandbox.errors import EXIT_SANDBOX, SandboxError

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
    "inspect": "sandbox.cli.inspect",
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

_USAGE_ERROR = 2
_INTERRUPTED = 130


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
        return error.exit_code if is_run else 1
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        # The program's own status may be 2, so a usage error of `run` must not be.
        return EXIT_SANDBOX if is_run and status == _USAGE_ERROR else status
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:
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
    try:
        status = _status_of(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output has left, as `sandbox runs ls | head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 128 + 13
    sys.stderr.flush()
    # Nothing of ours is left to tidy, and the interpreter's own goodbye takes 5 to 10 ms.
    os._exit(status)
