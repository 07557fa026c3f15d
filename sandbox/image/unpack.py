"""The entries of one layer, put into a directory of its own in overlay form."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sandbox.errors import ImageError
from sandbox.image import tar
from sandbox.image.owners import Owners
from sandbox.image.places import (
    Tree,
    is_whiteout,
    keeps_owners,
    remove_entry,
    split,
)
from sandbox.image.tar_headers import show
from sandbox.records.light import dataclass

_WHITEOUT = b".wh."
_OPAQUE = b".wh..wh..opq"
_WHITEOUT_OWN = b".wh..wh."
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_IMPLIED_MODE = 0o755  # as docker makes them
_OVERLAY = (b"trusted.overlay.", b"user.overlay.")
# What only means something to the machine an image was made on.
_HOST_XATTRS = (b"security.selinux", b"system.nfs4_acl", b"com.apple.")


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """How much a layer may be; more is taken for an attack."""

    size_bytes: int = 64 << 30
    """Of all its files, holes included."""
    entries: int = 2_000_000
    ratio: int = 200
    """Of unpacked to compressed bytes, beyond the first gigabyte."""
    depth: int = 256
    """Of directories in each other."""


@dataclass(frozen=True, kw_only=True)
class Unpacked:
    """What came of a layer."""

    entries: int
    size_bytes: int
    """Of its files."""
    implied: tuple[bytes, ...]
    """Directories that the layer has files in without saying how they are."""
    borrowed: tuple[tuple[bytes, bytes], ...]
    """Hard links, with their targets, to what only a lower layer can have."""
    whiteouts: tuple[bytes, ...]
    """Directories that have whiteouts in them."""
    devices: int
    """Device nodes that were left out."""
    xattrs: int
    """Extended attributes that could not be set, or mean nothing here."""
    owners: Owners
    """Whose files are that are not root's, where they could not be given away."""


