"""Finding and reading runs: live ones, ended ones, and what a lost supervisor has left."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from sandbox.errors import StoreError
from sandbox.records.codec import from_plain
from sandbox.records.light import dataclass, replace
from sandbox.records.result import SCHEMA, Event, Outcome, RunResult
from sandbox.records.sample import Block
from sandbox.store import names
from sandbox.store.events import read_events, read_groups
from sandbox.store.files import OUTPUTS, RUN, SAMPLES, remove_directory, sweep
from sandbox.store.home import find_home, open_child, open_home
from sandbox.store.locks import LOCK, hold, is_locked, let_go
from sandbox.store.memory import blocks_in_memory
from sandbox.store.scan import read_blocks

__all__ = [
    "RunEntry",
    "StoredRun",
    "blocks_of",
    "find_run",
    "is_locked",
    "list_ids",
    "list_runs",
    "load",
    "parse_run",
    "read_events",
    "read_groups",
    "remove_half_made",
    "remove_run",
]

_LOOK_SEC = 0.1  # a lock that is held for longer is a supervisor's, not a reader's
_LOST = "the supervisor was lost while the program ran: it was killed, or the machine went down"


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A run that was recorded."""

    result: RunResult
    directory: Path | None
    """None when only a `run.json` is there, such as one made by `-o`."""
    is_live: bool
    """True while its supervisor is there: more may come."""

    def blocks(self) -> Iterator[Block]:
        """Iterate over its samples, as far as they are written.

        Raises:
            StoreError: there are samples, but they cannot be read.
        """
        if self.directory is None or not (self.directory / SAMPLES).exists():
            return iter(())
        return read_blocks(self.directory / SAMPLES)

    def events(self) -> Iterator[Event]:
        """Iterate over its events, in the order in which they were written."""
        return iter(()) if self.directory is None else read_events(self.directory)

    def output_paths(self) -> tuple[Path, Path] | None:
        """Return where the program's stdout and stderr are, if they were kept."""
        if self.directory is None or not (self.directory / OUTPUTS[0]).exists():
            return None
        return self.directory / OUTPUTS[0], self.directory / OUTPUTS[1]


@dataclass(frozen=True, kw_only=True)
class RunEntry:
    """One line of a list of runs."""

    run_id: str
    directory: Path
    result: RunResult | None
    """None when it cannot be read: `broken` then says why."""
    broken: str | None
    is_live: bool
    changed_utc_ns: int
    """The start of the program, or for a broken one the last change of its directory."""
    is_half_made: bool = False
    """Whether its supervisor was killed before it had written anything of the run."""


def load(run: str | Path, home: Path | None = None) -> StoredRun:
    """Return a recorded run.

    Args:
        run: An id, the beginning of one, a name (of the live run that has it, else of the last
            one that had it), or the path of a run directory or of its `run.json`.
        home: Where runs are; found as the command line does unless given.

    Raises:
        StoreError: there is no such run, or it cannot be read.
    """
    path = find_run(run, home)
    if path.is_dir():
        return _load_directory(path)
    if path.name == RUN and (path.parent / SAMPLES).exists():
        return _load_directory(path.parent)
    return StoredRun(result=_read_result(path), directory=None, is_live=False)


def _load_directory(path: Path) -> StoredRun:
    # In this order: a run that ends between the two is then seen as ended, not as lost.
    is_live = is_locked(path)
    result = _read_result(path / RUN)
    if result.outcome is Outcome.RUNNING and not is_live:
        result = replace(result, outcome=Outcome.SUPERVISOR_LOST, reason=_LOST)
    return StoredRun(result=result, directory=path, is_live=is_live)


def _read_result(path: Path) -> RunResult:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise StoreError(
            f"there is no {path.name} in {path.parent}",
            hint="this is not a run directory, or the run was cut short while it started",
        ) from None
    except OSError as exc:
        raise StoreError(f"cannot read {path}: {exc.strerror}") from exc
    try:
        return parse_run(data)
    except StoreError as exc:
        raise StoreError(f"{path}: {exc}", hint=exc.hint) from exc


