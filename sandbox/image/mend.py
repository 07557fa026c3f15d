"""What a stack of layers needs on top, so that it looks as if all had been unpacked in one place.

A layer may have files in a directory without saying how that is, and hard links to a file of a
lower layer. Unpacked alone, for all images that share it, it has to invent the directory and to
leave out the link. Its whiteouts would be seen where no other layer has the directory. What the
stack as a whole knows better goes into one small layer of its own.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from sandbox.errors import ImageError
from sandbox.image.owners import read_owners, write_owners
from sandbox.image.places import is_whiteout, keeps_owners, opaque_name
from sandbox.image.tar_headers import show
from sandbox.records.light import dataclass

_INVENTED_MODE = 0o755


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer of a stack."""

    tree: Path
    implied: tuple[bytes, ...]
    borrowed: tuple[tuple[bytes, bytes], ...]
    whiteouts: tuple[bytes, ...]


def mend(stack: Sequence[Layer], target: Path) -> bool:
    """Make `target` if the stack, bottom first, needs something on top; return whether it does.

    Raises:
        ImageError: a hard link's target is in no lower layer.
        OSError: something cannot be read or written.
    """
    work = _Mend(stack, target)
    for level, layer in enumerate(stack):
        for name, source in layer.borrowed:
            work.link(level, name, source)
    for path in sorted({path for layer in stack[1:] for path in layer.implied}):
        if work.is_invented(path):
            work.make_directory(path)
    for path in sorted({path for layer in stack for path in layer.whiteouts}):
        if work.is_alone(path):
            work.make_directory(path)
    if not stack:
        work.make_directory(b"")
    work.finish()
    return target.exists()


class _Mend:
    """The layer on top, while it is made."""

    def __init__(self, stack: Sequence[Layer], target: Path) -> None:
        self._stack = stack
        self._implied = [frozenset(layer.implied) for layer in stack]
        self._target = target
        self._made: dict[bytes, os.stat_result | None] = {}
        self._owners: dict[bytes, tuple[int, int]] = {}

    def is_invented(self, path: bytes) -> bool:
        """Return whether the topmost directory of this path is not the one that says how it is."""
        levels = self._directories(path, len(self._stack))
        return bool(levels) and path in self._implied[levels[0]] and self._saying(path) is not None

    def is_alone(self, path: bytes) -> bool:
        """Return whether one layer alone has this directory.

        Overlayfs shows it as it is then: its whiteouts would be listed as broken files.
        """
        return len(self._directories(path, len(self._stack))) == 1

    def _directories(self, path: bytes, top: int) -> list[int]:
        """Return the levels below `top` whose directory at `path` is seen, the topmost first."""
        levels = []
        for level in reversed(range(top)):
            found, hides = _look(self._tree(level), path)
            if found is not None and stat.S_ISDIR(found.st_mode):
                levels.append(level)
            elif found is not None:
                break
            if hides:
                break
        return levels

    def _saying(self, path: bytes) -> int | None:
        levels = self._directories(path, len(self._stack))
        return next((level for level in levels if path not in self._implied[level]), None)

    def _tree(self, level: int) -> Path:
        return self._stack[level].tree

    def make_directory(self, path: bytes) -> None:
        """Make a directory, and those above it, as the stack says that they are."""
        if path in self._made:
            return
        if path:
            self.make_directory(path.rpartition(b"/")[0])
        target = _place(self._target, path)
        target.mkdir(0o700)
        levels = self._directories(path, len(self._stack))
        level = self._saying(path)
        level = level if level is not None else (levels[0] if levels else None)
        if level is None:
            self._made[path] = None
            return
        source = _place(self._tree(level), path)
        _copy_xattrs(source, target)
        self._made[path] = os.lstat(source)
        self._note_owner(path, self._tree(level), source)

    def _note_owner(self, path: bytes, tree: Path, source: Path) -> None:
        inner = b"" if source == tree else os.fsencode(source.relative_to(tree))
        owner = read_owners(tree).get(inner)
        if owner is not None:
            self._owners[path] = owner

    def link(self, level: int, name: bytes, source: bytes) -> None:
        """Put a hard link of a layer, and the file of a lower one that it is to share, on top."""
        if not any(_look(self._tree(above), name)[1] for above in range(level + 1, self._top())):
            if self._find(name, self._top(), lowest=level + 1) is not None:
                return  # a higher layer has something else there
            place = self._find(source, level)
            if place is None or stat.S_ISDIR(os.lstat(place).st_mode):
                raise ImageError(
                    f"the layer's `{show(name)}` is a hard link to `{show(source)}`, "
                    "which no layer has"
                )
            self._copy(place, name, source)

    def _top(self) -> int:
        return len(self._stack)

    def _find(self, path: bytes, top: int, lowest: int = 0) -> Path | None:
        for level in reversed(range(lowest, top)):
            found, hides = _look(self._tree(level), path)
            if found is not None:
                return _place(self._tree(level), path)
            if hides:
                return None
        return None

    def _copy(self, place: Path, name: bytes, source: bytes) -> None:
        self.make_directory(name.rpartition(b"/")[0])
        target = _place(self._target, name)
        twin = _place(self._target, source)
        if self._find(source, self._top()) != place:
            twin = target  # a higher layer has another file there
        else:
            self.make_directory(source.rpartition(b"/")[0])
        if not os.path.lexists(twin):
            _copy_file(place, twin)
        tree = next(layer.tree for layer in self._stack if place.is_relative_to(layer.tree))
        for path in {name, os.fsencode(twin.relative_to(self._target))}:
            self._note_owner(path, tree, place)
        if twin != target:
            target.unlink(missing_ok=True)
            os.link(twin, target, follow_symlinks=False)

    def finish(self) -> None:
        """Give the directories their owners, times and modes, the deepest first."""
        for path, found in sorted(self._made.items(), reverse=True):
            target = _place(self._target, path)
            if found is None:
                target.chmod(_INVENTED_MODE)
            else:
                _dress(target, found)
        write_owners(self._target.parent, self._owners)


