"""The run directory while its run is live: made, locked, named, written, let go."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Protocol, Self

from sandbox.errors import StoreError
from sandbox.records.codec import to_line, to_lines
from sandbox.records.light import dataclass
from sandbox.records.result import Event, Outcome
from sandbox.records.sample import Block, SampleSink, Table
from sandbox.store import names
from sandbox.store.files import (
    EVENTS,
    GROUPS,
    OUTPUTS,
    RUN,
    SAMPLES,
    remove_directory,
    set_room_aside,
    write_file,
)
from sandbox.store.home import open_child, open_home
from sandbox.store.locks import hold, let_go
from sandbox.store.names import NameInUseError, check_name, new_name, new_run_id
from sandbox.store.problems import Problems, describe
from sandbox.store.samples import CAP_BYTES, SampleWriter, thinned_event
from sandbox.store.targets import MODE, FileTarget, write_all

__all__ = [
    "Directory",
    "NameInUseError",
    "RunDirectory",
    "new_name",
    "new_run_id",
    "open_directory",
]

_RESERVE = ".reserve"
_RESERVE_BYTES = 32 << 10
_FULL = {errno.ENOSPC, errno.EDQUOT}
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_NAMES_TRIED = 8


class Directory(Protocol):
    """Where a run is recorded. Only making it can fail; whatever fails later is a problem text."""

    run_id: str
    name: str

    @property
    def path(self) -> Path | None:
        """Return the directory, or None when the record is in memory alone."""

    def write_run(self, plain: Mapping[str, Any]) -> None:
        """Replace `run.json` in one step."""

    def append_event(self, event: Event) -> None:
        """Append one line to `events.jsonl`."""

    def write_groups(self, paths: Iterable[Path]) -> None:
        """Write down the cgroup directories of the run, before they are made."""

    def open_sink(
        self,
        fast_columns: Sequence[str],
        slow_columns: Sequence[str],
        *,
        cap_bytes: int = CAP_BYTES,
    ) -> SampleSink:
        """Return where samples go; the columns may or may not begin with `time_ns`."""

    def blocks(self) -> Iterator[Block]:
        """Return what the sink has taken; close it first."""

    def events(self) -> Iterator[Event]:
        """Return what was appended."""

    def output_paths(self) -> tuple[Path, Path] | None:
        """Return where the program's stdout and stderr go when they are kept."""

    def problems(self) -> tuple[str, ...]:
        """Return what could not be recorded, and why."""

    def discard(self) -> None:
        """Remove the record of a run that was never started."""

    def close(self) -> None:
        """End the run: its lock and its name are free. Again is harmless."""


def open_directory(
    home: Path, run_id: str, name: str | None, *, must_last: bool = False
) -> Directory:
    """Return a new run directory, or a stand-in in memory where none can be made.

    Args:
        home: As for `RunDirectory.create`.
        run_id: Likewise.
        name: Likewise.
        must_last: Whether a stand-in would not do: others could not find the run.

    Raises:
        SpecError: `name` cannot be a name.
        NameInUseError: another live run has it.
        StoreError: it must last, and cannot be made.
    """
    try:
        return RunDirectory.create(home, run_id, name)
    except NameInUseError:
        raise
    except StoreError as exc:
        if must_last:
            raise
        from sandbox.store.memory import MemoryDirectory

        return MemoryDirectory(run_id, name or new_name(), problem=f"nothing is kept: {exc}")


