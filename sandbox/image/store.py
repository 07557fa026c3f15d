"""Images on this machine: where they are kept, how one is found and held.

```text
<root>/                            $SANDBOX_HOME/images, 0700
    blobs/sha256/<hex>             what was fetched, by the digest of its bytes
    layers/<hex>/tree              a layer unpacked once, by its diff_id; shared by its images
    layers/<hex>/layer.json        written before the directory gets its name
    layers/<hex>/owners.json       whose files are not root's, in a plain user's store
    lent/<hex>/<map>/tree          these files for their owners, where ids are lent to the user
    mends/<hex>/tree               what a stack of layers needs on top (see `mend`)
    flats/<hex>/tree               all layers of a stack in one, where they cannot be stacked
    records/<hex>.json             one image, by its id: the digest of its configuration
    references.json                which name means which image
    builds/ caches/                what builds leave (see `built`)
    work/                          what is under way; garbage once nobody holds `lock`
    lock                           shared while something is added, exclusive to collect garbage
    locks/                         one lock a digest; these files are never removed
```

Everything is written under a name of its own and renamed when it is whole, so whoever finds a name
finds all of it, whatever was killed meanwhile.

**A layer's tree is in overlay form**, to be stacked with overlayfs without a copy. A whiteout is a
character device 0:0, which any user may make (Linux 5.8). An opaque directory has the extended
attribute `trusted.overlay.opaque=y` where the store's owner may set it (root), else
`user.overlay.opaque=y`; then `StoredImage.userxattr` is true and the mount needs the option
`userxattr`. As root owners are the image's own. Otherwise all files belong to the store's owner,
who is 0 within a user namespace, and `owners` and `lend` know whose they are in the image. Device
nodes are never there.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sandbox.errors import ImageError, SpecError
from sandbox.image.config import ImageConfig, load_object, parse_config
from sandbox.image.reference import parse_reference
from sandbox.records.light import dataclass

SCHEMA = 1
TREE = "tree"
LAYER_META = "layer.json"

_SHORTEST_ID = 4
_SHORT_ID = 12
_OPEN_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, kw_only=True)
class LayerRecord:
    """One layer of an image."""

    diff_id: str
    """Digest of the uncompressed archive."""
    digest: str
    """Digest of the blob."""
    size_bytes: int
    """Of the blob."""
    media_type: str


@dataclass(frozen=True, kw_only=True)
class StoredImage:
    """An image that can be run as it is."""

    id: str
    """Digest of the configuration, `sha256:…`, as docker's image ID."""
    references: tuple[str, ...]
    """Full names that mean this image, in order; none when it was loaded without a name."""
    config: ImageConfig
    layers: tuple[Path, ...]
    """Directories in overlay form, bottom first, each once; never empty."""
    userxattr: bool
    """Whether opaque directories are marked in `user.`, not in `trusted.`."""
    manifest_digest: str
    """Of the manifest it was first made from."""
    size_bytes: int
    """Of the files of all its layers, unpacked; layers shared with other images count too."""
    blobs: tuple[LayerRecord, ...]
    """What its layers were unpacked from, bottom first."""
    added_utc_ns: int

    @property
    def short_id(self) -> str:
        """Return the id as it is shown: 12 digits."""
        return self.id.partition(":")[2][:_SHORT_ID]


