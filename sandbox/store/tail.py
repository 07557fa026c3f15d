"""The newest samples of a run, also of a long one: only the end of its file is read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from sandbox.errors import StoreError
from sandbox.records.sample import Block, Table
from sandbox.store import format as layout
from sandbox.store.files import SAMPLES
from sandbox.store.scan import Scanner

_TAIL_BYTES = 1 << 16  # seconds at a hundred samples each; a thousand a second fill it in two
_LONG_TAIL_BYTES = 1 << 21


def newest_blocks(directory: Path) -> list[Block]:
    """Return the last blocks of both tables of a run, oldest first; empty if there are none yet.

    Raises:
        StoreError: they cannot be read.
    """
    try:
        fd = os.open(directory / SAMPLES, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    except OSError as exc:
        raise StoreError(f"cannot read the samples in {directory}: {exc.strerror}") from exc
    try:
        size = os.fstat(fd).st_size
        found: list[Block] = []
        for length in (_TAIL_BYTES, _LONG_TAIL_BYTES):
            found = list(_blocks(fd, size - length))
            if {block.table for block in found} == set(Table) or length >= size:
                break
    except OSError as exc:
        raise StoreError(f"cannot read the samples in {directory}: {exc.strerror}") from exc
    else:
        return found
    finally:
        os.close(fd)


def _blocks(fd: int, start: int) -> Iterator[Block]:
    def read(offset: int, length: int) -> bytes:
        return os.pread(fd, length, offset)

    header = layout.decode_header(read)
    if header is None:
        return
    columns, offset = header[0].columns, max(header[1], start)
    scanner = Scanner(read)
    while (stored := scanner.next_block(offset)) is not None:
        offset = stored.end
        names = columns.get(stored.head.table, ())
        if len(names) == stored.head.columns:
            try:
                yield Block(stored.head.table, names, stored.columns())
            except layout.FormatError:
                continue  # damaged: the next one may be whole
