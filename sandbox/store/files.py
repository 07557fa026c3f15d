"""The files of a run directory: their names, and how they are written and removed."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from sandbox.store.targets import MODE, NEW_FILE, write_all

RUN = "run.json"
SAMPLES = "samples"
EVENTS = "events.jsonl"
GROUPS = "groups.json"
OUTPUTS = ("stdout", "stderr")

_LONGEST_START_SEC = 3600


def write_file(directory_fd: int, name: str, data: bytes) -> None:
    """Put `data` into a file in one step: a reader sees the old content or the new one.

    Not forced to the disk: the page cache survives the end of any process, and waiting for the
    disk would disturb what is measured. After a power cut a run may be shown as broken.

    Raises:
        OSError: it cannot be written; the old content is untouched.
    """
    temporary = f".{name}.new"
    try:
        fd = os.open(temporary, NEW_FILE, MODE, dir_fd=directory_fd)
        try:
            write_all(fd, data)
        finally:
            os.close(fd)
        os.rename(temporary, name, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=directory_fd)
        raise


def set_room_aside(directory_fd: int, name: str, size_bytes: int) -> None:
    """Make a file that takes up room, to be removed when there is no other room left.

    It is written, not allocated: a file system that puts off the choice of blocks keeps room for
    them at once, and has none to free when a short run ends, which takes 2 ms.

    Raises:
        OSError: there is no room.
    """
    fd = os.open(name, NEW_FILE, MODE, dir_fd=directory_fd)
    try:
        write_all(fd, bytes(size_bytes))
    except OSError:
        os.unlink(name, dir_fd=directory_fd)
        raise
    finally:
        os.close(fd)


def remove_directory(parent_fd: int, name: str) -> None:
    """Remove a directory with all that is in it; first it vanishes, then it is emptied.

    Raises:
        OSError: it cannot be removed.
    """
    hidden = f".gone-{name}"
    os.rename(name, hidden, src_dir_fd=parent_fd, dst_dir_fd=parent_fd)
    from shutil import rmtree  # 2 ms, which a run never has to pay

    rmtree(hidden, dir_fd=parent_fd)


def sweep(parent_fd: int) -> None:
    """Remove what a start or a removal that was cut short has left; nothing that is in use."""
    from shutil import rmtree

    with os.scandir(parent_fd) as entries:
        hidden = [entry.name for entry in entries if entry.name.startswith(".")]
    for name in hidden:
        if name.startswith(".gone-") or (name.startswith(".new-") and _is_old(parent_fd, name)):
            rmtree(name, ignore_errors=True, dir_fd=parent_fd)


def _is_old(parent_fd: int, name: str) -> bool:
    with suppress(OSError):
        made_sec = os.stat(name, dir_fd=parent_fd, follow_symlinks=False).st_mtime
        return time.time() - made_sec > _LONGEST_START_SEC
    return False
