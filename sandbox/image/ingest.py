"""What is added to the store: blobs, layers, images; each whole or not at all.

A layer's tree is not forced to the disk file by file. An image's record is written only after its
file system was flushed; so a layer that some record names is whole even after a power cut, and one
that no record names is believed only until the machine is started again.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from sandbox.errors import ImageError
from sandbox.image.cancel import Flag
from sandbox.image.config import ImageConfig
from sandbox.image.layer import unpack_layer
from sandbox.image.mend import Layer, mend
from sandbox.image.owners import write_owners
from sandbox.image.places import remove_tree, uses_userxattr
from sandbox.image.store import LAYER_META, TREE, ImageStore, write_whole
from sandbox.image.stream import write_all
from sandbox.image.unpack import Bounds
from sandbox.kernel.libc import syncfs
from sandbox.records.light import dataclass

COLLECT = "collect"
"""The lock that is held, shared, while something is added."""

PARTIAL = "partial-"
"""What the names of downloads begin with, which can be gone on with after an interruption."""

_PIECE = 1 << 20
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, kw_only=True)
class LayerMeta:
    """What is known of an unpacked layer."""

    diff_id: str
    digest: str
    """Of the blob it was unpacked from."""
    blob_size_bytes: int
    media_type: str
    entries: int
    size_bytes: int
    implied: tuple[bytes, ...]
    borrowed: tuple[tuple[bytes, bytes], ...]
    whiteouts: tuple[bytes, ...]
    devices: int
    xattrs: int
    owned: int
    """Entries of others than root that could not be given away; `owners` has whose."""
    userxattr: bool
    boot_id: str


class Ingest:
    """Additions to one store, while nobody may collect its garbage."""

    def __init__(self, store: ImageStore, bounds: Bounds) -> None:
        """Use `adding` to get one."""
        self.store = store
        self.bounds = bounds
        self.flag = Flag()
        """Set by whoever wants all threads to stop."""
        self._work = store.root / "work"

    def new_path(self, purpose: str) -> Path:
        """Return a path for something under way; what is left there is garbage."""
        return self._work / f"{purpose}-{os.getpid()}-{os.urandom(6).hex()}"

    def partial_path(self, digest: str) -> Path:
        """Return where a download of this blob is or would be; its lock is the caller's."""
        return self._work / (PARTIAL + digest.partition(":")[2])

    # --- blobs ------------------------------------------------------------------------------------

    def has_blob(self, digest: str, size_bytes: int | None = None) -> bool:
        """Return whether a blob is there, verified when it came, and still of this size."""
        try:
            found = self.store.blob_path(digest).stat()
        except FileNotFoundError:
            return False
        return size_bytes is None or found.st_size == size_bytes

    def put_bytes(self, data: bytes) -> str:
        """Add a small blob and return its digest."""
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if not self.has_blob(digest):
            write_whole(self.store.blob_path(digest), data)
        return digest

    def put_checked(self, data: bytes, digest: str) -> None:
        """Add a small blob under the digest that it was found to have."""
        if not self.has_blob(digest):
            write_whole(self.store.blob_path(digest), data)

    def copy_blob(self, file: BinaryIO, digest: str | None, size: int | None) -> tuple[str, int]:
        """Copy a blob from a file, verify it, and return its digest and size.

        Raises:
            ImageError: it has not the digest or the size that it should have.
            OSError: it cannot be read or written.
        """
        path = self.new_path("blob")
        found = hashlib.new("sha256" if digest is None else digest.partition(":")[0])
        length = 0
        try:
            with path.open("xb", buffering=0) as target:
                while data := file.read(_PIECE):
                    self.flag.check()
                    found.update(data)
                    length += len(data)
                    write_all(target.fileno(), data)
            name = f"{found.name}:{found.hexdigest()}"
            check_blob(name, length, digest, size)
            self.adopt_blob(path, name)
        finally:
            path.unlink(missing_ok=True)
        return name, length

    def adopt_blob(self, path: Path, digest: str) -> None:
        """Move a file whose digest was verified to where blobs belong."""
        target = self.store.blob_path(digest)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.rename(target)

    # --- layers -----------------------------------------------------------------------------------

    def find_layer(self, diff_id: str) -> LayerMeta | None:
        """Return what is known of a layer if it is unpacked and can be believed."""
        path = self.store.layer_path(diff_id) / LAYER_META
        try:
            meta = _decode(json.loads(path.read_bytes()))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (KeyError, TypeError, ValueError, AttributeError):
            return None  # damaged, or unpacked by a version that noted less
        if meta.userxattr != uses_userxattr():
            raise ImageError(
                f"{self.store.root} was filled by somebody with other privileges",
                hint="set SANDBOX_HOME to another directory",
            )
        if not self.has_blob(meta.digest, meta.blob_size_bytes):
            return None  # `save` could not write it
        if meta.boot_id != boot_id() and not self._is_recorded(diff_id):
            return None
        return meta

    def _is_recorded(self, digest: str) -> bool:
        """Return whether an image has this layer, by its diff_id or by that of its blob."""
        return any(
            digest in {layer["diff_id"], layer["digest"]}
            for image_id in self.store.list_ids()
            for layer in self.store.read_record(image_id)["layers"]
        )

    def add_layer(self, diff_id: str | None, digest: str, media_type: str) -> LayerMeta:
        """Unpack a blob of the store unless its layer is there; others who want it wait.

        Raises:
            ImageError: the layer is damaged, hostile, too large or another one.
        """
        if diff_id is None:
            return self._unpack(None, digest, media_type)
        with self.store.locked(f"layer-{diff_id.partition(':')[2]}"):
            return self.find_layer(diff_id) or self._unpack(diff_id, digest, media_type)

    def _unpack(self, diff_id: str | None, digest: str, media_type: str) -> LayerMeta:
        blob = self.store.blob_path(digest)
        work = self.new_path("layer")
        work.mkdir(mode=0o700)
        try:
            with blob.open("rb") as file:
                checked = cast("BinaryIO", _Checked(file, self.flag))
                unpacked, found = unpack_layer(checked, work / TREE, diff_id, self.bounds)
            known = dict(unpacked.__dict__)
            owners = known.pop("owners")
            write_owners(work, owners)
            meta = LayerMeta(
                diff_id=found,
                digest=digest,
                blob_size_bytes=blob.stat().st_size,
                media_type=media_type,
                userxattr=uses_userxattr(),
                boot_id=boot_id(),
                owned=len(owners),
                **known,
            )
            write_whole(work / LAYER_META, _encode(meta))
            self._publish(work, self.store.layer_path(found))
        except ImageError as exc:
            is_ours = isinstance(exc.__cause__, OSError)  # a full disk is no fault of the blob
            if not is_ours and not self._is_recorded(digest):
                blob.unlink(missing_ok=True)  # or nobody could ever get a better one
            raise
        finally:
            if work.exists():
                remove_tree(work)
        return meta

    def adopt_layer(self, tree: Path, meta: LayerMeta) -> LayerMeta:
        """Move a tree in overlay form to where the layer belongs that its blob, which is here, is.

        Raises:
            OSError: it is on another file system.
        """
        with self.store.locked(f"layer-{meta.diff_id.partition(':')[2]}"):
            known = self.find_layer(meta.diff_id)
            if known is not None:
                return known
            work = self.new_path("layer")
            work.mkdir(mode=0o700)
            try:
                tree.rename(work / TREE)
                write_whole(work / LAYER_META, _encode(meta))
                self._publish(work, self.store.layer_path(meta.diff_id))
            finally:
                if work.exists():
                    remove_tree(work)
        return meta

    def _publish(self, work: Path, target: Path) -> None:
        target.parent.mkdir(mode=0o700, exist_ok=True)
        if target.exists():  # not to be believed any more, or added by somebody meanwhile
            target.rename(self.new_path("old"))
        work.rename(target)

    # --- images -----------------------------------------------------------------------------------

    def add_image(
        self,
        config_digest: str,
        config: ImageConfig,
        manifest_digest: str,
        layers: Sequence[LayerMeta],
        names: Iterable[str],
    ) -> str:
        """Make an image known of which all blobs and layers are there; return its id.

        Raises:
            ImageError: its layers do not fit together.
        """
        found = tuple(layer.diff_id for layer in layers)
        if found != config.diff_ids:
            raise ImageError("the image's layers are not those that its configuration lists")
        stack = [
            Layer(
                tree=self.store.layer_path(layer.diff_id) / TREE,
                implied=layer.implied,
                borrowed=layer.borrowed,
                whiteouts=layer.whiteouts,
            )
            for layer in layers
        ]
        mended = self._mend(found, stack)
        _flush(self.store.root)
        self.store.write_record(
            config_digest,
            {
                "manifest": manifest_digest,
                "layers": [
                    {
                        "diff_id": layer.diff_id,
                        "digest": layer.digest,
                        "size_bytes": layer.blob_size_bytes,
                        "media_type": layer.media_type,
                    }
                    for layer in layers
                ],
                "mend": mended,
                "userxattr": uses_userxattr(),
                "size_bytes": sum(layer.size_bytes for layer in layers),
                "devices": sum(layer.devices for layer in layers),
                "xattrs": sum(layer.xattrs for layer in layers),
                "added_utc_ns": time.time_ns(),
            },
        )
        for name in names:
            self.store.tag(name, config_digest, manifest_digest)
        return config_digest

    def _mend(self, diff_ids: Sequence[str], stack: Sequence[Layer]) -> str | None:
        """Return the name of what this stack needs on top, if it needs something."""
        name = hashlib.sha256(" ".join(diff_ids).encode()).hexdigest()
        target = self.store.root / "mends" / name
        work = self.new_path("mend")
        work.mkdir(mode=0o700)
        try:
            if not mend(stack, work / TREE):
                return None
            with self.store.locked(f"mend-{name}"):
                self._publish(work, target)
        finally:
            if work.exists():
                remove_tree(work)
        return name


