"""The virtual environment of a run: found, or built before the run begins."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.cli.console import has_unicode, width_of
from sandbox.errors import SpecError, StoreError

if TYPE_CHECKING:
    from sandbox.environment.venv_cache import VenvCache
    from sandbox.records.venv import Venv

_SHOWN_AFTER_SEC = 0.2


def provide_venv(
    path: Path | None,
    requirements: Sequence[Path],
    packages: Sequence[str],
    *,
    user: str | None = None,
) -> Venv | None:
    """Return the environment that the flags ask for, or None if they ask for none.

    One that is built is held until this process, or one that it forks, has ended.

    Raises:
        SandboxError: it is not there, or cannot be built.
    """
    if path is not None:
        if requirements or packages:
            raise SpecError(
                "--venv is an environment of your own: nothing is installed into it",
                hint="leave it out to have one built from --requirements and --pip",
            )
        from sandbox.environment.venv import open_venv

        return open_venv(path)
    if not requirements and not packages:
        return None
    if user is not None:
        raise SpecError(
            "an environment that is built belongs to you alone: --user could not read it",
            hint="make one that this user can read, and name it with --venv",
        )
    from sandbox.environment.venv_inputs import read_inputs
    from sandbox.environment.venv_tools import find_tool

    inputs = read_inputs(requirements, packages)
    with progress_line() as show:
        venv, _hold = open_cache().provide(inputs, find_tool(), show)
    return venv


def open_cache() -> VenvCache:
    """Return the cache in the user's own directory, which is made if need be.

    Raises:
        StoreError: that directory cannot be trusted or made.
    """
    from sandbox.environment.venv_cache import VenvCache
    from sandbox.store.home import find_home, open_home

    home = find_home()
    try:
        os.close(open_home(home, make=True))
    except OSError as exc:
        raise StoreError(
            f"cannot keep environments in {home}: {exc.strerror}",
            hint="set SANDBOX_HOME to a directory of your own",
        ) from None
    return VenvCache(home)


@contextmanager
def progress_line() -> Iterator[Callable[[str], None]]:
    """Give what draws a line on a terminal that says what is being done; it goes away at the end.

    Nothing to do (an empty text) takes it away at once.
    Where stderr is no terminal, nothing is drawn.
    """
    started = time.monotonic()
    drawn = False

    def show(doing: str) -> None:
        nonlocal drawn
        if not doing:
            clear()
            return
        seconds = time.monotonic() - started
        if not sys.stderr.isatty() or seconds < _SHOWN_AFTER_SEC:
            return
        text = f"{doing}… {seconds:.0f} s"
        if not has_unicode(sys.stderr):
            text = text.replace("…", "...").encode("ascii", "replace").decode()
        sys.stderr.write(f"\r\033[K{text[: width_of(sys.stderr) - 1]}")
        sys.stderr.flush()
        drawn = True

    def clear() -> None:
        nonlocal drawn
        if drawn:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
        drawn = False

    try:
        yield show
    finally:
        clear()
