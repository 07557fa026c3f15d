"""The whole tree of an image in one directory, for where its layers cannot be stacked.

```text
<root>/flats/<hex>/tree     by the names of its layers; only ever read, by any number of runs
```

It goes when no image has these layers any more.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from sandbox.image.ingest import COLLECT
from sandbox.image.places import remove_tree
from sandbox.image.store import TREE, ImageStore
from sandbox.kernel.libc import syncfs


def flat_path(store: ImageStore, layers: Iterable[Path]) -> Path:
    """Return where the tree of a chain of layers is or would be: the directory that holds it."""
    names = "\n".join(f"{layer.parent.parent.name}/{layer.parent.name}" for layer in layers)
    return store.root / "flats" / hashlib.sha256(names.encode()).hexdigest()


def provide_flat(
    store: ImageStore,
    layers: Sequence[Path],
    fill: Callable[[Path], None],
    wait: Callable[[], None],
) -> Path:
    """Return the tree of a chain of layers, made if need be. Who is killed leaves nothing of it.

    Args:
        store: Where it is kept; the image is held meanwhile.
        layers: Bottom first.
        fill: Makes the tree in an empty directory.
        wait: Called again and again while somebody else makes the same one.

    Raises:
        OSError: something cannot be written; and whatever `fill` or `wait` raises.
    """
    place = flat_path(store, layers)
    tree = place / TREE
    with ExitStack() as undo:
        undo.enter_context(store.locked(COLLECT, shared=True))
        while True:
            try:
                undo.enter_context(store.locked(f"flat-{place.name}", wait=False))
                break
            except BlockingIOError:
                wait()
        if tree.is_dir():
            return tree
        work = store.root / "work" / f"flat-{place.name}-{os.getpid()}"
        remove_tree(work) if work.exists() else work.parent.mkdir(exist_ok=True, mode=0o700)
        try:
            work.mkdir(mode=0o700)
            (work / TREE).mkdir(mode=0o755)
            fill(work / TREE)
            fd = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                syncfs(fd)
            finally:
                os.close(fd)
            place.parent.mkdir(exist_ok=True, mode=0o700)
            work.rename(place)
        except BaseException:
            remove_tree(work)
            raise
    return tree
