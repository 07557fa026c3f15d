"""What was built before: which step, by its key, has made which layer.

A failure is never kept. The layers stay as long as an entry names them; `image prune` forgets the
entries whose layers no image needs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from sandbox.image.built import BUILDS, CACHES
from sandbox.image.ingest import Ingest, LayerMeta
from sandbox.image.store import ImageStore, write_whole
from sandbox.records.light import dataclass


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step that was done before."""

    created: str
    layer: LayerMeta | None
    """None for one that only changes the configuration."""


class BuildCache:
    """The entries of one store."""

    def __init__(self, ingest: Ingest) -> None:
        """Use the store that `ingest` adds to."""
        self._ingest = ingest
        self._root = ingest.store.root

    def find(self, key: str) -> Step | None:
        """Return a step that was done before, if its layer is there and can be believed."""
        path = self._path(key)
        try:
            document = json.loads(path.read_bytes())
            created, diff_id = document["created"], document["layer"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        layer = None if diff_id is None else self._ingest.find_layer(diff_id)
        if diff_id is not None and layer is None:
            return None
        return Step(created=created, layer=layer)

    def keep(self, key: str, step: Step) -> None:
        """Remember a step that has ended well."""
        diff_id = None if step.layer is None else step.layer.diff_id
        document: dict[str, Any] = {"created": step.created, "layer": diff_id}
        write_whole(self._path(key), json.dumps(document).encode())

    def find_twin(self, key: str) -> str | None:
        """Return the key that stands for the same, found by another way."""
        try:
            twin = json.loads(self._path(key).read_bytes())["same"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return twin if isinstance(twin, str) else None

    def keep_twin(self, key: str, twin: str) -> None:
        """Remember that a key, which is quickly made, stands for the same as another."""
        write_whole(self._path(key), json.dumps({"same": twin}).encode())

    def _path(self, key: str) -> Path:
        return self._root / BUILDS / f"{key}.json"


def cache_directory(store: ImageStore, name: str) -> Path:
    """Return the directory of a cache mount; it is made if it is not there."""
    path = cache_path(store, name)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(PermissionError):  # it was given to somebody else, who may do as they like
        path.chmod(0o755)
    return path


def cache_path(store: ImageStore, name: str) -> Path:
    """Return where a cache mount is or would be."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:40]
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
    return store.root / CACHES / f"{readable}-{digest}"