class Unpacker:
    """One layer on its way to the disk."""

    def __init__(self, fd: int, bounds: Bounds) -> None:
        """Fill the empty directory `fd`, which nobody else may reach."""
        self._tree = Tree(fd, depth=bounds.depth)
        self._bounds = bounds
        self._own = keeps_owners()
        self._directories: dict[bytes, tar.Entry] = {}
        self._whiteouts: list[tuple[bytes, bytes]] = []
        self._borrowed: list[tuple[bytes, bytes]] = []
        self._owners: dict[bytes, tuple[int, int]] = {}
        self._entries = self._size = self._devices = self._xattrs = 0

    def unpack(self, reader: tar.TarReader) -> Unpacked:
        """Put all entries into the directory.

        Raises:
            ImageError: the layer is damaged, hostile or too large.
            OSError: something cannot be written.
        """
        try:
            for entry in reader:
                self._count(entry)
                with _naming(entry):
                    self._put(entry, reader)
            self._finish()
        finally:
            self._tree.close()
        return Unpacked(
            entries=self._entries,
            size_bytes=self._size,
            implied=tuple(sorted(self._tree.made | self._unsaid_top())),
            borrowed=tuple(self._borrowed),
            whiteouts=tuple(sorted({parent for parent, _ in self._whiteouts})),
            devices=self._devices,
            xattrs=self._xattrs,
            owners=self._owners,
        )

    def _unsaid_top(self) -> set[bytes]:
        return set() if b"" in self._directories else {b""}

    def _count(self, entry: tar.Entry) -> None:
        self._entries += 1
        self._size += entry.size
        if self._entries > self._bounds.entries:
            raise ImageError(f"the layer has more than {self._bounds.entries} entries")
        if self._size > self._bounds.size_bytes:
            raise ImageError(
                f"the layer's files are larger than {self._bounds.size_bytes} bytes",
                hint="`--max-size` allows more, for an image that you trust",
            )

    def _put(self, entry: tar.Entry, reader: tar.TarReader) -> None:
        parts = split(entry.name)
        if not parts:
            if entry.kind != tar.DIRECTORY:
                raise ImageError("its own top is no directory")
            self._directories[b""] = entry
            self._note_owner(b"", entry)
            return
        name = parts.pop()
        if name.startswith(_WHITEOUT):
            self._hide(parts, name)
            return
        if entry.kind in {tar.CHARACTER, tar.BLOCK_DEVICE}:
            self._leave_out(entry)
            return
        if len(parts) >= self._bounds.depth:
            raise ImageError(f"directories are more than {self._bounds.depth} deep")
        fd, parent = self._tree.directory(parts, make=True)
        path = _join(parent, name)
        if entry.kind == tar.FILE:
            self._put_file(fd, name, path, entry, reader)
        elif entry.kind == tar.HARD_LINK:
            self._put_hard_link(parts, name, path, entry)
        else:
            put = {
                tar.DIRECTORY: self._put_directory,
                tar.LINK: self._put_link,
                tar.FIFO: self._put_fifo,
            }
            put[entry.kind](fd, name, path, entry)

    def _leave_out(self, entry: tar.Entry) -> None:
        if entry.kind == tar.CHARACTER and entry.device == (0, 0):
            raise ImageError("a device 0:0 would hide a file of a lower layer in secret")
        self._devices += 1

    # --- whiteouts --------------------------------------------------------------------------------

    def _hide(self, parts: list[bytes], name: bytes) -> None:
        """Whiteouts act on lower layers only, so what this layer itself has stays."""
        if name == _OPAQUE:
            fd, path = self._tree.directory(parts, make=True)
            self._tree.hide_lower(fd, path)
            return
        if name.startswith(_WHITEOUT_OWN):
            return  # AUFS's own notes
        hidden = name[len(_WHITEOUT) :]
        if hidden in {b"", b".", b".."}:
            raise ImageError("a whiteout of no name")
        fd, parent = self._tree.directory(parts, make=True)
        try:
            found = os.lstat(hidden, dir_fd=fd)
        except FileNotFoundError:
            os.mknod(hidden, stat.S_IFCHR, 0, dir_fd=fd)
            self._whiteouts.append((parent, hidden))
            return
        if stat.S_ISDIR(found.st_mode):
            self._make_opaque(fd, hidden, _join(parent, hidden))

    def _make_opaque(self, fd: int, name: bytes, path: bytes) -> None:
        inner = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY, dir_fd=fd)
        try:
            self._tree.hide_lower(inner, path)
        finally:
            os.close(inner)

    # --- entries ----------------------------------------------------------------------------------

    def _put_directory(self, fd: int, name: bytes, path: bytes, entry: tar.Entry) -> None:
        try:
            os.mkdir(name, 0o700, dir_fd=fd)
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(name, dir_fd=fd).st_mode):
                self._clear(fd, name, path)
                os.mkdir(name, 0o700, dir_fd=fd)
                # What was there, or was hidden there, must not show through from below.
                self._make_opaque(fd, name, path)
        self._directories[path] = entry
        self._note_owner(path, entry)
        self._tree.made.discard(path)

    def _put_file(
        self, fd: int, name: bytes, path: bytes, entry: tar.Entry, reader: tar.TarReader
    ) -> None:
        try:
            file = os.open(name, _NEW_FILE, 0o600, dir_fd=fd)
        except FileExistsError:
            self._clear(fd, name, path)
            file = os.open(name, _NEW_FILE, 0o600, dir_fd=fd)
        try:
            if entry.stored or entry.size:
                reader.copy(entry, file)
            self._note_owner(path, entry)
            if self._own and (entry.uid or entry.gid):
                os.fchown(file, entry.uid, entry.gid)
            os.fchmod(file, entry.mode)  # after its owner, who would clear the set-id bits
            if entry.xattrs:
                self._set_xattrs(file, entry)
            os.utime(file, ns=(entry.mtime_ns, entry.mtime_ns))
        finally:
            os.close(file)

    def _put_link(self, fd: int, name: bytes, path: bytes, entry: tar.Entry) -> None:
        if not entry.link:
            raise ImageError("a link to nothing")
        try:
            os.symlink(entry.link, name, dir_fd=fd)
        except FileExistsError:
            self._clear(fd, name, path)
            os.symlink(entry.link, name, dir_fd=fd)
        self._note_owner(path, entry)
        if self._own and (entry.uid or entry.gid):
            os.chown(name, entry.uid, entry.gid, dir_fd=fd, follow_symlinks=False)
        if entry.xattrs:
            self._set_xattrs(b"/proc/self/fd/%d/%s" % (fd, name), entry)
        times = (entry.mtime_ns, entry.mtime_ns)
        os.utime(name, ns=times, dir_fd=fd, follow_symlinks=False)

    def _put_fifo(self, fd: int, name: bytes, path: bytes, entry: tar.Entry) -> None:
        try:
            os.mkfifo(name, 0o600, dir_fd=fd)
        except FileExistsError:
            self._clear(fd, name, path)
            os.mkfifo(name, 0o600, dir_fd=fd)
        self._note_owner(path, entry)
        if self._own:
            os.chown(name, entry.uid, entry.gid, dir_fd=fd, follow_symlinks=False)
        os.chmod(name, entry.mode, dir_fd=fd)
        if entry.xattrs:
            self._set_xattrs(b"/proc/self/fd/%d/%s" % (fd, name), entry)
        times = (entry.mtime_ns, entry.mtime_ns)
        os.utime(name, ns=times, dir_fd=fd, follow_symlinks=False)

    def _put_hard_link(
        self, parts: list[bytes], name: bytes, path: bytes, entry: tar.Entry
    ) -> None:
        target = split(entry.link)
        if not target:
            raise ImageError("a hard link to a directory")
        last = target.pop()
        try:
            source, source_parent = self._tree.directory(target, make=False)
            source = os.dup(source)  # the next call may close it
        except FileNotFoundError:
            self._borrow(parts, name, path, b"/".join([*target, last]))
            return
        try:
            found = os.lstat(last, dir_fd=source)
            if stat.S_ISDIR(found.st_mode):
                raise ImageError("a hard link to a directory")
            if _join(source_parent, last) == path:
                raise ImageError("a hard link to itself")
            if is_whiteout(found):
                raise ImageError("a hard link to a file that the layer removes")
            fd, _ = self._tree.directory(parts, make=True)
            self._link(source, last, fd, name, path)
            owner = self._owners.get(_join(source_parent, last))
            if owner is not None:
                self._owners[path] = owner
        except FileNotFoundError:
            self._borrow(parts, name, path, b"/".join([*target, last]))
        finally:
            os.close(source)

    def _link(self, source: int, last: bytes, fd: int, name: bytes, path: bytes) -> None:
        try:
            os.link(last, name, src_dir_fd=source, dst_dir_fd=fd, follow_symlinks=False)
        except FileExistsError:
            self._clear(fd, name, path)
            os.link(last, name, src_dir_fd=source, dst_dir_fd=fd, follow_symlinks=False)

    def _borrow(self, parts: list[bytes], name: bytes, path: bytes, target: bytes) -> None:
        """Remember a link to a lower layer's file; the stack is mended when it is known."""
        fd, _ = self._tree.directory(parts, make=True)
        with suppress(FileNotFoundError):
            os.lstat(name, dir_fd=fd)
            self._clear(fd, name, path)
        self._borrowed.append((path, target))

    def _clear(self, fd: int, name: bytes, path: bytes) -> None:
        """Remove what is in an entry's way, and forget what was known of it."""
        remove_entry(fd, name)
        self._tree.forget()
        inside = path + b"/"
        for key in [key for key in self._directories if (key + b"/").startswith(inside)]:
            del self._directories[key]
        for known in (self._tree.made, self._tree.opaque):
            known -= {key for key in known if (key + b"/").startswith(inside)}
        self._borrowed = [pair for pair in self._borrowed if pair[0] != path]
        for key in [key for key in self._owners if (key + b"/").startswith(inside)]:
            del self._owners[key]

    # --- attributes -------------------------------------------------------------------------------

    def _note_owner(self, path: bytes, entry: tar.Entry) -> None:
        if not self._own and (entry.uid or entry.gid):
            self._owners[path] = (entry.uid, entry.gid)
        else:  # an entry may come twice
            self._owners.pop(path, None)

    def _set_xattrs(self, target: int | bytes, entry: tar.Entry) -> None:
        for name, value in entry.xattrs.items():
            if name.startswith(_OVERLAY):
                raise ImageError(f"the attribute {show(name)} is overlayfs's own")
            if name.startswith(_HOST_XATTRS):
                self._xattrs += 1
                continue
            try:
                if isinstance(target, int):
                    os.setxattr(target, name, value)
                else:
                    os.setxattr(target, name, value, follow_symlinks=False)
            except OSError as exc:
                if exc.errno not in {errno.EPERM, errno.ENOTSUP, errno.EINVAL, errno.EACCES}:
                    raise
                self._xattrs += 1

    def _finish(self) -> None:
        """Set what filling a directory would change or forbid, the deepest first."""
        self._drop_needless_whiteouts()
        self._tree.forget()
        paths = {*self._directories, *self._tree.made, b""}
        for path in sorted(paths, key=_depth, reverse=True):
            fd, _ = self._tree.directory(split(path), make=False)
            if path in self._directories:
                self._finish_directory(fd, self._directories[path])
            else:
                os.utime(fd, ns=(0, 0))
                os.fchmod(fd, _IMPLIED_MODE)

    def _finish_directory(self, fd: int, entry: tar.Entry) -> None:
        if self._own and (entry.uid or entry.gid):
            os.fchown(fd, entry.uid, entry.gid)
        if entry.xattrs:
            self._set_xattrs(fd, entry)
        os.utime(fd, ns=(entry.mtime_ns, entry.mtime_ns))
        os.fchmod(fd, entry.mode)

    def _drop_needless_whiteouts(self) -> None:
        """Remove whiteouts from opaque directories, which would list them as broken files."""
        for parent, name in self._whiteouts:
            if parent in self._tree.opaque:
                fd, _ = self._tree.directory(split(parent), make=False)
                if is_whiteout(os.lstat(name, dir_fd=fd)):
                    os.unlink(name, dir_fd=fd)


def _join(parent: bytes, name: bytes) -> bytes:
    return parent + b"/" + name if parent else name


def _depth(path: bytes) -> int:
    return path.count(b"/") + 1 if path else 0


@contextmanager
def _naming(entry: tar.Entry) -> Iterator[None]:
    """Tell which entry it was."""
    try:
        yield
    except ImageError as exc:
        raise ImageError(f"the layer's `{show(entry.name)}`: {exc}", hint=exc.hint) from exc
    except OSError as exc:
        raise ImageError(
            f"cannot unpack the layer's `{show(entry.name)}`: {exc.strerror}",
            hint="free some space" if exc.errno == errno.ENOSPC else None,
        ) from exc
