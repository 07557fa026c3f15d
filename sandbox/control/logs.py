"""What a run has printed, as far as it was kept: all of it, or also what is still to come."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from sandbox.errors import StoreError
from sandbox.store.reading import StoredRun, is_locked

Write = Callable[[int, bytes], None]
"""Called with 1 or 2, for stdout or stderr, and some bytes of it."""

_CHUNK_BYTES = 1 << 16
_LOOK_SEC = 0.1


def copy_output(stored: StoredRun, write: Write, *, follow: bool = False) -> None:
    """Pass on what a run has printed.

    Args:
        stored: The run.
        write: Takes it; of the two streams neither keeps its place beside the other.
        follow: Go on until the run has ended.

    Raises:
        StoreError: nothing was kept, or it cannot be read.
    """
    paths, directory = stored.output_paths(), stored.directory
    if paths is None or directory is None:
        raise StoreError(
            f"what {stored.result.name} prints was not kept",
            hint="`sandbox run --capture=tee` shows and keeps it, `-d` keeps it",
        )
    try:
        with ExitStack() as undo:
            files = [undo.enter_context(path.open("rb", buffering=0)) for path in paths]
            for number, file in enumerate(files, start=1):
                _pass_on(file, number, write, os.fstat(file.fileno()).st_size)
            while follow and _is_live(directory):
                time.sleep(_LOOK_SEC)
                for number, file in enumerate(files, start=1):
                    _pass_on(file, number, write)
            if follow:  # what came between the last look and the end
                for number, file in enumerate(files, start=1):
                    _pass_on(file, number, write)
    except BrokenPipeError:
        raise
    except OSError as exc:
        raise StoreError(f"cannot copy what {stored.result.name} prints: {exc.strerror}") from exc


def _pass_on(file: BinaryIO, number: int, write: Write, most_bytes: int | None = None) -> None:
    """Copy up to the end, or so much that a program that never rests does not keep us."""
    while most_bytes is None or most_bytes > 0:
        wanted = _CHUNK_BYTES if most_bytes is None else min(_CHUNK_BYTES, most_bytes)
        data = file.read(wanted)
        if not data:
            return
        write(number, data)
        if most_bytes is not None:
            most_bytes -= len(data)


def _is_live(directory: Path) -> bool:
    try:
        return is_locked(directory)
    except StoreError:
        return False  # removed meanwhile, so it has ended
