"""Files of a plain user's store given to those whose they are in the image, by ids that are lent.

A tree of the store is the user's alone, so that it can be read without a user namespace. On top of
each that has files of others goes a second one, with these files only:

```text
<root>/lent/<hex>/<map>/tree    by the name of the tree below it, and the ids that the user has
```
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from sandbox.errors import ImageError
from sandbox.image.ingest import COLLECT
from sandbox.image.mend import copy_content
from sandbox.image.owners import LENT, Owners, read_owners
from sandbox.image.places import opaque_name
from sandbox.image.store import TREE, ImageStore
from sandbox.kernel.lent import Tell, as_lent
from sandbox.kernel.scratch import remove_scratch
from sandbox.records.enclosure import IdMap
from sandbox.records.light import dataclass

_MAP_DIGITS = 16


@dataclass(frozen=True, kw_only=True)
class Lent:
    """A stack in which files belong to whom the image says."""

    trees: tuple[Path, ...]
    """Bottom first."""
    beyond: tuple[tuple[str, int, int], ...]
    """Path, uid and gid of what stays root's: its ids are none of the user's."""


def lend(store: ImageStore, trees: Iterable[Path], ids: IdMap) -> Lent:
    """Return a stack with what gives the files of a plain user's store to their owners.

    Args:
        store: Where the trees are; they are held meanwhile.
        trees: Bottom first.
        ids: What the user has; more than one.

    Raises:
        ImageError: a tree cannot be made.
        OSError: likewise.
    """
    found: list[Path] = []
    beyond: list[tuple[str, int, int]] = []
    for tree in trees:
        found.append(tree)
        owners = read_owners(tree)
        within = {path: owner for path, owner in owners.items() if ids.holds(*owner)}
        beyond += [
            (os.fsdecode(path), *owner) for path, owner in owners.items() if path not in within
        ]
        if within:
            found.append(_provide(store, tree, within, ids))
    return Lent(trees=tuple(found), beyond=tuple(beyond))


def _provide(store: ImageStore, tree: Path, owners: Owners, ids: IdMap) -> Path:
    name = tree.parent.name
    mapped = hashlib.sha256(repr((ids.uids, ids.gids)).encode()).hexdigest()[:_MAP_DIGITS]
    place = store.root / LENT / name / mapped
    if place.is_dir():
        return place / TREE
    with store.locked(COLLECT, shared=True), store.locked(f"lent-{name}"):
        if not place.is_dir():
            work = store.root / "work" / f"lent-{os.getpid()}-{os.urandom(6).hex()}"
            work.mkdir(mode=0o700, parents=True)
            try:
                run_as_lent(ids, lambda: _Gift(tree, work / TREE, owners).make())
                place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                work.rename(place)
            finally:
                remove_scratch(work, ids)
    return place / TREE


def give(tree: Path, owners: Owners, ids: IdMap) -> None:
    """Give files of a tree to their owners where they are; of ids that are not ours, none.

    Raises:
        ImageError: one cannot be given away.
    """

    def work() -> None:
        for path, owner in owners.items():
            if ids.holds(*owner):
                place = tree / os.fsdecode(path)
                _chown(place, owner, os.lstat(place))

    if owners:
        run_as_lent(ids, work)


def run_as_lent(ids: IdMap, work: Callable[[], None]) -> None:
    """Do some work as root of a user namespace that has these ids.

    Raises:
        ImageError: what the work raised, or it was killed.
    """
    heard: list[bytes] = []

    def tell_failures(tell: Tell) -> None:
        try:
            work()
        except (ImageError, OSError) as exc:
            tell(str(exc).encode(errors="surrogateescape"))

    is_done = as_lent(ids, tell_failures, heard.append)
    if not is_done or heard:
        why = b"".join(heard).decode(errors="replace")
        raise ImageError(f"cannot give files to their owners: {why or 'out of memory?'}")


class _Gift:
    """Files of one tree, copied for their owners; made as root of a user namespace."""

    def __init__(self, tree: Path, target: Path, owners: Owners) -> None:
        self._tree = tree
        self._target = target
        self._owners = owners
        self._directories: dict[bytes, os.stat_result] = {}
        self._twins: dict[int, Path] = {}

    def make(self) -> None:
        """Make the tree, its directories' times and modes last."""
        self._directory(b"")
        for path in sorted(self._owners):
            with suppress(FileNotFoundError):  # left out of the tree: a device
                found = os.lstat(self._source(path))
                if stat.S_ISDIR(found.st_mode):
                    self._directory(path)
                else:
                    self._directory(path.rpartition(b"/")[0])
                    self._file(path, found)
        for path, found in sorted(self._directories.items(), reverse=True):
            self._dress(path, found)

    def _source(self, path: bytes) -> Path:
        return self._tree / os.fsdecode(path)

    def _place(self, path: bytes) -> Path:
        return self._target / os.fsdecode(path)

    def _directory(self, path: bytes) -> None:
        if path in self._directories:
            return
        if path:
            self._directory(path.rpartition(b"/")[0])
        self._place(path).mkdir(0o700)
        self._directories[path] = os.lstat(self._source(path))

    def _file(self, path: bytes, found: os.stat_result) -> None:
        source, place = self._source(path), self._place(path)
        twin = self._twins.setdefault(found.st_ino, place)
        if twin != place:
            os.link(twin, place, follow_symlinks=False)
            return
        copy_content(source, place, found)
        self._dress(path, found)

    def _dress(self, path: bytes, found: os.stat_result) -> None:
        place = self._place(path)
        _chown(place, self._owners.get(path, (0, 0)), found)
        for name, value in _xattrs(self._source(path)):
            os.setxattr(place, name, value, follow_symlinks=False)
        os.utime(place, ns=(found.st_mtime_ns, found.st_mtime_ns), follow_symlinks=False)


def _chown(place: Path, owner: tuple[int, int], found: os.stat_result) -> None:
    os.chown(place, *owner, follow_symlinks=False)
    if not stat.S_ISLNK(found.st_mode):
        place.chmod(stat.S_IMODE(found.st_mode))  # after its owner, who clears the set-id bits


def _xattrs(source: Path) -> Iterator[tuple[str, bytes]]:
    with suppress(OSError):  # a file system that has none
        for name in os.listxattr(source, follow_symlinks=False):
            if name != opaque_name():  # it would hide the very tree below
                yield name, os.getxattr(source, name, follow_symlinks=False)
