"""One layer from its blob to a tree: unpacked, verified and written at the same time.

Three threads share the work: one reads and decompresses, one hashes, and the caller's takes the
archive apart. All but the last spend their time where Python lets others run.
"""

from __future__ import annotations

import hashlib
import os
import queue
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from sandbox.errors import ImageError
from sandbox.image.compression import Counter, unpacked_pieces
from sandbox.image.stream import ByteStream
from sandbox.image.tar import TarReader
from sandbox.image.unpack import Bounds, Unpacked, Unpacker

_WAITING = 16  # pieces on their way between two threads
_PAUSE_SEC = 0.0005
_SPARED_BYTES = 1 << 30  # from here on the ratio counts: little data may well be all zeros

_Item = bytes | BaseException | None


class _Pump:
    """Decompresses in a thread and hashes in another, while the caller iterates."""

    def __init__(self, file: BinaryIO, algorithm: str, bounds: Bounds) -> None:
        self._source = Counter(file)
        self._hash = hashlib.new(algorithm)
        self._bounds = bounds
        self._stopped = False
        self._for_caller: queue.Queue[_Item] = queue.Queue(_WAITING)
        self._for_hash: queue.Queue[bytes | None] = queue.Queue(_WAITING)
        self._threads = [
            threading.Thread(target=self._decompress, daemon=True),
            threading.Thread(target=self._digest, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _decompress(self) -> None:
        end: BaseException | None = None
        size = 0
        try:
            for piece in unpacked_pieces(self._source):
                size += len(piece)
                self._check_ratio(size)
                self._for_hash.put(piece)
                self._for_caller.put(piece)
                if self._stopped:
                    break
        except Exception as exc:  # noqa: BLE001 - raised again in the caller's thread
            end = exc
        self._for_hash.put(None)
        self._for_caller.put(end)

    def _check_ratio(self, size: int) -> None:
        if size > _SPARED_BYTES and size > self._bounds.ratio * self._source.bytes_read:
            raise ImageError(
                f"the layer unpacks to more than {self._bounds.ratio} times its size",
                hint="`--max-size` allows it, for an image that you trust",
            )

    def _digest(self) -> None:
        while (piece := self._for_hash.get()) is not None:
            self._hash.update(piece)

    def __iter__(self) -> Iterator[bytes]:
        while (item := self._for_caller.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    def close(self) -> None:
        """Stop both threads, wherever they are."""
        self._stopped = True
        for thread in self._threads:
            while thread.is_alive():
                with suppress(queue.Empty):
                    self._for_caller.get_nowait()  # it may wait for room
                thread.join(_PAUSE_SEC)

    def digest(self) -> str:
        """Return the digest of all that went through."""
        self._threads[1].join()
        return f"{self._hash.name}:{self._hash.hexdigest()}"


def unpack_layer(
    file: BinaryIO, directory: Path, diff_id: str | None, bounds: Bounds
) -> tuple[Unpacked, str]:
    """Unpack a layer into a directory that is made for it.

    Args:
        file: The blob, compressed or not.
        directory: Does not exist yet.
        diff_id: What the uncompressed bytes have to hash to; None to find out.
        bounds: What is too much.

    Returns:
        What was unpacked, and its diff_id.

    Raises:
        ImageError: the layer is cut short, damaged, hostile, too large or not the one that is
            meant. The directory is then to be removed.
        OSError: something cannot be read or written.
    """
    algorithm = "sha256" if diff_id is None else diff_id.partition(":")[0]
    directory.mkdir(mode=0o700)
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    pump = _Pump(file, algorithm, bounds)
    try:
        # What a set-group-id directory above would hand down.
        os.fchown(fd, os.geteuid(), os.getegid())
        os.fchmod(fd, 0o700)
        stream = ByteStream(iter(pump))
        unpacked = Unpacker(fd, bounds).unpack(TarReader(stream, must_end=diff_id is None))
        stream.drain()
        found = pump.digest()
    finally:
        pump.close()
        os.close(fd)
    if diff_id is not None and found != diff_id:
        raise ImageError(
            f"the layer is not the one that is meant: its diff_id is {found}, not {diff_id}",
            hint="the archive or the registry is damaged, or somebody changed the layer",
        )
    return unpacked, found
