"""What even the guards have left behind: groups of runs whose supervisor is gone."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from sandbox.engine.scratch import NAME as SCRATCH
from sandbox.errors import StoreError
from sandbox.kernel.files import list_tree
from sandbox.kernel.guard import Guard
from sandbox.kernel.place import GROUP_PREFIX, Place, find_place
from sandbox.kernel.roots import Roots
from sandbox.kernel.v2 import list_pids
from sandbox.records.light import dataclass
from sandbox.store.reading import RunEntry, list_runs, read_groups, remove_half_made

_RUN_ID = re.compile(rf"{re.escape(GROUP_PREFIX)}([0-9a-f]{{12}})")
_YOUNG_SEC = 60.0
"""A group without processes may belong to a run that is just being started from another home."""


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """The groups that one lost run has left."""

    run_id: str
    directories: tuple[Path, ...]
    processes: int
    """Processes that were still alive inside."""
    what: str = "groups"
    """What the directories are."""
    problem: str | None = None
    """Why it is still there; None when all of it is gone."""


def clean(home: Path, roots: Roots | None = None) -> list[Leftover]:
    """Kill and remove what lost runs have left; never touch a run whose supervisor lives.

    A run is lost when nobody holds the lock of its run directory. Groups that no run directory
    here knows may belong to a run that is recorded elsewhere: they are removed only when they
    are empty and not young.

    Raises:
        StoreError: the run directories cannot be listed.
    """
    place = find_place(roots or Roots())
    entries = list_runs(home)
    live = {entry.run_id for entry in entries if entry.is_live}
    known: dict[str, tuple[Path, ...]] = {}
    for entry in entries:
        if not entry.is_live:
            known[entry.run_id] = tuple(_existing(read_groups(entry.directory)))
    found = [_end(run_id, groups) for run_id, groups in known.items() if groups]
    found += _take_away(entry for entry in entries if not entry.is_live)
    found += _release_networks()
    strays = _strays(place, live | known.keys())
    found += [_end_stray(run_id, groups) for run_id, groups in strays.items()]
    return found + list(_remove_half_made(home, entries))


def _remove_half_made(home: Path, entries: Iterable[RunEntry]) -> Iterator[Leftover]:
    """Remove the records of runs that were killed while they started: nothing is to be read."""
    for entry in entries:
        if not entry.is_half_made:
            continue
        problem = None
        try:
            remove_half_made(home, entry)
        except StoreError as error:
            problem = str(error)
        yield Leftover(
            run_id=entry.run_id,
            directories=(entry.directory,),
            processes=0,
            what="half-made record",
            problem=problem,
        )


def _take_away(lost: Iterable[RunEntry]) -> Iterator[Leftover]:
    """Remove what lost runs have written in roots of their own; their processes have ended."""
    for entry in lost:
        scratch = entry.directory / SCRATCH
        if not scratch.is_dir():
            continue
        from sandbox.kernel.namespaces import find_ids
        from sandbox.kernel.scratch import remove_scratch

        uid = os.geteuid()
        ids = None if uid == 0 else find_ids(uid, os.getegid(), roots=Roots())
        is_gone = remove_scratch(scratch, ids)
        yield Leftover(
            run_id=entry.run_id,
            directories=(scratch,),
            processes=0,
            what="directories of a root file system",
            problem=None if is_gone else "something in it belongs to another user",
        )


def _release_networks() -> Iterator[Leftover]:
    """Put back the settings of this host that private networks of lost runs have changed."""
    if os.geteuid() != 0:
        return
    from sandbox.kernel.forwarding import PLACE, release_lost

    try:
        lost = release_lost()
    except OSError as exc:
        yield _of_network("", PLACE, problem=f"{exc.strerror}: are you root on the host?")
        return
    for lease in lost:
        yield _of_network(Path(lease).name.removeprefix("run-"), lease)


def _of_network(run_id: str, path: str, problem: str | None = None) -> Leftover:
    return Leftover(
        run_id=run_id,
        directories=(Path(path),),
        processes=0,
        what="leases of a private network",
        problem=problem,
    )


def _existing(directories: Iterable[Path]) -> Iterator[Path]:
    for directory in directories:
        # Only what bears a run's name is ever removed, whatever a file says.
        if directory.is_dir() and any(map(_RUN_ID.fullmatch, directory.parts)):
            yield directory


def _strays(place: Place, known: Iterable[str]) -> dict[str, list[Path]]:
    """Return the groups beside which ours are made that belong to no run of this home."""
    parents = {*place.v1.values(), *((place.v2,) if place.v2 is not None else ())}
    strays: dict[str, list[Path]] = {}
    for parent in sorted(parents):
        for directory in sorted(parent.glob(f"{GROUP_PREFIX}*")):
            match = _RUN_ID.fullmatch(directory.name)
            if match is not None and match[1] not in known:
                strays.setdefault(match[1], []).append(directory)
    return strays


def _count_processes(directories: Iterable[Path]) -> int:
    return len({pid for top in directories for pid in list_pids(top)})


def _end(run_id: str, directories: tuple[Path, ...]) -> Leftover:
    """Let a guard do what it would have done."""
    processes = _count_processes(directories)
    top = next((path for path in directories if (path / "cgroup.events").exists()), None)
    is_gone = Guard.start(kill_directory=top, directories=directories).act()
    return Leftover(
        run_id=run_id,
        directories=directories,
        processes=processes,
        problem=None if is_gone else "something in it cannot be killed or removed; are you root?",
    )


def _end_stray(run_id: str, directories: list[Path]) -> Leftover:
    processes = _count_processes(directories)
    age_sec = time.time() - max((path.stat().st_mtime for path in directories), default=0)
    if processes or age_sec < _YOUNG_SEC:
        why = f"{processes} processes are inside" if processes else "it was made just now"
        return Leftover(
            run_id=run_id,
            directories=tuple(directories),
            processes=processes,
            problem=f"left alone: no run directory here knows it, and {why}",
        )
    below = [Path(path) for top in directories for path in list_tree(top)]
    return _end(run_id, tuple(below))