def parse_run(data: bytes | str) -> RunResult:
    """Return the result of the text of a `run.json`.

    Raises:
        StoreError: a newer version wrote it, or it is damaged.
    """
    try:
        plain = json.loads(data)
        schema = plain.get("schema") if isinstance(plain, dict) else None
        if isinstance(schema, int) and schema > SCHEMA:
            raise StoreError(
                f"a newer version wrote this (schema {schema}, known is {SCHEMA})",
                hint="upgrade: `pip install --upgrade cgroup-sandbox`",
            )
        return from_plain(RunResult, plain)
    except (ValueError, TypeError, KeyError, RecursionError) as exc:
        why = {UnicodeDecodeError: "it is not text", json.JSONDecodeError: f"not JSON, {exc}"}
        raise StoreError(
            f"this is not the record of a run: {why.get(type(exc), exc)}",
            hint="`sandbox run -o FILE.json` writes one; `sandbox runs ls` lists what is kept",
        ) from exc


def blocks_of(result: RunResult) -> Iterator[Block]:
    """Return the samples of a run that this process has made or loaded; none if they are gone.

    Raises:
        StoreError: there are samples, but they cannot be read.
    """
    if result.directory is None:
        return blocks_in_memory(result.run_id)
    directory = Path(result.directory)
    # A record from another machine may name a directory that is another run's here.
    if directory.name != result.run_id or not (directory / SAMPLES).exists():
        return iter(())
    return read_blocks(directory / SAMPLES)


def find_run(run: str | Path, home: Path | None = None) -> Path:
    """Return the run directory, or the `run.json`, that `run` means.

    Raises:
        StoreError: there is none, or more than one.
    """
    text = os.fspath(run)
    if isinstance(run, Path) or "/" in text or text in {".", ".."}:
        if not os.path.lexists(text):
            raise StoreError(f"there is no run at {text}", hint="`sandbox runs ls` lists them")
        return Path(text)
    place = find_home() if home is None else home
    found = _find_by_id_or_name(text, place)
    if found is not None:
        return found
    if text and Path(text).exists():
        return Path(text)
    file = f", and no file {text}" if text.endswith(".json") else ""
    raise StoreError(
        f"there is no run `{text}` in {place}{file}", hint="`sandbox runs ls` lists them"
    )


def _find_by_id_or_name(text: str, home: Path) -> Path | None:
    runs = home / "runs"
    ids = list_ids(home)
    if text in ids:
        return runs / text
    if owner := _last_with_name(text, home):
        return runs / owner
    matches = [run_id for run_id in ids if text and run_id.startswith(text)]
    if len(matches) > 1:
        raise StoreError(
            f"`{text}` is the beginning of {len(matches)} runs: {', '.join(sorted(matches)[:4])}",
            hint="write one more digit of the id",
        )
    return runs / matches[0] if matches else None


def _last_with_name(name: str, home: Path) -> str | None:
    try:
        home_fd = open_home(home, make=False)
    except OSError:
        return None
    try:
        owner = names.owner_of(home_fd, name) if names.is_name(name) else None
    finally:
        os.close(home_fd)
    if owner is not None and (home / "runs" / owner).is_dir():
        return owner
    # The last one that had it was removed: an earlier one may still be there.
    for entry in list_runs(home):
        if entry.result is not None and entry.result.name == name:
            return entry.run_id
    return None


def list_ids(home: Path) -> list[str]:
    """Return the ids of all runs, in no order.

    Raises:
        StoreError: `home` cannot be trusted or read.
    """
    try:
        home_fd = open_home(home, make=False)
        try:
            runs_fd = open_child(home_fd, "runs")
        finally:
            os.close(home_fd)
        try:
            with os.scandir(runs_fd) as entries:
                return [entry.name for entry in entries if not entry.name.startswith(".")]
        finally:
            os.close(runs_fd)
    except FileNotFoundError:
        return []
    except OSError as exc:
        raise StoreError(f"cannot read the runs in {home}: {exc.strerror}") from exc