def _place(tree: Path, path: bytes) -> Path:
    return tree / os.fsdecode(path)


def _look(tree: Path, path: bytes) -> tuple[os.stat_result | None, bool]:
    """Return what a layer has at a path, and whether lower layers are hidden there."""
    hides = False
    place = tree
    found: os.stat_result | None = os.lstat(tree)
    for part in path.split(b"/") if path else ():
        hides = hides or _is_opaque(place)
        place = _place(place, part)
        try:
            found = os.lstat(place)
        except FileNotFoundError:
            return None, hides
        if is_whiteout(found):
            return None, True
        if not stat.S_ISDIR(found.st_mode):
            return (found if place == _place(tree, path) else None), True
    return found, hides or _is_opaque(place)


def _is_opaque(directory: Path) -> bool:
    try:
        return os.getxattr(directory, opaque_name(), follow_symlinks=False) == b"y"
    except OSError:
        return False


def copy_content(source: Path, target: Path, found: os.stat_result) -> None:
    """Make the like of a link, a file or a pipe; its owner, mode and times are the caller's to set.

    Raises:
        OSError: it cannot be read or made.
    """
    if stat.S_ISLNK(found.st_mode):
        target.symlink_to(source.readlink())
    elif stat.S_ISREG(found.st_mode):
        shutil.copyfile(source, target, follow_symlinks=False)
    else:
        os.mkfifo(target)


def _copy_file(source: Path, target: Path) -> None:
    found = os.lstat(source)
    copy_content(source, target, found)
    _copy_xattrs(source, target)
    _dress(target, found)


def _copy_xattrs(source: Path, target: Path) -> None:
    for name in os.listxattr(source, follow_symlinks=False):
        if name != opaque_name():
            value = os.getxattr(source, name, follow_symlinks=False)
            with suppress(PermissionError):
                os.setxattr(target, name, value, follow_symlinks=False)


def _dress(target: Path, found: os.stat_result) -> None:
    if keeps_owners():
        os.chown(target, found.st_uid, found.st_gid, follow_symlinks=False)
    if not stat.S_ISLNK(found.st_mode):
        target.chmod(stat.S_IMODE(found.st_mode))
    times = (found.st_mtime_ns, found.st_mtime_ns)
    os.utime(target, ns=times, follow_symlinks=False)
