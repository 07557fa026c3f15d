"""Where COPY and ADD put each entry, by docker's rules, and what says whether it is the same again.

A directory stands for what is in it; a link that is named is followed within the tree, a link that
is found in a directory is copied as it is. A file goes to the destination itself, unless that ends
with a slash or is a directory.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from sandbox.image.dockerfile.globs import clean_path, path_patterns
from sandbox.image.dockerfile.selection import Source, View, is_directory_name
from sandbox.image.dockerfile.syntax import Add, Copy
from sandbox.image.dockerfile.tree import Entry, Tree
from sandbox.image.dockerfile.walk import Filters, Walk
from sandbox.records.light import dataclass

E = TypeVar("E", bound=Entry)


@dataclass(frozen=True, kw_only=True)
class Item(Generic[E]):
    """One entry and its place."""

    entry: E
    destination: bytes
    """Absolute in the image, without a slash at its end; links on the way are not followed yet."""
    is_named: bool
    """Whether the Dockerfile names it, and not only a directory above: ADD unpacks archives."""
    is_inside: bool
    """Whether a directory was given for it: a link of its own name there is replaced, where one
    that is given itself is followed."""


def place(
    instruction: Copy | Add,
    view: View[E],
    sources: Sequence[Source[E]],
    destination: str,
    is_directory: Callable[[bytes], bool],
) -> Iterator[Item[E]]:
    """Yield every entry that is copied and its place, directories before what is in them.

    With `--parents` the destination itself is not among them: it is a new directory, or is there.

    Args:
        instruction: The expanded COPY or ADD.
        view: The tree.
        sources: What `select` returned.
        destination: Absolute; whether it ends with a slash is looked at.
        is_directory: Whether an absolute path of the image is one already.

    Raises:
        ImageError: the tree cannot be read.
    """
    excluded = path_patterns(instruction.excludes)
    top = os.fsencode("/" + clean_path(destination).removeprefix("."))
    into = is_directory_name(destination)
    for source in sources:
        if not source.entry.is_directory:
            if not any(map(excluded.matches, map(os.fsdecode, (source.name, source.entry.path)))):
                inside = into or is_directory(top)
                target = _join(top, source.name) if inside else top
                yield Item(entry=source.entry, destination=target, is_named=True, is_inside=inside)
            continue
        if source.includes is None:
            yield Item(entry=source.entry, destination=top, is_named=True, is_inside=False)
        filters = Filters(ignored=view.ignored, excluded=excluded, included=source.includes)
        for entry, relative in Walk(view.tree, filters).entries(source.entry):
            target = _join(top, relative)
            yield Item(entry=entry, destination=target, is_named=False, is_inside=True)


def _join(directory: bytes, name: bytes) -> bytes:
    if not directory or not name:
        return directory or name
    return directory + name if directory == b"/" else directory + b"/" + name


def content_digest(view: View[E], items: Iterable[Item[E]], *, owners: bool = False) -> str:
    """Return what says whether two builds copy the same: for the key of the cache.

    Counted are places, types, permissions, links and bytes, not times; names of whoever owns a
    file only if they are kept.

    Args:
        view: The tree.
        items: What `place` yields, in its order.
        owners: Whether uid and gid are kept, as of another stage's files.

    Raises:
        ImageError: a file cannot be read.
    """
    total = hashlib.sha256()
    for item in items:
        found = item.entry.found
        kind = stat.S_IFMT(found.st_mode)
        facts: list[object] = [kind, stat.S_IMODE(found.st_mode), item.is_named]
        if owners:
            facts += item.entry.owner
        parts = [item.destination, repr(facts).encode(), _substance(view.tree, item.entry)]
        for part in parts:
            total.update(len(part).to_bytes(8, "big"))
            total.update(part)
    return total.hexdigest()


def _substance(tree: Tree[E], entry: E) -> bytes:
    """Return what an entry holds: a file's digest, where a link leads, which device it is."""
    if entry.is_link:
        return tree.read_link(entry)
    if stat.S_ISREG(entry.found.st_mode):
        with os.fdopen(tree.open(entry), "rb", buffering=0) as file:
            return hashlib.file_digest(file, "sha256").digest()
    return str(entry.found.st_rdev).encode()
