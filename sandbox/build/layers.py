"""New layers in the store: from an archive, or from what a run has written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from sandbox.build.archive import ArchiveWriter, Judge, Written, write_changes
from sandbox.build.stack import Stack
from sandbox.errors import ImageError
from sandbox.image.ingest import Ingest, LayerMeta, boot_id
from sandbox.image.manifest import OCI_LAYER
from sandbox.image.places import keeps_owners, uses_userxattr
from sandbox.records.enclosure import IdMap
from sandbox.records.light import dataclass

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def add_archive(
    ingest: Ingest, write: Callable[[ArchiveWriter], object], latest_sec: int | None
) -> LayerMeta:
    """Add the layer of the archive that `write` writes.

    Args:
        ingest: Where to.
        write: Called once; it does not finish the archive.
        latest_sec: What no file may be younger than.

    Raises:
        ImageError: it holds what no layer can.
        OSError: something cannot be read or written.
    """
    path = ingest.new_path("archive")
    try:
        with path.open("xb") as file:
            writer = ArchiveWriter(file, latest_sec)
            write(writer)
            digest = writer.finish()
        ingest.adopt_blob(path, digest)
    finally:
        path.unlink(missing_ok=True)
    return ingest.add_layer(digest, digest, OCI_LAYER)


@dataclass(frozen=True, kw_only=True)
class Whose:
    """Whose files are that a run has written without being root of the machine."""

    ids: IdMap
    """What there was inside."""
    own: tuple[int, int]
    """Who the run was."""
    below: Stack
    """What it has changed."""

    def judge(self, path: bytes, owner: tuple[int, int], is_old: bool) -> tuple[int, int]:  # noqa: FBT001 - as `Judge` has it
        """Return whose an entry is in the image.

        Who could not be anybody inside keeps what was only changed; where there was one user only
        all that is new is that user's.
        """
        if is_old:
            node = self.below.find(path, follow=False)
            if node is not None and not self.ids.holds(*node.owner):
                return node.owner
        elif self.ids.is_single:
            return self.own
        return owner


def add_written(
    ingest: Ingest, upper: Path, latest_sec: int | None, whose: Whose | None = None
) -> LayerMeta:
    """Add the layer of what a run has written; `upper` is then gone, or to be removed.

    Where owners can be kept the tree itself becomes the layer. Otherwise it has files of ids that
    are lent to us: they are read as root of a user namespace that has these, and unpacked anew.

    Args:
        ingest: Where to.
        upper: In overlay form.
        latest_sec: What no file may be younger than.
        whose: None for root.

    Raises:
        ImageError: it holds what no layer can.
        OSError: something cannot be read or written.
    """
    if whose is not None:
        return _add_lent(ingest, upper, latest_sec, whose)
    # The tree would have other times than its archive, or the owners of a user namespace.
    if latest_sec is not None or not keeps_owners():
        return add_archive(ingest, lambda writer: _write(upper, writer, strip=False), latest_sec)
    path = ingest.new_path("archive")
    try:
        with path.open("xb") as file:
            writer = ArchiveWriter(file)
            written = _write(upper, writer, strip=True)
            digest = writer.finish()
        size = path.stat().st_size
        ingest.adopt_blob(path, digest)
    finally:
        path.unlink(missing_ok=True)
    meta = LayerMeta(
        diff_id=digest,
        digest=digest,
        blob_size_bytes=size,
        media_type=OCI_LAYER,
        entries=written.entries,
        size_bytes=written.size_bytes,
        implied=(),
        borrowed=(),
        whiteouts=written.whiteouts,
        devices=written.devices,
        xattrs=0,
        owned=0,
        userxattr=uses_userxattr(),
        boot_id=boot_id(),
    )
    return ingest.adopt_layer(upper, meta)


def _write(
    upper: Path, writer: ArchiveWriter, *, strip: bool, judge: Judge | None = None
) -> Written:
    fd = os.open(upper, _DIRECTORY)
    try:
        return write_changes(fd, writer, strip=strip, judge=judge)
    finally:
        os.close(fd)


def _add_lent(ingest: Ingest, upper: Path, latest_sec: int | None, whose: Whose) -> LayerMeta:
    from sandbox.kernel.lent import Tell, as_lent

    path = ingest.new_path("archive")
    heard: list[bytes] = []
    try:
        with path.open("xb") as file:

            def work(tell: Tell) -> None:
                try:
                    writer = ArchiveWriter(file, latest_sec)
                    _write(upper, writer, strip=False, judge=whose.judge)
                    tell(writer.finish().encode())
                except (ImageError, OSError) as exc:
                    tell(b"!" + str(exc).encode(errors="surrogateescape"))

            is_done = as_lent(whose.ids, work, heard.append)
        told = b"".join(heard)
        if not is_done or told[:1] in {b"", b"!"}:
            why = told[1:].decode(errors="surrogateescape")
            raise ImageError(f"what the step has written cannot be read: {why or 'out of memory?'}")
        digest = told.decode()
        ingest.adopt_blob(path, digest)
    finally:
        path.unlink(missing_ok=True)
    return ingest.add_layer(digest, digest, OCI_LAYER)
