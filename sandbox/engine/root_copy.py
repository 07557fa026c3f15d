"""A run's root made by copying, where its layers cannot be stacked; and the start of its child.

What is written goes to the copy, which is the run's own. A root that is only read is the layer
itself if there is one alone, and else a copy that all runs of the image share.
"""

from __future__ import annotations

import json
import os
import select
import time
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.engine.scratch import fill_scratch
from sandbox.engine.starting import refuse_if_stopped
from sandbox.environment.host import Prepared
from sandbox.errors import SandboxError, StoreError
from sandbox.kernel.in_root import find_place
from sandbox.kernel.lent import Tell, as_lent
from sandbox.kernel.merge import Copied, copy_merged
from sandbox.kernel.mount_calls import open_in
from sandbox.records.enclosure import Enclosure, MountKind
from sandbox.records.light import dataclass, replace
from sandbox.records.result import RootMade, RunWarning
from sandbox.units import format_duration, format_size

if TYPE_CHECKING:
    from sandbox.engine.order import Surroundings

_COPY = "copy"
_PAUSE_NS = 50_000_000
_OWN_DIRECTORIES = (b"/proc", b"/dev", b"/sys")


def copy_root(prepared: Prepared, why: str, around: Surroundings) -> Prepared:
    """Return the program with a root that is a copy of its layers.

    Args:
        prepared: The program, with an enclosure that has its scratch directory.
        why: Why the layers are not stacked.
        around: Who is told how far it is, and may want it to end.

    Raises:
        StoreError: there is no room for it, or it cannot be written.
        SandboxError: a signal came meanwhile, or the caller wants no run any more.
    """
    enclosure = prepared.program.enclosure
    if enclosure is None:
        raise StoreError("a program without a root of its own needs no copy of one")
    if not Path(enclosure.scratch).exists():  # the keeper of the first attempt has taken it away
        fill_scratch(prepared, Path(enclosure.scratch))
    watcher = _Watcher(around)
    started_ns = time.monotonic_ns()
    try:
        made = _provide(prepared, enclosure, watcher)
    except OSError as exc:
        raise StoreError(
            f"cannot copy the root file system of the run: {exc.strerror}",
            hint="it takes as much room as the image; SANDBOX_HOME may be on another disk",
        ) from exc
    finally:
        watcher.end()
    record = RootMade(
        how="bind" if made.copied is None else "copy",
        reason=why,
        entries=0 if made.copied is None else made.copied.entries,
        size_bytes=0 if made.copied is None else made.copied.size_bytes,
        wall_ns=time.monotonic_ns() - started_ns,
    )
    enclosure = replace(
        enclosure,
        copy=str(made.path),
        copy_is_shared=made.is_shared,
        writes_to_memory=False,
    )
    warnings = [told for told in prepared.warnings if told.code != "writes_to_memory"]
    return replace(
        prepared,
        program=replace(prepared.program, enclosure=enclosure),
        root_made=record,
        warnings=(*warnings, *_warnings(record, made)),
    )


@dataclass(frozen=True, kw_only=True)
class _Made:
    """A directory that is a whole root."""

    path: Path
    is_shared: bool
    """Whether others use it too, so that nothing may be written."""
    copied: Copied | None
    """None where nothing had to be copied."""


def _provide(prepared: Prepared, enclosure: Enclosure, watcher: _Watcher) -> _Made:
    can_share = prepared.images is not None or len(enclosure.layers) == 1
    has_volume = any(mount.kind is MountKind.VOLUME for mount in enclosure.mounts)
    if enclosure.read_only and can_share and not has_volume:
        shared = _find_shared(prepared, enclosure, watcher)
        if _has_places(shared.path, enclosure):
            return shared
    path = Path(enclosure.scratch, _COPY)
    path.mkdir(mode=0o755)
    return _Made(path=path, is_shared=False, copied=_fill(path, enclosure, watcher))


def _find_shared(prepared: Prepared, enclosure: Enclosure, watcher: _Watcher) -> _Made:
    layers = [Path(layer) for layer in enclosure.layers]
    if prepared.images is None:
        return _Made(path=layers[0], is_shared=True, copied=None)
    from sandbox.image.flat import provide_flat
    from sandbox.image.store import ImageStore

    copied: list[Copied] = []

    def fill(tree: Path) -> None:
        copied.append(_fill(tree, enclosure, watcher))
        _make_places(tree, enclosure)

    path = provide_flat(ImageStore(prepared.images), layers, fill, watcher.wait)
    return _Made(path=path, is_shared=True, copied=copied[0] if copied else None)


