"""A virtual environment of the user's own, and the variables that make a program run in one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sandbox.errors import HostError
from sandbox.records.venv import Venv

_SETTINGS = "pyvenv.cfg"


def open_venv(path: Path) -> Venv:
    """Return the virtual environment in a directory.

    Raises:
        HostError: there is none, or its Python is gone.
    """
    directory = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow its links
    try:
        settings = (directory / _SETTINGS).read_text("utf-8", "replace")
    except OSError as exc:
        raise HostError(
            f"{path} is no virtual environment: cannot read its {_SETTINGS}: {exc.strerror}",
            hint=f"make one with `python3 -m venv {path}`, or have one built: --requirements FILE",
        ) from None
    python = directory / "bin/python"
    if not os.access(python, os.X_OK):
        raise HostError(
            f"the virtual environment {path} has no Python that can be executed: {python}",
            hint="the Python that it was made from may have been removed: make it anew",
        )
    return Venv(directory=str(directory), python=_version(settings))


def _version(settings: str) -> str:
    values = dict(_pairs(settings))
    return values.get("version") or values.get("version_info") or "unknown"


def _pairs(settings: str) -> list[tuple[str, str]]:
    pairs = (line.partition("=") for line in settings.splitlines())
    return [(name.strip().lower(), value.strip()) for name, _, value in pairs]


def venv_variables(venv: Venv, environment: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return what to set on top of `environment`, as the environment's own `activate` does."""
    scripts = os.fsencode(venv.directory) + b"/bin"
    path = environment.get(b"PATH", os.fsencode(os.defpath))
    return {b"VIRTUAL_ENV": os.fsencode(venv.directory), b"PATH": scripts + b":" + path}
