"""What builds leave in a store beside images: steps that were done, and what apt and pip fetched.

```text
<images>/builds/<key>.json    a step that ended well: its layer, and when it was done
<images>/caches/<id>/         what `RUN --mount=type=cache` shows, and what apt and pip fetch
```
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sandbox.image.places import remove_tree
from sandbox.image.store import ImageStore
from sandbox.kernel.namespaces import find_ids
from sandbox.kernel.roots import Roots
from sandbox.kernel.scratch import remove_scratch

BUILDS = "builds"
CACHES = "caches"
WORK = "build"
"""What the names of directories of steps under way begin with."""
_KEPT_SEC = 30 * 24 * 3600


def layers_of_steps(store: ImageStore) -> set[str]:
    """Return the diff_ids of the layers that steps have made; of their blobs they are the digests.

    Those of a builder's stage are no image's, but the next build wants them.
    """
    return {layer for _, layer in _steps(store) if layer is not None}


def _steps(store: ImageStore) -> Iterator[tuple[Path, str | None]]:
    try:
        paths = sorted((store.root / BUILDS).iterdir())
    except FileNotFoundError:
        return
    for path in paths:
        try:
            document: Any = json.loads(path.read_bytes())
            layer = document.get("layer")
        except (OSError, ValueError, AttributeError):
            layer = None
        yield path, layer if isinstance(layer, str) else None


def forget_steps(store: ImageStore, layers: set[str], *, every: bool) -> None:
    """Forget the steps whose layers are not among `layers`, and old ones that have made none.

    Raises:
        OSError: one cannot be removed.
    """
    oldest = time.time() - _KEPT_SEC
    for path, layer in _steps(store):
        is_wanted = layer in layers if layer is not None else path.lstat().st_mtime > oldest
        if every or not is_wanted:
            path.unlink(missing_ok=True)


def open_work(path: Path) -> int:
    """Make the directory of a step under way; it is ours while the descriptor is open.

    Raises:
        OSError: it cannot be made.
    """
    new = path.with_name(f"new-{path.name}")  # nobody may find it before it is held
    new.mkdir(mode=0o700)
    fd = os.open(new, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(fd, fcntl.LOCK_EX)
    new.rename(path)
    return fd


def remove_abandoned(store: ImageStore) -> tuple[Path, ...]:
    """Remove what killed builds have left of their steps, and return what that was.

    Raises:
        OSError: something cannot be removed.
    """
    removed = []
    for path in sorted((store.root / "work").glob(f"{WORK}-*")):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue  # removed meanwhile
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_lent(path)
            removed.append(path)
        except BlockingIOError:
            continue  # its build goes on
        finally:
            os.close(fd)
    return tuple(removed)


def remove_lent(path: Path) -> None:
    """Remove a directory in which a run has written, perhaps by ids that are lent to us.

    Raises:
        OSError: it cannot be removed.
    """
    if os.geteuid() != 0 and path.is_dir() and not path.is_symlink():
        remove_scratch(path, find_ids(os.geteuid(), os.getegid(), roots=Roots()))
    if path.exists() or path.is_symlink():
        remove_tree(path)