class _Checked:
    """A file that can be read until somebody wants to stop."""

    def __init__(self, file: BinaryIO, flag: Flag) -> None:
        self._file = file
        self._flag = flag

    def read(self, size: int) -> bytes:
        self._flag.check()
        return self._file.read(size)


@contextmanager
def adding(store: ImageStore, bounds: Bounds | None = None) -> Iterator[Ingest]:
    """Let a block add to a store; it is made if it is not there.

    Raises:
        OSError: the store cannot be made or written.
    """
    for directory in (store.root, store.root / "work"):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with store.locked(COLLECT, shared=True):
        yield Ingest(store, bounds or Bounds())


def check_blob(digest: str, size: int, wanted: str | None, wanted_size: int | None) -> None:
    """Compare what a blob is with what it should be.

    Raises:
        ImageError: it differs.
    """
    if wanted_size is not None and size != wanted_size:
        raise ImageError(f"blob {wanted} has {size} bytes, not {wanted_size}")
    if wanted is not None and digest != wanted:
        raise ImageError(
            f"blob {wanted} is damaged: what came has the digest {digest}",
            hint="try again; if it stays so, the image is damaged where it comes from",
        )


def boot_id() -> str:
    """Return what names the time since the machine was started."""
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return ""  # a sandbox without it: layers are believed as long as it stays so


def _flush(root: Path) -> None:
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        syncfs(fd)
    finally:
        os.close(fd)


def _encode(meta: LayerMeta) -> bytes:
    document: dict[str, Any] = dict(meta.__dict__)
    document["implied"] = [os.fsdecode(path) for path in meta.implied]
    document["whiteouts"] = [os.fsdecode(path) for path in meta.whiteouts]
    document["borrowed"] = [[os.fsdecode(path) for path in pair] for pair in meta.borrowed]
    return json.dumps(document, indent=1).encode() + b"\n"


def _decode(document: dict[str, Any]) -> LayerMeta:
    implied = tuple(os.fsencode(path) for path in document.pop("implied"))
    whiteouts = tuple(os.fsencode(path) for path in document.pop("whiteouts"))
    borrowed = tuple(
        (os.fsencode(name), os.fsencode(target)) for name, target in document.pop("borrowed")
    )
    return LayerMeta(implied=implied, borrowed=borrowed, whiteouts=whiteouts, **document)
