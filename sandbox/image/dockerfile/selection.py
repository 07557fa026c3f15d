"""What the sources of COPY and ADD mean in a tree: paths, patterns, what `.dockerignore` hides."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from sandbox.errors import SpecError
from sandbox.image.dockerfile.copies import is_address
from sandbox.image.dockerfile.globs import (
    PathPatterns,
    clean_path,
    has_wildcards,
    match,
    path_patterns,
)
from sandbox.image.dockerfile.syntax import Add, Copy
from sandbox.image.dockerfile.tree import Entry, Tree
from sandbox.image.dockerfile.walk import NOTHING, Filters, Walk
from sandbox.records.light import dataclass

E = TypeVar("E", bound=Entry)


@dataclass(frozen=True, kw_only=True)
class View(Generic[E]):
    """A tree, and what of it is not there for the build."""

    tree: Tree[E]
    what: str = "the build context"
    """For errors."""
    ignored: PathPatterns = NOTHING
    ignored_by: str | None = None
    """The file with these patterns."""


@dataclass(frozen=True, kw_only=True)
class Source(Generic[E]):
    """One entry that a source means."""

    text: str
    """As the Dockerfile has it, expanded."""
    entry: E
    """What it leads to."""
    name: bytes
    """What a file is called in the directory it goes to; with `--parents` a path."""
    includes: PathPatterns | None = None
    """With `--parents`: what of the directory is meant."""


def select(instruction: Copy | Add, view: View[E]) -> tuple[Source[E], ...]:
    """Return what the sources of an expanded COPY or ADD mean; addresses are left out.

    Raises:
        SpecError: one of them means nothing, or several are to become one file. The file and the
            line are for the caller to put before it.
        ImageError: the tree cannot be read.
    """
    parents = isinstance(instruction, Copy) and instruction.parents
    paths = [source for source in instruction.sources if not is_address(source)]
    found: list[Source[E]] = []
    for text in paths:
        found += _with_parents(view, text) if parents else _named(view, text)
    others = len(instruction.sources) - len(paths) + len(instruction.heredocs)
    if not found and not others and not parents:
        shown = ", ".join(f"`{text}`" for text in paths)
        raise SpecError(
            f"no source files were specified: {shown} matches nothing in {view.what}",
            hint="is it misspelled, or named in .dockerignore?",
        )
    keyword = "COPY" if isinstance(instruction, Copy) else "ADD"
    if len(found) + others > 1 and not is_directory_name(instruction.destination) and not parents:
        raise SpecError(
            f"{keyword} of more than one source to `{instruction.destination}`",
            hint="the destination has to be a directory and end with a slash: "
            f"`{instruction.destination}/`",
        )
    return tuple(found)


def is_directory_name(destination: str) -> bool:
    """Return whether a destination has to be a directory by the way it is written."""
    return destination.endswith(("/", "/.", "/..")) or destination in {"", ".", ".."}


def _named(view: View[E], text: str) -> list[Source[E]]:
    """Return what a source means without `--parents`."""
    if not has_wildcards(text):
        path = clean_path(text)
        entry = _find(view, path)
        if entry is None:
            raise _missing(view, text, path)
        return [Source(text=text, entry=entry, name=os.fsencode(path).rpartition(b"/")[2])]
    return [
        Source(text=text, entry=entry, name=path.rpartition(b"/")[2])
        for path, entry in _glob(view, clean_path(text))
    ]


def _missing(view: View[E], text: str, path: str) -> SpecError:
    hint = None
    if view.ignored and view.tree.find(os.fsencode(path)) is not None:
        hint = f"{view.ignored_by} excludes it"
    return SpecError(f"`{text}` is not in {view.what}", hint=hint)


def _find(view: View[E], path: str) -> E | None:
    """Return what a path leads to, if the build is to see both the path and that."""
    entry = view.tree.find(os.fsencode(path))
    if entry is None or not view.ignored:
        return entry
    is_real = entry.path in {os.fsencode(path), b""}
    if not is_real and view.ignored.matches(path):
        return None  # a link on the way that is not there
    return None if _is_hidden(view, entry.path, entry) else entry


def _is_hidden(view: View[E], path: bytes, entry: E) -> bool:
    """Return whether nothing of what is at a path is to be seen."""
    if path in {b"", b"."} or not view.ignored.matches(os.fsdecode(path)):
        return False
    return not (entry.is_directory and view.ignored.takes_back and _has_seen(view, entry))


def _has_seen(view: View[E], directory: E) -> bool:
    """Return whether something below an ignored directory is taken back."""
    walk = Walk(view.tree, Filters(ignored=view.ignored))
    return next(walk.entries(directory), None) is not None


def _glob(view: View[E], pattern: str) -> Iterator[tuple[bytes, E]]:
    """Yield the paths that match, in order, with what they lead to."""
    parts = pattern.split("/")
    count = next(place for place, part in enumerate(parts) if has_wildcards(part))
    top = view.tree.find(os.fsencode("/".join(parts[:count])))
    if top is not None:
        yield from _matches(view, top, os.fsencode("/".join(parts[:count])), parts[count:])


def _matches(
    view: View[E], directory: E, path: bytes, parts: Sequence[str]
) -> Iterator[tuple[bytes, E]]:
    if not directory.is_directory:
        return
    for child in view.tree.children(directory):
        name = child.path.rpartition(b"/")[2]
        if not match(parts[0], os.fsdecode(name)):
            continue
        place = b"/".join(filter(None, (path, name)))
        if len(parts) > 1:
            # As Go walks: a link on the way is not entered.
            yield from _matches(view, child, place, parts[1:])
            continue
        entry = _find(view, os.fsdecode(place))
        if entry is not None:
            yield place, entry
        elif not _is_hidden(view, place, child):
            hint = None if view.tree.find(place) is None else f"{view.ignored_by} excludes that"
            raise SpecError(f"`{os.fsdecode(place)}` is a link that leads to nothing", hint=hint)


def _with_parents(view: View[E], text: str) -> list[Source[E]]:
    """Return what a source means with `--parents`: up to `/./` its directories are not kept."""
    before, pivot, kept = text.partition("/./")
    if not pivot:
        before, kept = "", text
    kept = clean_path(kept)
    includes = None if kept == "." else path_patterns([kept])
    tops: Iterable[tuple[bytes, E]]
    if has_wildcards(before):
        tops = _glob(view, clean_path(before))
    else:
        top = _find(view, clean_path(before))
        if top is None:
            raise _missing(view, text, clean_path(before))
        tops = [(b"", top)]
    if not has_wildcards(before) and not has_wildcards(kept):
        path = clean_path(f"{before}/{kept}")
        if _find(view, path) is None:
            raise _missing(view, text, path)
    return [
        Source(text=text, entry=entry, name=b"", includes=includes)
        for _, entry in tops
        if entry.is_directory
    ]
