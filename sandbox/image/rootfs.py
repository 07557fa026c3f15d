"""A directory's files as an archive: the layer of an image made of a plain tree."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_NS_PER_SEC = 1_000_000_000


def write_tree(root: Path, target: Path) -> None:
    """Write all files below `root`, in order, so that equal trees give equal bytes.

    Sockets are left out: they mean nothing without the process that listens.

    Raises:
        OSError: a file cannot be read, or the archive not be written.
    """
    import tarfile

    with tarfile.open(target, "x", format=tarfile.PAX_FORMAT) as archive:
        for path in _walk(root):
            found = path.lstat()
            if stat.S_ISSOCK(found.st_mode):
                continue
            member = archive.gettarinfo(path, str(path.relative_to(root)))
            member.uname = member.gname = ""
            member.mtime = found.st_mtime_ns // _NS_PER_SEC
            member.pax_headers = _attributes(path)
            if member.isreg():
                with path.open("rb") as file:
                    archive.addfile(member, file)
            else:
                archive.addfile(member)


def _attributes(path: Path) -> dict[str, str]:
    return {
        f"SCHILY.xattr.{name}": os.getxattr(path, name, follow_symlinks=False).decode(
            "utf-8", "surrogateescape"
        )
        for name in os.listxattr(path, follow_symlinks=False)
    }


def _walk(root: Path) -> list[Path]:
    """Return the paths of the tree, each directory before what is in it."""
    found = [root]
    for directory, inner, files in os.walk(root, onerror=_raise):
        found += [Path(directory, name) for name in [*inner, *files]]
    return sorted(found, key=os.fsencode)


def _raise(error: OSError) -> None:
    raise error