def list_runs(home: Path) -> list[RunEntry]:
    """Return all runs, the newest first; a broken one with what is wrong with it.

    Raises:
        StoreError: `home` cannot be trusted or read.
    """
    entries = [entry for run_id in list_ids(home) if (entry := _entry(home / "runs" / run_id))]
    return sorted(entries, key=lambda entry: entry.changed_utc_ns, reverse=True)


def _entry(path: Path) -> RunEntry | None:
    result, broken, is_live = None, None, False
    try:
        changed_utc_ns = path.stat().st_mtime_ns
    except OSError:
        return None  # removed meanwhile
    try:
        is_live = is_locked(path)
        stored = _load_directory(path)
        result, is_live = stored.result, stored.is_live
        changed_utc_ns = result.started_utc_ns
    except StoreError as exc:
        broken = "it has not started yet" if is_live else str(exc)
    return RunEntry(
        run_id=path.name,
        directory=path,
        result=result,
        broken=broken,
        is_live=is_live,
        changed_utc_ns=changed_utc_ns,
        is_half_made=result is None and not is_live and _is_half_made(path),
    )


def _is_half_made(path: Path) -> bool:
    """Return whether a directory was locked as a run's, and has no result."""
    return (path / LOCK).is_file() and not os.path.lexists(path / RUN)


def remove_half_made(home: Path, entry: RunEntry) -> None:
    """Remove what a run has left that was killed while it started; its name is free again.

    Raises:
        StoreError: it is live after all, its groups are still there, or it cannot be removed.
    """
    remove_run(home, entry.directory)
    try:
        home_fd = open_home(home, make=False)
        try:
            names.forget_run(home_fd, entry.run_id)
        finally:
            os.close(home_fd)
    except OSError as exc:
        raise StoreError(f"cannot remove the name of {entry.run_id}: {exc.strerror}") from exc


def remove_run(home: Path, run: str | Path) -> Path:
    """Remove a run that is not live, and return where it was.

    Args:
        home: Where runs are; nothing outside is ever removed.
        run: As for `load`.

    Raises:
        StoreError: there is no such run, it is live, its groups are still there, or it cannot be
            removed.
    """
    path = find_run(run, home)
    if path.parent.resolve() != (home / "runs").resolve() or path.is_symlink():
        raise StoreError(
            f"{path} is not a run of {home}", hint="remove it with `rm -r`, if that is what it is"
        )
    try:
        home_fd = open_home(home, make=False)
        try:
            _remove(home_fd, path)
        finally:
            os.close(home_fd)
    except OSError as exc:
        raise StoreError(f"cannot remove {path}: {exc.strerror}") from exc
    return path


def _remove(home_fd: int, path: Path) -> None:
    name = _name_of(path)
    runs_fd = open_child(home_fd, "runs")
    try:
        lock_fd = _hold_ended(runs_fd, path.name, name or path.name)
        try:
            _refuse_with_groups(path, name or path.name)
            remove_directory(runs_fd, path.name)
            sweep(runs_fd)
        finally:
            let_go(lock_fd)
    finally:
        os.close(runs_fd)
    if name is not None:
        names.forget(home_fd, name, path.name)


def _hold_ended(runs_fd: int, run_id: str, called: str) -> int:
    fd = open_child(runs_fd, run_id)
    try:
        return hold(fd, wait_sec=_LOOK_SEC)
    except BlockingIOError:
        raise StoreError(
            f"the run {called} is live", hint=f"end it first: `sandbox stop {called}`"
        ) from None
    finally:
        os.close(fd)


def _refuse_with_groups(path: Path, called: str) -> None:
    """Keep the record of groups that a lost supervisor has left: nothing else knows of them."""
    left = [group for group in read_groups(path) if group.is_dir()]
    if left:
        raise StoreError(
            f"the run {called} has left processes or groups behind, such as {left[0]}",
            hint="end them first: `sandbox clean`",
        )


def _name_of(path: Path) -> str | None:
    try:
        name = _read_result(path / RUN).name
    except StoreError:
        return None
    return name if names.is_name(name) else None
