"""Whose the files of a layer are in the image, where the store's owner cannot give them away.

A plain user's store has files of that user alone. Beside each tree there whose files are not all
root's a file says whose they are; `lend` has it come true where ids are lent to the user.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

LENT = "lent"
"""In a store: what gives files to these (see `lend`)."""
OWNERS = "owners.json"
"""Beside the tree; absent if all is root's."""

Owners = Mapping[bytes, tuple[int, int]]
"""uid and gid by the real path in the tree, of what is not root's."""

_NOBODY: Owners = {}


def write_owners(directory: Path, owners: Owners) -> None:
    """Note whose the files of the tree in `directory` are.

    Raises:
        OSError: it cannot be written.
    """
    if not owners:
        return
    document = {os.fsdecode(path): owner for path, owner in owners.items()}
    with (directory / OWNERS).open("x", encoding="ascii") as file:
        json.dump(document, file)


def read_owners(tree: Path) -> Owners:
    """Return whose the files of a tree are that are not root's.

    Raises:
        OSError: the note cannot be read.
    """
    path = tree.parent / OWNERS
    try:
        found = path.stat()
    except FileNotFoundError:
        return _NOBODY
    return _read(path, found.st_ino, found.st_mtime_ns)


@lru_cache(maxsize=256)
def _read(path: Path, _inode: int, _mtime_ns: int) -> Owners:
    document = json.loads(path.read_bytes())
    return {os.fsencode(name): (owner[0], owner[1]) for name, owner in document.items()}
