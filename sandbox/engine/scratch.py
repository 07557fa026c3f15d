"""The directory of a run in a root of its own: what it writes, and files that it is given."""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack
from pathlib import Path

from sandbox.environment.host import Prepared
from sandbox.errors import StoreError
from sandbox.kernel.files import find_file_system
from sandbox.kernel.scratch import remove_scratch
from sandbox.records.light import replace
from sandbox.records.result import RunWarning

NAME = "root"
_CANNOT_HOLD = frozenset(
    {"overlay", "aufs", "nfs", "nfs4", "cifs", "smb3", "9p", "fuse", "ecryptfs", "vfat", "exfat"}
)
"""File systems that an overlay cannot write to: they lack attributes, or are one themselves."""
_ROOT = "root"
_MEMORY = "memory"
_WRITABLE = ("upper", "work")


def make_scratch(
    prepared: Prepared, directory: Path | None, undo: ExitStack
) -> tuple[Prepared, Path]:
    """Make the directory, have `undo` remove it; return the program that knows it, and the path.

    Args:
        prepared: The program, with an enclosure.
        directory: The run directory; None where there is none.
        undo: What is called at the end of the run.

    Raises:
        StoreError: it cannot be made.
    """
    enclosure = prepared.program.enclosure
    if enclosure is None:
        raise StoreError("a program without a root of its own needs no directory")
    if directory is None:
        from tempfile import mkdtemp

        path = Path(mkdtemp(prefix="sandbox-root-"))
    else:
        path = directory / NAME
    ids = enclosure.ids
    undo.callback(remove_scratch, path, ids)
    writable = fill_scratch(prepared, path)
    kind = find_file_system(writable)
    in_memory = kind.partition(".")[0] in _CANNOT_HOLD
    if in_memory and enclosure.writes_to is not None:
        raise StoreError(
            f"what the run writes cannot be kept: {writable} is on {kind}",
            hint="set SANDBOX_HOME to a disk of this machine",
        )
    enclosure = replace(enclosure, scratch=str(path), writes_to_memory=in_memory)
    prepared = replace(prepared, program=replace(prepared.program, enclosure=enclosure))
    if in_memory:
        (path / _MEMORY).mkdir(mode=0o755)
        warning = RunWarning(
            code="writes_to_memory",
            text=f"what the run writes to its root goes to memory: {path} is on {kind}",
            hint="set SANDBOX_HOME to a disk of this machine",
        )
        prepared = replace(prepared, warnings=(*prepared.warnings, warning))
    return prepared, path


def fill_scratch(prepared: Prepared, path: Path) -> Path:
    """Make the directory with all that a run needs in it; return where what it writes goes.

    Raises:
        StoreError: it cannot be made.
    """
    enclosure = prepared.program.enclosure
    if enclosure is None:
        raise StoreError("a program without a root of its own needs no directory")
    writable = path if enclosure.writes_to is None else Path(enclosure.writes_to)
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        (path / _ROOT).mkdir(mode=0o755)
        for name in _WRITABLE:
            (writable / name).mkdir(mode=0o755)
        _take_after(writable / "upper", Path(enclosure.layers[-1]))
        for name, text in prepared.root_files.items():
            _write(path / name, text)
    except OSError as exc:
        raise StoreError(
            f"cannot make the run's own directory {path}: {exc.strerror}",
            hint="free some room there, or set SANDBOX_HOME to another disk",
        ) from exc
    return writable


def _take_after(upper: Path, model: Path) -> None:
    """Give the upper directory what the root of the stack is to have: it shows through."""
    found = model.stat()
    if os.geteuid() == 0:
        os.chown(upper, found.st_uid, found.st_gid)
    upper.chmod(stat.S_IMODE(found.st_mode) | stat.S_IRWXU)


def _write(path: Path, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with open(fd, "w", encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
        file.write(text)
    path.chmod(0o644)  # whatever our umask is: the program's user shall read it
