"""Run an ML script inside the CPU and memory budget of a target device; see what it used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PLACES = {
    "Limits": "sandbox.spec",
    "Outcome": "sandbox.records.result",
    "RunResult": "sandbox.records.result",
    "RunSpec": "sandbox.spec",
    "SandboxError": "sandbox.errors",
    "load": "sandbox.store.reading",
    "mark": "sandbox.environment.marks",
    "run": "sandbox.helper.client",
}

__all__ = [
    "Limits",
    "Outcome",
    "RunResult",
    "RunSpec",
    "SandboxError",
    "__version__",
    "load",
    "mark",
    "run",
]

if TYPE_CHECKING:
    from sandbox.environment.marks import mark
    from sandbox.errors import SandboxError
    from sandbox.helper.client import run
    from sandbox.records.result import Outcome, RunResult
    from sandbox.spec import Limits, RunSpec
    from sandbox.store.reading import load


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: `import sandbox` stays cheap."""
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(place), name)
    globals()[name] = value
    return value
