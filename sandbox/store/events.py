"""Reading what a run wrote down beside its samples: events, and the groups that it made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sandbox.errors import StoreError
from sandbox.records.codec import from_plain
from sandbox.records.result import Event
from sandbox.store.files import EVENTS, GROUPS


def read_events(directory: Path) -> Iterator[Event]:
    """Iterate over the events of a run directory; lines that were torn are left out."""
    try:
        with (directory / EVENTS).open("rb") as lines:
            for line in lines:
                try:
                    yield from_plain(Event, json.loads(line))
                except (ValueError, TypeError, KeyError, RecursionError):
                    continue
    except FileNotFoundError:
        return
    except OSError as exc:
        raise StoreError(f"cannot read {directory / EVENTS}: {exc.strerror}") from exc


def read_groups(directory: Path) -> tuple[Path, ...]:
    """Return the cgroup directories that a run has made or was about to make, parents first."""
    try:
        plain: Any = json.loads((directory / GROUPS).read_bytes())
    except (OSError, ValueError):
        return ()
    return tuple(map(Path, plain)) if _is_texts(plain) else ()


def _is_texts(plain: Any) -> bool:
    return isinstance(plain, list) and all(isinstance(part, str) for part in plain)
