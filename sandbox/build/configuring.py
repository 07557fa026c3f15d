"""The instructions that only change what the image says about itself."""

from __future__ import annotations

import posixpath
from typing import Any

from sandbox.build.state import ImageState
from sandbox.image.dockerfile.syntax import (
    Cmd,
    Command,
    Entrypoint,
    Env,
    Expose,
    Healthcheck,
    Instruction,
    Label,
    Maintainer,
    Onbuild,
    Shell,
    StopSignal,
    User,
    Volume,
    Workdir,
)


def configure(state: ImageState, instruction: Instruction) -> None:
    """Apply one instruction, whose variables were replaced, to the configuration."""
    match instruction:
        case Env():
            state.set_variables(instruction.pairs)
        case Label():
            state.set_labels(instruction.pairs)
        case Cmd():
            state.set_command(_words(state, instruction.command))
        case Entrypoint():
            state.set_entrypoint(_words(state, instruction.command))
        case Expose():
            state.add_names("ExposedPorts", instruction.ports)
        case Volume():
            state.add_names("Volumes", instruction.paths)
        case Maintainer():
            state.document["author"] = instruction.name
        case _:
            _set_field(state.config, instruction)


def _set_field(config: dict[str, Any], instruction: Instruction) -> None:
    match instruction:
        case User():
            config["User"] = instruction.user
        case Workdir():
            config["WorkingDir"] = join_workdir(config.get("WorkingDir") or "/", instruction.path)
        case Shell():
            config["Shell"] = list(instruction.words)
        case StopSignal():
            config["StopSignal"] = instruction.signal
        case Healthcheck():
            config["Healthcheck"] = _healthcheck(instruction)
        case Onbuild():
            config["OnBuild"] = [*(config.get("OnBuild") or ()), instruction.expression]
        case _:
            raise TypeError(f"{type(instruction).__name__} does more than to configure")


def join_workdir(before: str, path: str) -> str:
    """Return what WORKDIR makes of a path, which may begin at the one before."""
    return posixpath.normpath(posixpath.join("/", before, path)).replace("//", "/", 1)


def _words(state: ImageState, command: Command) -> tuple[str, ...]:
    if not command.is_shell:
        return command.words
    return (*state.shell, *command.words) if command.words else ()


def _healthcheck(instruction: Healthcheck) -> dict[str, Any]:
    times = {
        "Interval": instruction.interval_ns,
        "Timeout": instruction.timeout_ns,
        "StartPeriod": instruction.start_period_ns,
        "StartInterval": instruction.start_interval_ns,
        "Retries": instruction.retries,
    }
    return {
        "Test": list(instruction.test),
        **{name: value for name, value in times.items() if value},
    }
