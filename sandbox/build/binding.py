"""RUN --mount=type=bind: files of the context or a stage, shown to one step."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sandbox.build.archive import ArchiveWriter
from sandbox.build.commands import Give
from sandbox.build.copying import Copying
from sandbox.build.state import ImageState
from sandbox.errors import SpecError
from sandbox.image.dockerfile.selection import View
from sandbox.image.dockerfile.syntax import Copy, Mount
from sandbox.image.dockerfile.tree import Context
from sandbox.image.layer import unpack_layer
from sandbox.image.unpack import Bounds

_NAME = "shown"


def selected(mount: Mount, view: View[Any]) -> Copying:
    """Return what a mount shows, as if it were copied.

    Raises:
        SandboxError: there is no such file.
    """
    copy = Copy(line=0, source="", sources=(mount.source or "/",), destination=f"/{_NAME}")
    empty = ImageState({}, (), (), "")
    is_context = isinstance(view.tree, Context)
    return Copying(copy, view, empty, now_sec=0, keeps_owner=not is_context)


def take_tree(mount: Mount, view: View[Any], path: Path, give: Give) -> Path:
    """Return where the files of a mount are: a copy below `path`, that the step may write to.

    Of a context that hides nothing the directory itself is shown, if the step may only read. Files
    of a stage are given to their owners, but not the top, which may have to be moved.

    Raises:
        SandboxError: there is no such file, or it cannot be read.
        OSError: it cannot be copied.
    """
    tree = view.tree
    entry = tree.find(os.fsencode(mount.source or "/"))
    if entry is None:
        raise SpecError(
            f"`{mount.source}` is not in {view.what}", hint="`source=` is meant from the top of it"
        )
    if isinstance(tree, Context) and mount.read_only and not view.ignored and entry.is_directory:
        return tree.root / os.fsdecode(entry.path)
    path.mkdir(mode=0o700)
    archive = path / "archive"
    with archive.open("xb") as file:
        writer = ArchiveWriter(file)
        selected(mount, view).write(writer)
        writer.finish()
    with archive.open("rb") as file:
        unpacked, _ = unpack_layer(file, path / "tree", None, Bounds())
    archive.unlink()
    top = os.fsencode(_NAME)
    give(path / "tree", {name: each for name, each in unpacked.owners.items() if name != top})
    return path / "tree" / _NAME
