"""The entries of a directory that a build is to see and that an instruction takes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Generic, TypeVar

from sandbox.errors import ImageError
from sandbox.image.dockerfile.globs import PathPatterns
from sandbox.image.dockerfile.tree import Entry, Tree
from sandbox.records.light import dataclass

E = TypeVar("E", bound=Entry)

NOTHING = PathPatterns(())
_DEPTH = 256

_States = tuple[tuple[bool, ...], tuple[bool, ...], tuple[bool, ...]]


@dataclass(frozen=True, kw_only=True)
class Filters:
    """What of a directory is taken."""

    ignored: PathPatterns = NOTHING
    """Matched from the top of the tree."""
    excluded: PathPatterns = NOTHING
    """`--exclude`, matched from the source."""
    included: PathPatterns | None = None
    """`--parents`, matched from the source."""


class Walk(Generic[E]):
    """A walk through directories of one tree."""

    def __init__(self, tree: Tree[E], filters: Filters) -> None:
        """Take from `tree` what `filters` lets pass."""
        self._tree = tree
        self._filters = filters

    def entries(self, directory: E) -> Iterator[tuple[E, bytes]]:
        """Yield what is taken with its path from `directory`, directories before what is in them.

        A directory that is not taken itself comes once something below it is.

        Raises:
            ImageError: the tree cannot be read, or is too deep.
        """
        states: tuple[bool, ...] = ()
        parts = directory.path.split(b"/") if directory.path else []
        for count in range(1, len(parts) + 1):
            above = os.fsdecode(b"/".join(parts[:count]))
            states = self._filters.ignored.states(above, states or None)
        yield from self._below(directory, b"", (states, (), ()))

    def _below(self, directory: E, top: bytes, states: _States) -> Iterator[tuple[E, bytes]]:
        if top.count(b"/") > _DEPTH:
            raise ImageError(f"`{os.fsdecode(directory.path)}`: more than {_DEPTH} directories")
        for child in self._tree.children(directory):
            if stat.S_ISSOCK(child.found.st_mode):
                continue  # no archive holds one
            name = child.path.rpartition(b"/")[2]
            relative = top + b"/" + name if top else name
            is_taken, inner = self._judge(child, relative, states)
            if is_taken:
                yield child, relative
            if not child.is_directory:
                continue
            if is_taken:
                yield from self._below(child, relative, inner)
            elif self._may_hold(inner):
                for count, each in enumerate(self._below(child, relative, inner)):
                    if not count:
                        yield child, relative
                    yield each

    def _judge(self, child: E, relative: bytes, states: _States) -> tuple[bool, _States]:
        """Return whether an entry is taken, and the states for what is below it."""
        filters, below = self._filters, os.fsdecode(relative)
        ignored = filters.ignored.states(os.fsdecode(child.path), states[0] or None)
        excluded = filters.excluded.states(below, states[1] or None)
        included: tuple[bool, ...] = ()
        is_taken = not filters.ignored.decide(ignored) and not filters.excluded.decide(excluded)
        if filters.included is not None:
            included = filters.included.states(below, states[2] or None)
            is_taken = is_taken and filters.included.decide(included)
        return is_taken, (ignored, excluded, included)

    def _may_hold(self, states: _States) -> bool:
        """Return whether something below a directory that is not taken may be."""
        filters = self._filters
        for patterns, state in ((filters.ignored, states[0]), (filters.excluded, states[1])):
            if patterns.decide(state) and not patterns.takes_back:
                return False
        return True