class ImageStore:
    """The images below one directory, of one user. All state is on the disk."""

    def __init__(self, root: Path) -> None:
        """Use `root`; it is made when something is first added."""
        self.root = root

    # --- where things are -------------------------------------------------------------------------

    def blob_path(self, digest: str) -> Path:
        """Return where a blob is or would be. The digest has been checked for its form."""
        algorithm, _, hexadecimal = digest.partition(":")
        return self.root / "blobs" / algorithm / hexadecimal

    def layer_path(self, diff_id: str) -> Path:
        """Return where a layer is or would be: the directory that holds its tree."""
        return self.root / "layers" / diff_id.partition(":")[2]

    def record_path(self, image_id: str) -> Path:
        """Return where an image's record is or would be."""
        return self.root / "records" / (image_id.partition(":")[2] + ".json")

    # --- finding ----------------------------------------------------------------------------------

    def find(self, reference_or_id: str, *, is_wanted: bool = True) -> StoredImage:
        """Return the image of this name, or of this id or its beginning.

        Nothing is fetched. To use its layers, `hold` it.

        Args:
            reference_or_id: What it is called.
            is_wanted: Whether one that is not there is to be fetched: the hint says how.

        Raises:
            ImageError: there is none, several ids begin so, or a part of it is gone.
        """
        image_id = self._resolve(reference_or_id)
        if image_id is None:
            shown = "`sandbox image ls` shows what is here"
            raise ImageError(
                f"there is no image `{reference_or_id}` on this machine",
                hint=f"{_how_to_get(reference_or_id)}; {shown}" if is_wanted else shown,
            )
        return self.read(image_id)

    def _resolve(self, text: str) -> str | None:
        references = self.read_references()
        try:
            entry = references.get(str(parse_reference(text)))
        except SpecError:
            entry = None
        if entry is not None:
            return entry["id"]
        prefix = text.removeprefix("sha256:")
        if len(prefix) < _SHORTEST_ID or prefix.strip("0123456789abcdef"):
            return None
        found = [image_id for image_id in self.list_ids() if image_id[7:].startswith(prefix)]
        if len(found) > 1:
            raise ImageError(
                f"the ids of {len(found)} images begin with `{prefix}`", hint="write more of it"
            )
        return found[0] if found else None

    def list_ids(self) -> list[str]:
        """Return the ids of all images, in order."""
        try:
            names = os.listdir(self.root / "records")  # noqa: PTH208 - names are all we want
        except FileNotFoundError:
            return []
        return sorted("sha256:" + name[:-5] for name in names if name.endswith(".json"))

    def list_images(self) -> tuple[StoredImage, ...]:
        """Return all images that are whole, the last added first."""
        images = []
        for image_id in self.list_ids():
            try:
                images.append(self.read(image_id))
            except ImageError:
                continue  # removed meanwhile, or damaged: `find` says so when it is asked for
        return tuple(sorted(images, key=lambda image: -image.added_utc_ns))

    def read(self, image_id: str) -> StoredImage:
        """Return the image of this full id.

        Raises:
            ImageError: its record, its configuration or a layer is not there.
        """
        try:
            document = self.read_record(image_id)
            config = parse_config(self.blob_path(image_id).read_bytes())
        except OSError as exc:
            raise ImageError(f"cannot read image {image_id[7:19]}: {exc.strerror}") from exc
        layers = [self.layer_path(layer["diff_id"]) / TREE for layer in document["layers"]]
        if document["mend"]:
            layers.append(self.root / "mends" / document["mend"] / TREE)
        for layer in layers:
            if not layer.is_dir():
                raise ImageError(
                    f"image {image_id[7:19]} lacks a layer: {layer.parent} is gone",
                    hint="pull or load it again",
                )
        names = self.read_references().items()
        return StoredImage(
            id=image_id,
            references=tuple(name for name, entry in names if entry["id"] == image_id),
            config=config,
            layers=each_once(layers),
            userxattr=document["userxattr"],
            manifest_digest=document["manifest"],
            size_bytes=document["size_bytes"],
            blobs=tuple(LayerRecord(**layer) for layer in document["layers"]),
            added_utc_ns=document["added_utc_ns"],
        )

    def read_record(self, image_id: str) -> dict[str, Any]:
        """Return what `write_record` has written.

        Raises:
            ImageError: it is damaged, or of another version.
            OSError: it is not there.
        """
        path = self.record_path(image_id)
        return _checked(load_object(path.read_bytes(), str(path)), path)

    def read_references(self) -> dict[str, dict[str, str]]:
        """Return the entries `{"id": …, "digest": …}` by full name, in order.

        Raises:
            ImageError: the file is damaged, or of another version.
        """
        path = self.root / "references.json"
        try:
            document = _checked(load_object(path.read_bytes(), str(path)), path)
        except FileNotFoundError:
            return {}
        entries: dict[str, dict[str, str]] = document["references"]
        return dict(sorted(entries.items()))

    # --- holding ----------------------------------------------------------------------------------

    def hold(self, image: StoredImage) -> int:
        """Return a CLOEXEC descriptor that keeps the image on the disk while it is open.

        Whoever mounts its layers holds it as long as the mount lives: `rm` and `prune` refuse or
        pass over an image that is held. Many may hold it at once. To pass it to a helper, let
        that inherit the descriptor; closing the last copy lets go, and so does any process's end.

        Raises:
            ImageError: it was removed after it was found.
        """
        fd = self._open_lock(f"image-{image.id[7:]}")
        fcntl.flock(fd, fcntl.LOCK_SH)
        if not self.record_path(image.id).exists():
            os.close(fd)
            raise ImageError(f"image {image.short_id} was removed meanwhile")
        return fd

    def _open_lock(self, name: str) -> int:
        directory = self.root / "locks"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(directory / name, _OPEN_LOCK, 0o600)

    @contextmanager
    def locked(self, name: str, *, shared: bool = False, wait: bool = True) -> Iterator[None]:
        """Hold one of the store's locks for as long as a block takes.

        Raises:
            BlockingIOError: somebody else holds it, and we are not to wait.
        """
        fd = self._open_lock(name)
        try:
            mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
            fcntl.flock(fd, mode if wait else mode | fcntl.LOCK_NB)
            yield
        finally:
            os.close(fd)

    # --- changing ---------------------------------------------------------------------------------

    def write_record(self, image_id: str, document: dict[str, Any]) -> None:
        """Make an image known, once all of its parts are there."""
        write_whole(self.record_path(image_id), _encode(document))

    def tag(self, name: str, image_id: str, digest: str) -> None:
        """Let a full name mean this image from now on; `digest` is that of the manifest."""
        with self.locked("references"):
            references = self.read_references()
            references[name] = {"id": image_id, "digest": digest}
            self.write_references(references)

    def write_references(self, references: dict[str, dict[str, str]]) -> None:
        """Replace all names; the caller holds the lock `references`."""
        write_whole(self.root / "references.json", _encode({"references": references}))


def each_once(layers: Iterable[Path]) -> tuple[Path, ...]:
    """Drop all but the topmost of equal layers: overlayfs refuses to stack one on itself.

    The tree stays the same: whatever the lower one adds or hides, the upper one does once more.
    """
    ordered = list(layers)
    return tuple(reversed(list(dict.fromkeys(reversed(ordered)))))


def _encode(document: dict[str, Any]) -> bytes:
    return json.dumps({"schema": SCHEMA, **document}, indent=1).encode() + b"\n"


def _checked(document: dict[str, Any], path: Path) -> dict[str, Any]:
    if document.get("schema") != SCHEMA:
        raise ImageError(
            f"{path} was written by another version of sandbox",
            hint="use that version, or remove the directory and pull the images again",
        )
    return document


def write_whole(path: Path, data: bytes) -> None:
    """Put `data` into a file in one step, and see that it is on the disk.

    Raises:
        OSError: it cannot be written; what was there is untouched.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(data)
            file.flush()
            os.fsync(fd)
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _how_to_get(reference: str) -> str:
    try:
        parse_reference(reference)
    except SpecError as exc:
        return f"no image can be called so: {exc.hint}"
    return f"`sandbox image pull {reference}` fetches it"
