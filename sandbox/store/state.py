"""Whether records can be kept, and which lost runs have left something: looked at, never made."""

from __future__ import annotations

import os
from pathlib import Path

from sandbox.errors import StoreError
from sandbox.records.light import dataclass
from sandbox.store.events import read_groups
from sandbox.store.home import open_home
from sandbox.store.locks import is_locked


@dataclass(frozen=True, kw_only=True)
class HomeState:
    """The place of the run directories as it is now."""

    home: Path
    problem: str | None
    """Why nothing can be recorded there; None where it can."""
    hint: str | None
    free_bytes: int | None
    """What this user may still write there."""
    runs: int
    lost: tuple[str, ...]
    """Ids of runs whose supervisor has gone and whose groups are still there."""


def look_at_home(home: Path) -> HomeState:
    """Return the state of a home that may not have been made yet."""
    nearest = _nearest(home)
    problem, hint = _why_closed(home, nearest)
    ids = _list(home / "runs")
    return HomeState(
        home=home,
        problem=problem,
        hint=hint,
        free_bytes=_free_bytes(nearest),
        runs=len(ids),
        lost=tuple(run_id for run_id in ids if _is_lost(home / "runs" / run_id)),
    )


def _nearest(home: Path) -> Path:
    """Return the home, or what is there of the way to it."""
    return next(path for path in (home, *home.parents) if os.path.lexists(path))


def _why_closed(home: Path, nearest: Path) -> tuple[str | None, str | None]:
    try:
        if nearest == home:
            os.close(open_home(home, make=False))
        elif not nearest.is_dir():
            return f"{nearest} is not a directory", None
    except StoreError as error:
        return str(error), error.hint
    except OSError as error:
        return f"{home} cannot be opened: {error.strerror}", None
    if not os.access(nearest, os.W_OK | os.X_OK):
        return f"{nearest} cannot be written by us", None
    # Whatever the modes say, nothing can be made on a file system that is mounted read-only.
    if os.statvfs(nearest).f_flag & os.ST_RDONLY:
        return f"{nearest} is on a file system that is mounted read-only", None
    return None, None


def _free_bytes(path: Path) -> int | None:
    try:
        state = os.statvfs(path)
    except OSError:
        return None
    return state.f_bavail * state.f_frsize


def _list(directory: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in directory.iterdir() if entry.name[0] != ".")
    except OSError:
        return []


def _is_lost(directory: Path) -> bool:
    # Parents stand first and hierarchies one after the other: of thousands of runs two tell enough.
    groups = read_groups(directory)
    if not any(os.path.isdir(group) for group in {*groups[:1], *groups[-2:-1]}):  # noqa: PTH112 - likewise
        return False
    try:
        return not is_locked(directory)
    except StoreError:
        return False