class RunDirectory:
    """`runs/<id>/` of a live run."""

    def __init__(self, opened: _Opened, run_id: str, name: str) -> None:
        """Use `create`; the descriptors are closed by `close`."""
        self.run_id = run_id
        self.name = name
        self.path: Path = opened.path
        self._home_fd = opened.home_fd
        self._fd = opened.fd
        self._lock_fd = opened.lock_fd
        self._events_fd = -1
        self._line_is_torn = False
        self._sink: SampleWriter | None = None
        self._problems = Problems()
        self._is_closed = False

    @classmethod
    def create(cls, home: Path, run_id: str, name: str | None = None) -> Self:
        """Make, lock and name a run directory.

        Args:
            home: What `find_home` returned; made if it is not there.
            run_id: What `new_run_id` returned.
            name: What the user asked for; None makes one up.

        Raises:
            SpecError: `name` cannot be a name.
            NameInUseError: another live run has it.
            StoreError: it cannot be made, or `home` cannot be trusted.
        """
        if name is not None:
            check_name(name)
        try:
            with ExitStack() as undo:
                opened = _make(home, run_id, undo)
                claimed = _claim(opened.home_fd, run_id, name)
                with suppress(OSError):
                    set_room_aside(opened.fd, _RESERVE, _RESERVE_BYTES)
                undo.pop_all()
                return cls(opened, run_id, claimed)
        except OSError as exc:
            raise StoreError(
                f"cannot make a run directory in {home}: {describe(exc)}",
                hint="free some room there, or set SANDBOX_HOME to another directory",
            ) from exc

    def write_run(self, plain: Mapping[str, Any]) -> None:
        """Replace `run.json` in one step, mode 0600."""
        data = to_lines(plain).encode()
        try:
            self._write_run(data, is_last=plain.get("outcome") != Outcome.RUNNING)
        except OSError as exc:
            self._problems.failed(str(self.path / RUN), exc)

    def _write_run(self, data: bytes, *, is_last: bool) -> None:
        try:
            write_file(self._fd, RUN, data)
        except OSError as exc:
            if not is_last or exc.errno not in _FULL:
                raise
            with suppress(OSError):
                os.unlink(_RESERVE, dir_fd=self._fd)  # what it was kept for
            write_file(self._fd, RUN, data)

    def append_event(self, event: Event) -> None:
        """Append one line to `events.jsonl`, in one write."""
        line = to_line(event).encode() + b"\n"
        if self._line_is_torn:
            line = b"\n" + line
        try:
            if self._events_fd < 0:
                self._events_fd = os.open(EVENTS, _APPEND, MODE, dir_fd=self._fd)
            write_all(self._events_fd, line)
            self._line_is_torn = False
        except OSError as exc:
            self._line_is_torn = True
            self._problems.failed(str(self.path / EVENTS), exc)

    def write_groups(self, paths: Iterable[Path]) -> None:
        """Write down the cgroup directories of the run, before they are made."""
        try:
            write_file(self._fd, GROUPS, to_line([*map(str, paths)]).encode())
        except OSError as exc:
            self._problems.failed(str(self.path / GROUPS), exc)

    def open_sink(
        self,
        fast_columns: Sequence[str],
        slow_columns: Sequence[str],
        *,
        cap_bytes: int = CAP_BYTES,
    ) -> SampleWriter:
        """Return the sink that writes `samples`."""
        file = None
        try:
            file = FileTarget(self._fd, SAMPLES, f".{SAMPLES}.new")
        except OSError as exc:
            self._problems.failed(str(self.path / SAMPLES), exc)
        self._sink = SampleWriter(
            file,
            {Table.FAST: fast_columns, Table.SLOW: slow_columns},
            cap_bytes=cap_bytes,
            on_thinned=self._thinned,
        )
        return self._sink

    def _thinned(self, stride: int) -> None:
        self._problems.thinned(stride)
        self.append_event(thinned_event(stride))

    def blocks(self) -> Iterator[Block]:
        """Return what the sink has taken; close it first."""
        return iter(()) if self._sink is None else self._sink.blocks()

    def events(self) -> Iterator[Event]:
        """Return what was appended."""
        from sandbox.store.events import read_events

        return read_events(self.path)

    def output_paths(self) -> tuple[Path, Path] | None:
        """Return where the program's stdout and stderr go when they are kept."""
        return self.path / OUTPUTS[0], self.path / OUTPUTS[1]

    def problems(self) -> tuple[str, ...]:
        """Return what could not be recorded, and why."""
        if self._sink is not None and self._sink.error is not None:
            about, error = str(self.path / SAMPLES), self._sink.error
            if self._sink.is_waiting:
                self._problems.failed(about, error)
            else:
                self._problems.note(
                    about, f"{about} could not be written for a while: {describe(error)}"
                )
        return self._problems.texts()

    def discard(self) -> None:
        """Remove the record of a run that was never started; the lock stays until `close`."""
        try:
            _remove(self._home_fd, self.run_id)
            names.forget(self._home_fd, self.name, self.run_id)
        except OSError as exc:
            self._problems.note(str(self.path), f"{self.path} is left: {describe(exc)}")

    def close(self) -> None:
        """Free the lock, and with it the name."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._sink is not None:
            self._sink.release()
        with suppress(OSError):
            os.unlink(_RESERVE, dir_fd=self._fd)
        let_go(self._lock_fd)
        for fd in (self._events_fd, self._fd, self._home_fd):
            if fd >= 0:
                os.close(fd)
        # From here on a late write is refused, and cannot get into another's file.
        self._events_fd = self._fd = self._home_fd = -1


@dataclass(frozen=True, kw_only=True)
class _Opened:
    home_fd: int
    fd: int
    lock_fd: int
    path: Path


def _make(home: Path, run_id: str, undo: ExitStack) -> _Opened:
    """Make and lock `runs/<id>`; `undo` takes it away again."""
    home_fd = open_home(home, make=True)
    undo.callback(os.close, home_fd)
    runs_fd = open_child(home_fd, "runs", make=True)
    try:
        # It gets its true name once it is locked: no one ever sees it without its lock.
        hidden = f".new-{run_id}"
        os.mkdir(hidden, 0o700, dir_fd=runs_fd)
        try:
            fd = open_child(runs_fd, hidden)
            undo.callback(os.close, fd)
            lock_fd = hold(fd)
            undo.callback(let_go, lock_fd)
            os.rename(hidden, run_id, src_dir_fd=runs_fd, dst_dir_fd=runs_fd)
        except OSError:
            with suppress(OSError):
                remove_directory(runs_fd, hidden)
            raise
    finally:
        os.close(runs_fd)
    undo.callback(_try_to_remove, home_fd, run_id)
    return _Opened(home_fd=home_fd, fd=fd, lock_fd=lock_fd, path=home / "runs" / run_id)


def _claim(home_fd: int, run_id: str, name: str | None) -> str:
    if name is not None:
        names.claim(home_fd, name, run_id)
        return name
    for _ in range(_NAMES_TRIED):
        candidate = new_name()
        with suppress(NameInUseError):
            names.claim(home_fd, candidate, run_id)
            return candidate
    candidate = f"{new_name()}-{run_id}"
    names.claim(home_fd, candidate, run_id)
    return candidate


def _remove(home_fd: int, run_id: str) -> None:
    runs_fd = open_child(home_fd, "runs")
    try:
        remove_directory(runs_fd, run_id)
    finally:
        os.close(runs_fd)


def _try_to_remove(home_fd: int, run_id: str) -> None:
    with suppress(OSError):
        _remove(home_fd, run_id)