def _fill(target: Path, enclosure: Enclosure, watcher: _Watcher) -> Copied:
    """Copy the layers, as root of a user namespace where files may have ids that are lent."""
    layers = [Path(layer) for layer in enclosure.layers]
    ids = enclosure.ids
    if ids is None or ids.is_single:
        return copy_merged(layers, target, userxattr=enclosure.userxattr, step=watcher.step)
    heard: list[bytes] = []

    def work(tell: Tell) -> None:
        told = _Teller(tell)
        try:
            copied = copy_merged(layers, target, userxattr=enclosure.userxattr, step=told.step)
        except OSError as exc:
            tell(json.dumps([exc.errno, exc.strerror]).encode())
        else:
            tell(json.dumps(vars(copied)).encode())

    def hear(message: bytes) -> None:
        heard[:] = [message]
        state = json.loads(message)
        if isinstance(state, dict):
            watcher.step(Copied(**state))

    if not as_lent(ids, work, hear) or not heard:
        raise StoreError("the process that copies the root file system was killed")
    state = json.loads(heard[0])
    if isinstance(state, list):
        raise OSError(*state)
    return Copied(**state)


class _Watcher:
    """Shows how far a copy is, and ends it when nobody wants it any more."""

    def __init__(self, around: Surroundings) -> None:
        self._tell = around.on_copy
        self._stop_fd = around.stop_fd
        self._next_ns = time.monotonic_ns() + _PAUSE_NS

    def step(self, copied: Copied) -> None:
        now = time.monotonic_ns()
        if now < self._next_ns:
            return
        self._next_ns = now + _PAUSE_NS
        refuse_if_stopped()
        if self._stop_fd is not None and select.select([self._stop_fd], [], [], 0)[0]:
            raise SandboxError("nobody wants the run any more")
        if self._tell is not None:
            self._tell(copied.entries, copied.size_bytes)

    def wait(self) -> None:
        time.sleep(_PAUSE_NS / 1e9)
        self.step(Copied())

    def end(self) -> None:
        if self._tell is not None:
            self._tell(None, 0)


class _Teller:
    """Passes on how far a copy is, now and then."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._next_ns = 0

    def step(self, copied: Copied) -> None:
        now = time.monotonic_ns()
        if now >= self._next_ns:
            self._next_ns = now + _PAUSE_NS
            self._tell(json.dumps(vars(copied)).encode())


# Places


def _make_places(tree: Path, enclosure: Enclosure) -> None:
    """Make what any run mounts something on: a root that is only read has to have it."""
    fd = os.open(tree, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for place in _OWN_DIRECTORIES:
            os.close(find_place(fd, place, directory=True))
        for target, _ in enclosure.files:
            os.close(find_place(fd, os.fsencode(target), directory=False))
    finally:
        os.close(fd)


def _has_places(tree: Path, enclosure: Enclosure) -> bool:
    """Return whether there is a place for every mount, and to start at."""
    paths = [
        *_OWN_DIRECTORIES,
        *(os.fsencode(target) for target, _ in enclosure.files),
        *(os.fsencode(mount.target) for mount in enclosure.mounts),
        os.fsencode(enclosure.workdir),
    ]
    fd = os.open(tree, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for path in paths:
            os.close(open_in(fd, path, os.O_PATH))
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _warnings(record: RootMade, made: _Made) -> list[RunWarning]:
    copied = made.copied
    if copied is None:
        return []
    size, took = format_size(record.size_bytes), format_duration(record.wall_ns)
    told = [
        RunWarning(
            code="root_copied",
            text=f"the root file system was copied ({size} in {record.entries} entries, "
            f"{took}): {record.reason}",
            hint=None if made.is_shared else "with --read-only all runs of an image share one copy",
        )
    ]
    lost = [
        f"{count} {what}"
        for count, what in (
            (copied.unreadable, "entries that you may not read or make"),
            (copied.foreign, "owners and attributes"),
        )
        if count
    ]
    if lost:
        text = f"the copy of the root file system lacks {' and '.join(lost)}"
        told.append(RunWarning(code="root_incomplete", text=text))
    return told
