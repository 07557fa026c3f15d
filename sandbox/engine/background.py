"""`--detach`: the same run, with a supervisor that lives on after the command has returned."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from json import dumps, loads
from typing import Any

from sandbox.engine.order import Surroundings, run
from sandbox.errors import SandboxError
from sandbox.records.light import replace
from sandbox.records.result import RunResult
from sandbox.spec import RunSpec


def run_in_background(
    spec: RunSpec,
    conclude: Callable[[RunResult], None],
    surroundings: Surroundings | None = None,
) -> str:
    """Start a run whose supervisor is in a session of its own; return its id once it runs.

    Raises:
        SandboxError: it could not be started; the text is the supervisor's own.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    receiving, sending = os.pipe()
    middle = os.fork()
    if middle == 0:
        os.close(receiving)
        _become_supervisor(sending, spec, conclude, surroundings or Surroundings())
    os.close(sending)
    os.waitpid(middle, 0)
    with os.fdopen(receiving, "rb") as pipe:
        answer = pipe.read()
    return _read_answer(answer)


def _read_answer(answer: bytes) -> str:
    if not answer:
        raise SandboxError("the supervisor ended before the program was started")
    plain: dict[str, Any] = loads(answer)
    if "run_id" in plain:
        return str(plain["run_id"])
    error = SandboxError(plain["error"], hint=plain["hint"])
    error.exit_code = plain["exit_code"]
    raise error


def _become_supervisor(
    sending: int,
    spec: RunSpec,
    conclude: Callable[[RunResult], None],
    around: Surroundings,
) -> None:
    """Fork once more, so that the run's supervisor belongs to nobody, and never return."""
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    status = SandboxError.exit_code
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.close(null)

        def started(result: RunResult) -> None:
            _answer(sending, {"run_id": result.run_id})

        status = run(spec, replace(around, on_started=started, conclude=conclude)).exit_code or 0
    except SandboxError as error:
        status = error.exit_code
        _answer(sending, {"error": str(error), "hint": error.hint, "exit_code": status})
    finally:
        os._exit(status)


def _answer(sending: int, plain: dict[str, Any]) -> None:
    os.write(sending, dumps(plain).encode())
    os.close(sending)
